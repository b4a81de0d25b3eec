//! Path MTU discovery after RFC 8899 (DPLPMTUD), on a link where most lost packets were not too
//! large.
//!
//! A session begins at [`MIN_MTU_BYTES`], which every path carries, and probes the provisioned
//! maximum with its first packets. If the operator's figure is right, it is in use one round trip
//! later, at the cost of 1 % of that round trip in headers. If it is wrong, nothing is lost, while
//! a session that began at the maximum would lose all its large packets at first. The provisioned
//! maximum is never exceeded.
//!
//! A [`SizeTest`] decides about one size, with probes of that size next to probes that the path is
//! known to carry. Any packet of the size that arrives, probe or not, decides in favour at once.
//!
//! The size in use is in doubt in two cases:
//!
//! - [`ENOUGH_UNVERIFIED`] large packets were sent, and in well over a round trip none as large as
//!   the largest of them is known to have arrived;
//! - the peer has gone silent.
//!
//! If a size in use is too large, the session falls back to the minimum and searches upwards,
//! halving the interval each time. Sizes found too large are tried again after [`RAISE_AFTER`], if
//! there is something to send.

mod size_test;

use std::time::Duration;

use crate::rtt::Rtt;
use crate::settings::MIN_MTU_BYTES;
use size_test::{SizeTest, TestResult};

/// Number of large packets without news that looks suspicious. Reports name only some of the
/// packets that arrived, so that one or two mean nothing.
const ENOUGH_UNVERIFIED: u32 = 8;
/// Granularity of the search: a smaller gain is not worth the probes.
const GRAIN_BYTES: usize = 8;
/// RFC 8899, section 5.1.1: PMTU_RAISE_TIMER.
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Inverse probability that a test gives up a size in use by mistake.
const SURE_TO_SHRINK: f64 = 1e9;
/// The same for a size not yet in use, where a mistake costs a little header overhead until
/// [`RAISE_AFTER`].
const SURE_TO_STAY: f64 = 1e6;
/// Number of packets whose loss is recorded: older ones count half, a quarter, and so on.
const MEMORY_PACKETS: u64 = 2048;
/// Minimum number of packets for a measured loss to be believed.
const MIN_JUDGED: u64 = 64;

