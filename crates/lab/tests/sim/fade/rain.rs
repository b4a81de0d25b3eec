//! A rain fade in flight: the times until the sender follows, until its queue is gone, and until
//! the link is used again.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_lab::sim::fleet::{Craft, Fleet};
use bentpipe_link::{LeaseMode, ModemRate, Settings};
use bentpipe_units::BitRate;

/// Rate without rain.
const CLEAR: BitRate = BitRate::from_bps(4_000_000);
/// Rate in rain.
const FADED: BitRate = BitRate::from_bps(1_000_000);
/// Round trip without queues.
pub const RTT: Duration = Duration::from_millis(600);
/// Start of the rain.
const BEGINS: Duration = Duration::from_secs(60);
/// End of the rain.
const ENDS: Duration = Duration::from_secs(120);
/// End of the run.
const OVER: Duration = Duration::from_secs(150);
/// Fraction of the rate from which it counts as used again.
const USED: f64 = 0.9;

/// Source that reports the new rate to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teller {
    /// No source: a static lease for the clear-sky rate. A download.
    Nobody,
    /// The modem next to the sender, without delay. A download.
    Modem,
    /// The ground, which knows its beam and grants shares to the aircraft. Uploads.
    Grant {
        /// Number of aircraft.
        aircraft: usize,
    },
}

/// Result of one fade. Each time counts from the change that it follows.
#[derive(Debug, Clone, Copy)]
pub struct Faded {
    /// Time until the total rate of all senders stayed within the faded rate.
    pub followed: Duration,
    /// Time until the beam's queue stayed below a quarter of a round trip.
    pub queue_gone: Duration,
    /// Longest queue between its first disappearance and the end of the rain.
    pub most_queue_later: Duration,
    /// Fraction of the faded rate that was offered to the link from then on.
    pub used_in_rain: f64,
    /// Time from the end of the rain to the end of the first round trip in which 0.9 of the rate
    /// was used.
    pub used_again: Option<Duration>,
    /// Fraction of the clear-sky rate that was used from 10 round trips after the rain on.
    pub used_later: f64,
    /// Trips of the circuit breakers before, during and after the rain.
    pub trips: [u64; 3],
}

/// Flies through the rain with `loss` in both directions, for example `"6 %"`.
pub fn run(teller: Teller, loss: &str, seed: u64) -> Faded {
    let upload = matches!(teller, Teller::Grant { .. });
    let aircraft = if let Teller::Grant { aircraft } = teller { aircraft } else { 1 };
    let lease = if upload { LeaseMode::Granted } else { LeaseMode::Static };
    let settings = Settings { rate: CLEAR, ..Settings::default() };
    let craft = Craft { air: Settings { lease, ..settings.clone() }, hub: settings };
    let mut fleet = Fleet::new(&beam(loss), &vec![craft; aircraft], seed);
    tell(&mut fleet, teller, CLEAR);
    for craft in 0..aircraft {
        fleet.fill(craft, !upload, upload);
    }
    let mut watch = Watch::new(teller, aircraft, upload);
    fleet.run(BEGINS, |_| ());
    let before = trips(&mut fleet, upload);
    tell(&mut fleet, teller, FADED);
    fleet.run(ENDS, |fleet| watch.rain(fleet));
    let during = trips(&mut fleet, upload);
    tell(&mut fleet, teller, CLEAR);
    fleet.run(OVER, |fleet| watch.clear(fleet));
    let after = trips(&mut fleet, upload);
    watch.result([before, during - before, after - during])
}

fn beam(loss: &str) -> LinkSpec {
    let steps = format!(
        "steps = [[\"0 s\", \"{CLEAR}\"], [\"{} s\", \"{FADED}\"], [\"{} s\", \"{CLEAR}\"]]",
        BEGINS.as_secs(),
        ENDS.as_secs()
    );
    // One bandwidth-delay product of the clear-sky rate, as in the profiles.
    let way = format!(
        "rate = {{ series = {{ {steps} }} }}\ndelay = \"{} ms\"\nloss = \"{loss}\"\nqueue = \"300 kB\"\n",
        RTT.as_millis() / 2
    );
    let text = format!("[forward]\n{way}[return]\n{way}");
    let written: bentpipe_channel::RawLink =
        toml::from_str(&text).expect("the beam is well formed");
    written.check(|_| Err("no traces".to_owned())).expect("the beam is well formed")
}

