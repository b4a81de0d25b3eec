//! A call: small packets at a steady pace, both ways at once, of which none may come late.

use std::time::Duration;

use bentpipe_link::{Class, Core, Counters, OpenDatagrams, Receive, Settings};
use bentpipe_units::Ratio;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::pair::{FlowKey, Pair};
use crate::profile::Profile;

/// Between two packets of one direction.
pub const GAP: Duration = Duration::from_millis(20);
/// A packet that comes later than this beyond its loss-free time is lost to the listener.
pub const LATEST: Duration = Duration::from_millis(250);
/// Payloads: RTP with 20 ms of speech at 57 to 73 kbit/s.
const PAYLOAD_BYTES: std::ops::RangeInclusive<usize> = 160..=200;
/// What may still be under way when the last packet has left.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// One direction of a call.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Packets sent.
    pub sent: usize,
    /// By how much later than without loss each came; `None` for those that never did.
    pub late: Vec<Option<Duration>>,
    /// What its sender counted while the call lasted.
    pub counters: Counters,
}

impl Heard {
    /// The share that never came, or came too late.
    pub fn residual(&self) -> f64 {
        let in_time = self.late.iter().flatten().filter(|late| **late <= LATEST).count();
        (self.sent - in_time) as f64 / self.sent as f64
    }

    /// The delay that `share` of those that came in time had at most, beyond what they have without loss.
    pub fn added_delay(&self, share: f64) -> Duration {
        let mut late: Vec<_> = self.late.iter().flatten().filter(|it| **it <= LATEST).collect();
        late.sort();
        let at = (share * late.len() as f64) as usize;
        late.get(at.min(late.len().saturating_sub(1))).map_or(Duration::MAX, |late| **late)
    }

    /// Bytes of repairs and of what was sent again, in parts of those sent first.
    pub fn redundancy(&self) -> f64 {
        let again = self.counters.repair_bytes + self.counters.retransmission_bytes;
        again as f64 / self.counters.symbol_bytes as f64
    }
}

/// The profile mss, losing `percent` of all packets each way in bursts of `burst` full packets' time,
/// or each by itself where that is 1.
pub fn link(percent: f64, burst: f64) -> Profile {
    let mss = Profile::named("mss").expect("it is built in");
    let loss = Ratio::new(percent / 100.0).expect("it is a share");
    mss.with_loss(loss, burst).expect("such bursts lose so much")
}

/// A call of `length` in `class` over `profile`: towards the aircraft, and from it.
pub fn call(profile: &Profile, class: Class, length: Duration, seed: u64) -> [Heard; 2] {
    let packets = (length.as_nanos() / GAP.as_nanos()) as usize;
    let (ways, counters) = Run::new(profile, class, packets, seed).finish();
    let (loss_free, _) = Run::new(&link(0.0, 1.0), class, packets, seed).finish();
    let heard = |way: usize| {
        let late = ways[way].iter().zip(&loss_free[way]).map(|(came, would)| {
            let would = would.expect("nothing is lost without loss");
            came.map(|came| came.saturating_sub(would))
        });
        Heard { sent: packets, late: late.collect(), counters: counters[way] }
    };
    [heard(0), heard(1)]
}

/// A call that goes on.
struct Run {
    pair: Pair,
    packets: usize,
    sizes: Vec<usize>,
    air: FlowKey,
    hub: FlowKey,
    /// When each packet came, after the call began: to the aircraft, and from it.
    came: [Vec<Option<Duration>>; 2],
}

impl Run {
    fn new(profile: &Profile, class: Class, packets: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sizes = (0..packets).map(|_| rng.random_range(PAYLOAD_BYTES)).collect();
        let mut pair = Pair::new(profile, &Settings::default(), seed);
        let open = OpenDatagrams {
            target: "192.0.2.7:5004".parse().expect("it is a target"),
            protocol: 17,
            source: 5004,
            class,
            passenger: 1,
        };
        let mut ends = None;
        let began = pair.run(Duration::from_secs(60), |pair| {
            let now = pair.now();
            let air = ends.or_else(|| pair.air.open_datagrams(&open, now).ok());
            ends = air;
            pair.has_opened()
        });
        assert!(began, "the call was not taken within a minute");
        let (air, hub) = (ends.expect("it was opened"), pair.accept().expect("it was taken"));
        let came = [vec![None; packets], vec![None; packets]];
        Self { pair, packets, sizes, air, hub, came }
    }

    /// Talks to the end: when each packet came, and what the hub and the air counted meanwhile.
    fn finish(mut self) -> ([Vec<Option<Duration>>; 2], [Counters; 2]) {
        let (start, before) = (self.pair.now(), self.counters());
        for packet in 0..self.packets {
            let at = start + GAP * packet as u32;
            self.run_until(at, start);
            let mut payload = vec![0; self.sizes[packet]];
            payload[..4].copy_from_slice(&(packet as u32).to_be_bytes());
            let pair = &mut self.pair;
            let both = "both ends are there";
            let (air, hub) = (self.air, self.hub);
            pair.hub.session(hub.0).expect(both).send_datagram(hub.1, &payload, at).expect(both);
            pair.air.session(air.0).expect(both).send_datagram(air.1, &payload, at).expect(both);
        }
        let end = self.pair.now() + AFTERWARDS;
        self.run_until(end, start);
        let after = self.counters();
        let spent = |way: usize| Counters {
            symbol_bytes: after[way].symbol_bytes - before[way].symbol_bytes,
            repair_bytes: after[way].repair_bytes - before[way].repair_bytes,
            retransmission_bytes: after[way].retransmission_bytes
                - before[way].retransmission_bytes,
            ..after[way]
        };
        let spent = [spent(0), spent(1)];
        (self.came, spent)
    }

    fn counters(&mut self) -> [Counters; 2] {
        let hub = self.pair.hub.session(self.hub.0).map(|session| session.counters());
        let air = self.pair.air.session(self.air.0).map(|session| session.counters());
        [hub.unwrap_or_default(), air.unwrap_or_default()]
    }

    fn run_until(&mut self, end: Duration, start: Duration) {
        while self.pair.now() < end {
            self.pair.step_within(end);
            let now = self.pair.now();
            let (air, hub) = (self.air, self.hub);
            if let Some(session) = self.pair.air.session(air.0) {
                while let Receive::Taken(payload) = session.receive_datagram(air.1, now) {
                    note(&mut self.came[0], &payload, now - start);
                }
            }
            if let Some(session) = self.pair.hub.session(hub.0) {
                while let Receive::Taken(payload) = session.receive_datagram(hub.1, now) {
                    note(&mut self.came[1], &payload, now - start);
                }
            }
        }
    }
}

fn note(came: &mut [Option<Duration>], payload: &[u8], at: Duration) {
    let number = payload.first_chunk().map(|number| u32::from_be_bytes(*number));
    let packet = number.and_then(|number| came.get_mut(number as usize));
    let packet = packet.expect("what comes is what was sent");
    assert!(packet.replace(at).is_none(), "a datagram came twice");
}