/// Path MTU state of one path in one direction.
#[derive(Debug)]
pub struct Mtu {
    /// The provisioned maximum.
    max: usize,
    current: usize,
    /// Smallest size known to be too large; `max + 1` if there is none.
    too_large: usize,
    /// A size was found too large on this path, so that sizes tried again have to prove themselves.
    has_refused: bool,
    test: Option<SizeTest>,
    raise_at: Option<Duration>,
    /// Large packets sent since one as large is known to have arrived.
    unverified: Option<Unverified>,
    /// Loss measured while the size in use was known to pass, and counts since.
    known: Loss,
    counted: Loss,
    next_packet: u64,
    /// Number below which packets prove nothing any more, because reports repeat packets.
    proved_below: u64,
    /// Number below which losses of packets were the size's fault.
    blamed_below: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Unverified {
    /// Sending time of the first of them.
    since: Duration,
    packets: u32,
    /// Size of the largest of them. A session that sends nothing larger need not know whether that
    /// would pass.
    bytes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Loss {
    lost: u64,
    judged: u64,
}

impl Mtu {
    /// Creates the state of a path that may carry packets of `max` bytes, with the IP header.
    pub fn new(max: usize, now: Duration) -> Self {
        let mut mtu = Self {
            max,
            current: MIN_MTU_BYTES.min(max),
            too_large: max + 1,
            has_refused: false,
            test: None,
            raise_at: None,
            unverified: None,
            known: Loss::default(),
            counted: Loss::default(),
            next_packet: 0,
            proved_below: 0,
            blamed_below: None,
        };
        mtu.search(now);
        mtu
    }

    /// Size of the largest packet that may carry data, with the IP header.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Size of the largest packet once the first search succeeds. Until its end nothing shows that
    /// the path does not carry the provisioned maximum.
    pub fn provisioned(&self) -> usize {
        if self.has_refused { self.current } else { self.max }
    }

    /// Returns `true` if the size in use may be too large for the path.
    pub fn is_in_doubt(&self) -> bool {
        self.test.as_ref().is_some_and(|test| test.bytes() == self.current)
    }

    /// Time at which the next probe should be sent.
    pub fn due_at(&self) -> Option<Duration> {
        self.test.as_ref().and_then(SizeTest::due_at)
    }

    /// Size of the probe that should be sent now, and whether the path is known to carry it.
    pub fn due(&self, now: Duration) -> Option<(usize, bool)> {
        let test = self.test.as_ref().filter(|test| test.due_at().is_some_and(|at| at <= now));
        test.map(SizeTest::next_probe)
    }

    /// Notes that the probe that was due was sent as `packet`.
    pub fn probed(&mut self, packet: u64, rtt: &Rtt, now: Duration) {
        if let Some(test) = &mut self.test {
            test.sent(packet, rtt, now);
        }
    }

    /// Notes that `packet` was sent, a probe or another.
    pub fn sent(&mut self, packet: u64) {
        self.next_packet = packet + 1;
    }

    /// Notes that a packet of `bytes` is sent that is not a probe.
    pub fn used(&mut self, bytes: usize, now: Duration) {
        if bytes > MIN_MTU_BYTES {
            let none = Unverified { since: now, packets: 0, bytes: 0 };
            let unverified = self.unverified.get_or_insert(none);
            unverified.packets = unverified.packets.saturating_add(1);
            unverified.bytes = unverified.bytes.max(bytes);
        }
        // Only a session that sends much gains by larger packets: an idle one does not probe.
        if 2 * bytes > self.current && self.raise_at.is_some_and(|at| at <= now) {
            self.too_large = self.max + 1;
            self.search(now);
        }
    }

    /// Notes that `packet`, of `bytes`, has arrived at the peer.
    pub fn arrived(&mut self, packet: u64, bytes: usize, now: Duration) {
        let largest = self.unverified.map_or(self.current, |unverified| unverified.bytes);
        // A full symbol leaves room for the header of its repair, and is a few bytes shorter. A
        // size that every path carries proves nothing about a larger one.
        let is_large = bytes > MIN_MTU_BYTES || largest <= MIN_MTU_BYTES;
        let proves = is_large && bytes + GRAIN_BYTES > largest && packet >= self.proved_below;
        if proves {
            self.proved_below = packet + 1;
            self.unverified = None;
            self.known.add(std::mem::take(&mut self.counted));
        }
        let Some(test) = &mut self.test else { return };
        test.arrived(packet);
        let size = test.bytes();
        let settles =
            if size == self.current { proves } else { bytes >= size && test.is_later(packet) };
        if settles {
            self.test = None;
            self.current = size.max(self.current);
            if self.raise_at.is_none() {
                self.search(now);
            }
        }
    }

    /// Notes that the peer's report accounts for `judged` more packets, up to number `largest`,
    /// with `lost` of them lost.
    pub fn judged(&mut self, largest: u64, lost: u64, judged: u64) {
        match self.blamed_below {
            Some(blamed) if largest < blamed => {}
            Some(_) => self.blamed_below = None,
            None => self.counted.add(Loss { lost, judged }),
        }
    }

    /// Notes the beginning of an outage. Probes wait for its end; then the size in use has to prove
    /// itself.
    pub fn on_outage(&mut self, now: Duration) {
        if self.current > MIN_MTU_BYTES && !self.is_in_doubt() {
            self.unverified = Some(Unverified { since: now, packets: 0, bytes: self.current });
            self.doubt(now);
        } else if let Some(test) = &mut self.test {
            test.interrupt(now);
        }
    }

    /// Notes that the system refused to send packets of `bytes`, because its interface has a
    /// smaller MTU.
    pub fn refused(&mut self, bytes: usize, now: Duration) {
        if bytes <= MIN_MTU_BYTES || bytes >= self.too_large {
            return;
        }
        self.refuse(bytes);
        if self.current >= bytes {
            self.shrink(now);
        } else if self.test.as_ref().is_some_and(|test| test.bytes() >= bytes) {
            self.search(now);
        }
    }

    /// Notes that the peer has another address, so that the path is unknown.
    pub fn moved(&mut self, now: Duration) {
        let (known, next) = (self.known, self.next_packet);
        *self = Self { known, next_packet: next, proved_below: next, ..Self::new(self.max, now) };
        self.search(now);
    }

    /// Handles what is due. Not to be called in an outage, which says nothing about any packet.
    pub fn handle_timeout(&mut self, rtt: &Rtt, now: Duration) {
        if self.doubt_at(rtt).is_some_and(|at| at <= now) {
            self.doubt(now);
        }
        let loss = self.known.rate();
        let Some(test) = &mut self.test else { return };
        let (bytes, in_use) = (test.bytes(), test.bytes() == self.current);
        let sure = if in_use { SURE_TO_SHRINK } else { SURE_TO_STAY };
        if test.judge(loss, sure, now) == TestResult::TooLarge {
            self.refuse(bytes);
            if in_use { self.shrink(now) } else { self.search(now) }
        }
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self, rtt: &Rtt) -> Option<Duration> {
        let judged = self.test.as_ref().and_then(SizeTest::judged_at);
        judged.into_iter().chain(self.doubt_at(rtt)).min()
    }

    fn doubt_at(&self, rtt: &Rtt) -> Option<Duration> {
        let suspicious = |it: &Unverified| it.packets >= ENOUGH_UNVERIFIED;
        let in_use = self.current > MIN_MTU_BYTES && self.test.is_none();
        let since = self.unverified.filter(suspicious).filter(|_| in_use)?.since;
        Some(since + rtt.overdue_after() + rtt.get() / 2)
    }

    fn doubt(&mut self, now: Duration) {
        if self.current > MIN_MTU_BYTES {
            self.test = Some(SizeTest::new(self.current, self.next_packet, now));
        }
    }

    fn refuse(&mut self, bytes: usize) {
        (self.too_large, self.has_refused) = (bytes, true);
    }

    fn shrink(&mut self, now: Duration) {
        tracing::info!(was = self.current, is = MIN_MTU_BYTES, "the path carries smaller packets");
        self.current = MIN_MTU_BYTES;
        self.unverified = None;
        self.counted = Loss::default();
        self.blamed_below = Some(self.next_packet);
        self.search(now);
    }

    /// Starts the test of the next size: the maximum, then the middle of the interval.
    fn search(&mut self, now: Duration) {
        let candidate = if self.too_large > self.max {
            self.max
        } else {
            self.current + (self.too_large - self.current) / 2
        };
        let worth = self.too_large - self.current > GRAIN_BYTES || candidate == self.max;
        self.test = (candidate > self.current && worth)
            .then(|| SizeTest::new(candidate, self.next_packet, now));
        let at_rest = self.test.is_none() && self.current < self.max;
        self.raise_at = at_rest.then_some(now + RAISE_AFTER);
    }
}

impl Loss {
    fn add(&mut self, more: Self) {
        self.lost = self.lost.saturating_add(more.lost);
        self.judged = self.judged.saturating_add(more.judged);
        while self.judged > MEMORY_PACKETS {
            self.lost /= 2;
            self.judged /= 2;
        }
    }

    fn rate(self) -> f64 {
        let enough = self.judged >= MIN_JUDGED;
        if enough { (self.lost as f64 / self.judged as f64).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
