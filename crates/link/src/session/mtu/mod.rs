//! The largest packet that the path carries, after RFC 8899 (DPLPMTUD), on a link where most that
//! is lost was not too large.
//!
//! A session begins at [`MIN_MTU_BYTES`], which every path carries, and asks for the provisioned
//! maximum with its first packets: where the operator's figure is right it is in use one round trip
//! later, which costs 1 % of that round trip in headers; where it is wrong nothing is lost, while a
//! session that began at the maximum would lose all its large packets until it had found out.
//! The provisioned maximum is never exceeded.
//!
//! Every question is answered by a [`Trial`]: probes of the size in question, each beside one that
//! the path is known to carry. Any packet of the size that arrives, probe or not, says yes at once.
//! The size in use is doubted when [`ENOUGH_UNVERIFIED`] large packets have left and in well over a
//! round trip none as large as the largest of them was heard to have come, or when the peer has gone
//! silent; a size found too large in use gives way to the least, from which the search goes up again,
//! halving what is left.
//! Sizes found too large are tried again after [`RAISE_AFTER`], if there is something to send.

mod trial;

use std::time::Duration;

use crate::rtt::Rtt;
use crate::settings::MIN_MTU_BYTES;
use trial::{Trial, Verdict};

/// So many large packets without news of any begin to look suspicious. Reports name only some of
/// the packets that came, so that one or two by themselves mean nothing.
const ENOUGH_UNVERIFIED: u32 = 8;
/// Granularity of the search: a smaller gain is not worth the probes.
const GRAIN_BYTES: usize = 8;
/// RFC 8899, section 5.1.1: PMTU_RAISE_TIMER.
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// The chance that a size in use is given up for nothing: one trial in this many.
const SURE_TO_SHRINK: f64 = 1e9;
/// The same for a size not yet in use, where an error costs a little header until [`RAISE_AFTER`].
const SURE_TO_STAY: f64 = 1e6;
/// Packets whose loss is remembered: older ones count half, a quarter, and so on.
const REMEMBERED_PACKETS: u64 = 2048;
/// A loss measured over fewer packets is not believed.
const ENOUGH_JUDGED: u64 = 64;

