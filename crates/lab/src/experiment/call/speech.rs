//! A call: small packets at a constant interval in both directions, which must not be late.

use std::time::Duration;

use bentpipe_link::{Class, Counters};
use bentpipe_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::experiment::engine::Engine;
use crate::profile::Profile;
use crate::sim::transfer::NoSession;
use crate::traffic::{ClassLimits, DOWN, Passing, Talk, UP};

/// Interval between two packets of one direction.
pub const GAP: Duration = Duration::from_millis(20);
/// Maximum delay beyond the loss-free delay. A later packet is lost for the listener.
pub const LATEST: Duration = Duration::from_millis(250);
/// Payload sizes: RTP with 20 ms of speech at 57 to 73 kbit/s.
const PAYLOAD_BYTES: std::ops::RangeInclusive<usize> = 160..=200;
/// Time after the last packet for packets that are still in flight.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Time within which the call must reach the hub.
const TAKEN_LIMIT: Duration = Duration::from_secs(60);

/// One direction of a call.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Packets sent.
    pub sent: usize,
    /// Delay of each packet beyond the loss-free delay. `None` for packets that never arrived.
    pub late: Vec<Option<Duration>>,
    /// Counters of the sender during the call.
    pub counters: Counters,
}

impl Heard {
    /// Fraction of packets that never arrived, or arrived too late.
    pub fn residual(&self) -> f64 {
        let in_time = self.late.iter().flatten().filter(|late| **late <= LATEST).count();
        (self.sent - in_time) as f64 / self.sent as f64
    }

    /// Delay beyond the loss-free delay that the fraction `share` of the punctual packets does not
    /// exceed.
    pub fn added_delay(&self, share: f64) -> Duration {
        let mut late: Vec<_> = self.late.iter().flatten().filter(|it| **it <= LATEST).collect();
        late.sort();
        let at = (share * late.len() as f64) as usize;
        late.get(at.min(late.len().saturating_sub(1))).map_or(Duration::MAX, |late| **late)
    }

    /// Bytes of repair packets and retransmissions, as a fraction of the bytes sent first.
    pub fn redundancy(&self) -> f64 {
        let again = self.counters.repair_bytes + self.counters.retransmission_bytes;
        again as f64 / self.counters.symbol_bytes as f64
    }
}

/// The profile mss with `percent` loss in each direction, in bursts of `burst` full packets' time.
/// A burst of 1 means independent loss.
pub fn link(percent: f64, burst: f64) -> Profile {
    let mss = Profile::named("mss").expect("it is built in");
    let loss = Ratio::new(percent / 100.0).expect("it is a share");
    mss.with_loss(loss, burst).expect("such bursts lose so much")
}

/// A call of `length` in `class` over `profile`. Returns the direction towards the aircraft, then
/// the one from it.
pub fn call(
    engine: &Engine<'_>,
    profile: &Profile,
    class: Class,
    length: Duration,
    seed: u64,
) -> anyhow::Result<[Heard; 2]> {
    let packets = (length.as_nanos() / GAP.as_nanos()) as usize;
    let lossless = profile.clone().with_loss(Ratio::ZERO, 1.0).expect("nothing can be lost");
    let (ways, counters) = run(engine, profile, class, packets, seed)?;
    let (loss_free, _) = run(engine, &lossless, class, packets, seed)?;
    Ok([DOWN, UP].map(|way| {
        // Without loss all packets arrive, unless a real kernel's queue was full. Such a packet
        // takes the minimum delay.
        let usual = loss_free[way].iter().flatten().min().copied().unwrap_or_default();
        let late = ways[way]
            .iter()
            .zip(&loss_free[way])
            .map(|(came, would)| came.map(|came| came.saturating_sub(would.unwrap_or(usual))));
        Heard { sent: packets, late: late.collect(), counters: counters[way] }
    }))
}

/// Delay of each packet of a call, if it arrived.
type Transits = Vec<Option<Duration>>;

/// Delays of the packets of each direction, and the counters for that time.
fn run(
    engine: &Engine<'_>,
    profile: &Profile,
    class: Class,
    packets: usize,
    seed: u64,
) -> anyhow::Result<([Transits; 2], [Counters; 2])> {
    engine
        .carry(profile, &ClassLimits::default(), seed, |cabin| {
            let number = cabin.talk(speech(class, 1, packets, seed));
            if !cabin.wait(TAKEN_LIMIT, |cabin| cabin.has_begun(number)) {
                return Err(NoSession::over(profile, TAKEN_LIMIT));
            }
            let before = cabin.counted().sent;
            cabin.pass(GAP * packets as u32 + AFTERWARDS);
            let after = cabin.counted().sent;
            let transit = |(_, transit)| transit;
            let ways = [DOWN, UP]
                .map(|way| cabin.transits(number, way).into_iter().map(transit).collect());
            Ok((ways, [DOWN, UP].map(|way| spent(&before[way], &after[way]))))
        })?
        .map_err(anyhow::Error::new)
}

/// Packets and bytes sent between two counts.
fn spent(before: &Counters, after: &Counters) -> Counters {
    Counters {
        symbol_bytes: after.symbol_bytes - before.symbol_bytes,
        repair_bytes: after.repair_bytes - before.repair_bytes,
        retransmission_bytes: after.retransmission_bytes - before.retransmission_bytes,
        ..*after
    }
}

/// Makes `packets` packets of speech.
pub fn speech(class: Class, passenger: u32, packets: usize, seed: u64) -> Talk {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let sizes = (0..packets).map(|_| rng.random_range(PAYLOAD_BYTES)).collect();
    Talk { class, passenger, gap: GAP, sizes, phase: Duration::ZERO }
}