fn tell(fleet: &mut Fleet, teller: Teller, rate: BitRate) {
    let now = fleet.now();
    match teller {
        Teller::Nobody => {}
        Teller::Modem => {
            let key = fleet.key(0);
            let reported = ModemRate { rate, per_packet_overhead: 0, is_down: false };
            fleet.hub.set_modem_rate(&key, Some(reported), now);
        }
        Teller::Grant { .. } => {
            fleet.hub.set_beam(None, Some(rate), now).expect("idle grants fit into the beam");
        }
    }
}

fn trips(fleet: &mut Fleet, upload: bool) -> u64 {
    let (hub, airs) = fleet.trips();
    if upload { airs } else { hub }
}

struct Watch {
    teller: Teller,
    aircraft: usize,
    upload: bool,
    last_fast: Duration,
    last_queued: Duration,
    queue_was_gone: Option<(Duration, u64)>,
    most_queue_later: Duration,
    at_end: u64,
    offered: VecDeque<(Duration, u64)>,
    used_again: Option<Duration>,
    later: Option<(Duration, u64)>,
    last: (Duration, u64),
}

impl Watch {
    fn new(teller: Teller, aircraft: usize, upload: bool) -> Self {
        Self {
            teller,
            aircraft,
            upload,
            last_fast: BEGINS,
            last_queued: BEGINS,
            queue_was_gone: None,
            most_queue_later: Duration::ZERO,
            at_end: 0,
            offered: VecDeque::new(),
            used_again: None,
            later: None,
            last: (Duration::ZERO, 0),
        }
    }

    fn pick<T>(&self, (forward, back): (T, T)) -> T {
        if self.upload { back } else { forward }
    }

    fn rain(&mut self, fleet: &mut Fleet) {
        let now = fleet.now();
        let rate = |craft| match self.teller {
            Teller::Grant { .. } => fleet.return_rate(craft),
            Teller::Nobody | Teller::Modem => fleet.forward_rate(craft),
        };
        let rates = (0..self.aircraft).filter_map(rate).map(|rate| rate.bps()).sum::<u64>();
        // Without a source, a probe above the rate is not a relapse.
        let probe = if self.teller == Teller::Nobody { 2 } else { 1 };
        if rates > probe * FADED.bps() {
            self.last_fast = now;
        }
        let offered = self.pick(fleet.offered_bytes());
        let queue = FADED.time_for(self.pick(fleet.queued_bytes()));
        if queue > RTT / 4 {
            self.last_queued = now;
        } else if now > BEGINS + RTT {
            self.queue_was_gone.get_or_insert((now, offered));
        }
        if self.queue_was_gone.is_some() {
            self.most_queue_later = self.most_queue_later.max(queue);
        }
        self.at_end = offered;
    }

    fn clear(&mut self, fleet: &mut Fleet) {
        let (now, offered) = (fleet.now(), self.pick(fleet.offered_bytes()));
        self.offered.push_back((now, offered));
        while self.offered.get(1).is_some_and(|(at, _)| *at + RTT <= now) {
            self.offered.pop_front();
        }
        let used = offered - self.offered[0].1;
        let full = now >= ENDS + RTT && used as f64 >= USED * CLEAR.bytes_in(RTT) as f64;
        if full && self.used_again.is_none() {
            self.used_again = Some(now - ENDS);
        }
        if now >= ENDS + RTT * 10 {
            self.later.get_or_insert((now, offered));
        }
        self.last = (now, offered);
    }

    fn result(&self, trips: [u64; 3]) -> Faded {
        let used = |from: (Duration, u64), to: (Duration, u64), rate: BitRate| {
            (to.1 - from.1) as f64 / rate.bytes_in(to.0 - from.0) as f64
        };
        let gone = self.queue_was_gone.unwrap_or((ENDS, self.at_end));
        let later = self.later.unwrap_or(self.last);
        Faded {
            followed: self.last_fast - BEGINS,
            queue_gone: self.last_queued - BEGINS,
            most_queue_later: self.most_queue_later,
            used_in_rain: used(gone, (ENDS, self.at_end), FADED),
            used_again: self.used_again,
            used_later: used(later, self.last, CLEAR),
            trips,
        }
    }
}