/// The state of one path in one direction.
#[derive(Debug)]
pub struct Mtu {
    /// The provisioned maximum.
    most: usize,
    current: usize,
    /// The least size known not to pass; one more than `most` while none is.
    too_large: usize,
    /// Some size was found too large on this path: sizes that are tried again prove themselves before
    /// anything is hoped of them.
    has_refused: bool,
    trial: Option<Trial>,
    raise_at: Option<Duration>,
    /// The large packets that have left since one as large was heard to have come.
    unverified: Option<Unverified>,
    /// Loss while the size in use was known to pass, and what was counted since.
    known: Loss,
    counted: Loss,
    next_packet: u64,
    /// No packet below proves anything any more: reports name the same packets again and again.
    proved_below: u64,
    /// Losses among packets below were the size's fault.
    blamed_below: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Unverified {
    /// Time at which the first of them left.
    since: Duration,
    packets: u32,
    /// The largest of them: who sends nothing larger need not know whether that would pass.
    bytes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Loss {
    lost: u64,
    judged: u64,
}

impl Mtu {
    /// A path that may carry packets of `most` bytes, IP header included.
    pub fn new(most: usize, now: Duration) -> Self {
        let mut mtu = Self {
            most,
            current: MIN_MTU_BYTES.min(most),
            too_large: most + 1,
            has_refused: false,
            trial: None,
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

    /// The largest packet that may carry data, IP header included.
    pub fn current(&self) -> usize {
        self.current
    }

    /// The largest packet that may carry data as soon as the first search has ended well: until then
    /// nothing says that the path does not carry what it is provisioned for.
    pub fn hoped(&self) -> usize {
        if self.has_refused { self.current } else { self.most }
    }

    /// Returns `true` if the size in use may be too large for the path.
    pub fn is_in_doubt(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.bytes() == self.current)
    }

    /// Time at which the next probe should leave.
    pub fn due_at(&self) -> Option<Duration> {
        self.trial.as_ref().and_then(Trial::due_at)
    }

    /// The size of the probe that should leave now, and whether the path is known to carry it.
    pub fn due(&self, now: Duration) -> Option<(usize, bool)> {
        let trial = self.trial.as_ref().filter(|trial| trial.due_at().is_some_and(|at| at <= now));
        trial.map(Trial::next_probe)
    }

    /// The probe that was due left as `packet`.
    pub fn probed(&mut self, packet: u64, rtt: &Rtt, now: Duration) {
        if let Some(trial) = &mut self.trial {
            trial.sent(packet, rtt, now);
        }
    }

    /// `packet` left, a probe or another.
    pub fn sent(&mut self, packet: u64) {
        self.next_packet = packet + 1;
    }

    /// A packet of `bytes` leaves that is no probe.
    pub fn used(&mut self, bytes: usize, now: Duration) {
        if bytes > MIN_MTU_BYTES {
            let none = Unverified { since: now, packets: 0, bytes: 0 };
            let unverified = self.unverified.get_or_insert(none);
            unverified.packets = unverified.packets.saturating_add(1);
            unverified.bytes = unverified.bytes.max(bytes);
        }
        // Only who sends much gains by larger packets: an idle session asks for none.
        if 2 * bytes > self.current && self.raise_at.is_some_and(|at| at <= now) {
            self.too_large = self.most + 1;
            self.search(now);
        }
    }

    /// The peer has `packet`, of `bytes`.
    pub fn arrived(&mut self, packet: u64, bytes: usize, now: Duration) {
        let largest = self.unverified.map_or(self.current, |unverified| unverified.bytes);
        // A full symbol leaves room for the head of its repair: it is a few bytes shorter. What every path
        // carries proves nothing of a larger one.
        let is_large = bytes > MIN_MTU_BYTES || largest <= MIN_MTU_BYTES;
        let proves = is_large && bytes + GRAIN_BYTES > largest && packet >= self.proved_below;
        if proves {
            self.proved_below = packet + 1;
            self.unverified = None;
            self.known.add(std::mem::take(&mut self.counted));
        }
        let Some(trial) = &mut self.trial else { return };
        trial.arrived(packet);
        let size = trial.bytes();
        let settles =
            if size == self.current { proves } else { bytes >= size && trial.is_later(packet) };
        if settles {
            self.trial = None;
            self.current = size.max(self.current);
            if self.raise_at.is_none() {
                self.search(now);
            }
        }
    }

    /// The peer's report accounts for `judged` more packets, up to number `largest`, `lost` of
    /// them lost.
    pub fn judged(&mut self, largest: u64, lost: u64, judged: u64) {
        match self.blamed_below {
            Some(blamed) if largest < blamed => {}
            Some(_) => self.blamed_below = None,
            None => self.counted.add(Loss { lost, judged }),
        }
    }

    /// The peer is silent. Probes wait until it is heard; then the size in use has to prove itself.
    pub fn silence(&mut self, now: Duration) {
        if self.current > MIN_MTU_BYTES && !self.is_in_doubt() {
            self.unverified = Some(Unverified { since: now, packets: 0, bytes: self.current });
            self.doubt(now);
        } else if let Some(trial) = &mut self.trial {
            trial.interrupt(now);
        }
    }

    /// The system refuses to send packets of `bytes`: its interface has a smaller MTU.
    pub fn refused(&mut self, bytes: usize, now: Duration) {
        if bytes <= MIN_MTU_BYTES || bytes >= self.too_large {
            return;
        }
        self.refuse(bytes);
        if self.current >= bytes {
            self.shrink(now);
        } else if self.trial.as_ref().is_some_and(|trial| trial.bytes() >= bytes) {
            self.search(now);
        }
    }

    /// The peer has another address: nothing is known of the way there.
    pub fn moved(&mut self, now: Duration) {
        let (known, next) = (self.known, self.next_packet);
        *self = Self { known, next_packet: next, proved_below: next, ..Self::new(self.most, now) };
        self.search(now);
    }

    /// Does what is due. Not to be called in silence, which says nothing of any packet.
    pub fn handle_timeout(&mut self, rtt: &Rtt, now: Duration) {
        if self.doubt_at(rtt).is_some_and(|at| at <= now) {
            self.doubt(now);
        }
        let loss = self.known.rate();
        let Some(trial) = &mut self.trial else { return };
        let (bytes, in_use) = (trial.bytes(), trial.bytes() == self.current);
        let sure = if in_use { SURE_TO_SHRINK } else { SURE_TO_STAY };
        if trial.judge(loss, sure, now) == Verdict::TooLarge {
            self.refuse(bytes);
            if in_use { self.shrink(now) } else { self.search(now) }
        }
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self, rtt: &Rtt) -> Option<Duration> {
        let judged = self.trial.as_ref().and_then(Trial::judged_at);
        judged.into_iter().chain(self.doubt_at(rtt)).min()
    }

    fn doubt_at(&self, rtt: &Rtt) -> Option<Duration> {
        let suspicious = |it: &Unverified| it.packets >= ENOUGH_UNVERIFIED;
        let in_use = self.current > MIN_MTU_BYTES && self.trial.is_none();
        let since = self.unverified.filter(suspicious).filter(|_| in_use)?.since;
        Some(since + rtt.overdue_after() + rtt.get() / 2)
    }

    fn doubt(&mut self, now: Duration) {
        if self.current > MIN_MTU_BYTES {
            self.trial = Some(Trial::new(self.current, self.next_packet, now));
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

    /// Asks for the next size worth asking for: the maximum, then the middle of what is left.
    fn search(&mut self, now: Duration) {
        let candidate = if self.too_large > self.most {
            self.most
        } else {
            self.current + (self.too_large - self.current) / 2
        };
        let worth = self.too_large - self.current > GRAIN_BYTES || candidate == self.most;
        self.trial = (candidate > self.current && worth)
            .then(|| Trial::new(candidate, self.next_packet, now));
        let at_rest = self.trial.is_none() && self.current < self.most;
        self.raise_at = at_rest.then_some(now + RAISE_AFTER);
    }
}

impl Loss {
    fn add(&mut self, more: Self) {
        self.lost = self.lost.saturating_add(more.lost);
        self.judged = self.judged.saturating_add(more.judged);
        while self.judged > REMEMBERED_PACKETS {
            self.lost /= 2;
            self.judged /= 2;
        }
    }

    fn rate(self) -> f64 {
        let enough = self.judged >= ENOUGH_JUDGED;
        if enough { (self.lost as f64 / self.judged as f64).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
