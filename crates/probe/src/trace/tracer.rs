//! The machine of a traceroute: one TTL at a time, without sockets and clocks.
//!
//! An unprivileged socket learns which probe an error belongs to only if the router quotes the probe's data,
//! and RFC 792 asks for 8 bytes of it at least. Because all probes in flight have the same TTL, the hop is
//! certain even then.

use std::net::IpAddr;
use std::time::Duration;

use super::{Hop, MAX_TTL, PROBES, Probe, ReplyKind, TraceEnd};

/// Gap between the probes of a TTL, so that a short queue takes them all.
const GAP: Duration = Duration::from_millis(50);

/// Wait for a reply: 2.4 times the mean round-trip time of the slowest satellite in Mile High WiFi, 1.1 s plus
/// a deviation of 0.15 s. Nine silent hops cost 28 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// Silent TTLs in a row after which the path is dead.
const MAX_SILENT: u8 = 5;

/// Step of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a probe now.
    Send {
        /// TTL.
        ttl: u8,
        /// Number of the probe, unique within the traceroute.
        number: u16,
    },
    /// Wait for a reply until then.
    Wait(Duration),
    /// The traceroute has ended; see [`Tracer::finish`].
    Done,
}

/// A reply as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Duration,
    /// Sender.
    pub from: IpAddr,
    /// Meaning.
    pub kind: ReplyKind,
    /// Number of the probe, if the reply quotes it.
    pub number: Option<u16>,
}

/// State of one traceroute.
#[derive(Debug)]
pub struct Tracer {
    done: Vec<Hop>,
    ttl: u8,
    probes: Vec<InFlight>,
    end: Option<TraceEnd>,
}

#[derive(Clone, Debug)]
struct InFlight {
    sent: Duration,
    fate: Option<Probe>,
}

impl Default for Tracer {
    fn default() -> Self {
        Self { done: Vec::new(), ttl: 1, probes: Vec::new(), end: None }
    }
}

impl Tracer {
    /// The step at `now`.
    pub fn step(&mut self, now: Duration) -> Step {
        loop {
            if self.end.is_some() {
                return Step::Done;
            }
            let sent = self.probes.len();
            if sent < usize::from(PROBES) {
                let due = self.probes.last().map_or(Duration::ZERO, |last| last.sent + GAP);
                if now < due {
                    return Step::Wait(due);
                }
                self.probes.push(InFlight { sent: now, fate: None });
                return Step::Send { ttl: self.ttl, number: number(self.ttl, sent as u8) };
            }
            let open = self.probes.iter().filter(|probe| probe.fate.is_none());
            if let Some(until) = open.map(|probe| probe.sent + PATIENCE).max()
                && now < until
            {
                return Step::Wait(until);
            }
            self.finish_hop();
        }
    }

    /// Notes that the kernel refused the probe that [`Step::Send`] asked for last.
    pub fn failed(&mut self, failure: String) {
        if let Some(last) = self.probes.last_mut() {
            last.fate = Some(Probe::Failed { failure });
        }
    }

    /// Notes a reply. Replies to other probes than those of the current TTL are too late and are dropped.
    pub fn arrived(&mut self, arrival: Arrival) {
        let ttl = self.ttl;
        let index = match arrival.number {
            Some(quoted) => {
                (0..PROBES).find(|index| number(ttl, *index) == quoted).map(usize::from)
            }
            // Nothing is quoted. A sender of an earlier hop is late; any other answers the oldest probe.
            None if self.is_earlier(arrival.from) => None,
            None => self.probes.iter().position(|probe| probe.fate.is_none()),
        };
        let Some(probe) = index.and_then(|index| self.probes.get_mut(index)) else { return };
        if probe.fate.is_none() {
            let rtt_us = crate::micros(arrival.at.saturating_sub(probe.sent));
            probe.fate = Some(Probe::Reply { from: arrival.from, rtt_us, kind: arrival.kind });
        }
    }

    /// Hops and end.
    pub fn finish(self) -> (Vec<Hop>, TraceEnd) {
        let after_ttl = last_answering(&self.done);
        let mut hops = self.done;
        // The silent hops at the end say only that the path died.
        hops.truncate(usize::from(after_ttl) + 1);
        (hops, self.end.unwrap_or(TraceEnd::Died { after_ttl }))
    }

    fn is_earlier(&self, from: IpAddr) -> bool {
        let replies = self.done.iter().flat_map(|hop| &hop.probes);
        replies
            .into_iter()
            .any(|probe| matches!(probe, Probe::Reply { from: known, .. } if *known == from))
    }

    fn finish_hop(&mut self) {
        let probes: Vec<Probe> =
            self.probes.drain(..).map(|probe| probe.fate.unwrap_or(Probe::Silent)).collect();
        let has = |wanted| {
            probes.iter().any(|probe| matches!(probe, Probe::Reply { kind, .. } if *kind == wanted))
        };
        if has(ReplyKind::Reached) {
            self.end = Some(TraceEnd::Reached);
        } else if has(ReplyKind::Unreachable) {
            self.end = Some(TraceEnd::Refused);
        }
        self.done.push(Hop { ttl: self.ttl, probes });
        let last = last_answering(&self.done);
        if self.end.is_none() && (self.ttl - last >= MAX_SILENT || self.ttl == MAX_TTL) {
            self.end = Some(TraceEnd::Died { after_ttl: last });
        }
        self.ttl += 1;
    }
}

/// Number of a probe.
fn number(ttl: u8, index: u8) -> u16 {
    u16::from(ttl) * u16::from(PROBES) + u16::from(index)
}

fn last_answering(hops: &[Hop]) -> u8 {
    hops.iter().rev().find(|hop| hop.fastest().is_some()).map_or(0, |hop| hop.ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A path of routers: `rtts_ms[k]` is the round-trip time to hop k + 1, `None` if it is silent.
    struct Path {
        rtts_ms: Vec<Option<u32>>,
        quotes: bool,
    }

    impl Path {
        fn reply(&self, ttl: u8, number: u16, now: Duration) -> Option<Arrival> {
            let index = usize::from(ttl) - 1;
            let target = self.rtts_ms.len() - 1;
            let rtt = (*self.rtts_ms.get(index.min(target))?)?;
            let kind = if index >= target { ReplyKind::Reached } else { ReplyKind::TimeExceeded };
            let from = IpAddr::from([10, 0, 0, index as u8 + 1]);
            Some(Arrival { at: now + rtt * MS, from, kind, number: self.quotes.then_some(number) })
        }

        /// Runs a traceroute in virtual time; `lost` loses probes by number.
        fn trace(&self, lost: &[u16]) -> (Vec<Hop>, TraceEnd, Duration) {
            let mut tracer = Tracer::default();
            let (mut now, mut flying) = (Duration::ZERO, Vec::<Arrival>::new());
            loop {
                flying.sort_by_key(|arrival| std::cmp::Reverse(arrival.at));
                match tracer.step(now) {
                    Step::Done => break,
                    Step::Send { ttl, number } => {
                        let reply = self.reply(ttl, number, now);
                        flying.extend(reply.filter(|_| !lost.contains(&number)));
                    }
                    Step::Wait(until) => match flying.pop_if(|next| next.at <= until) {
                        Some(arrival) => {
                            now = now.max(arrival.at);
                            tracer.arrived(arrival);
                        }
                        None => now = until,
                    },
                }
            }
            let (hops, end) = tracer.finish();
            (hops, end, now)
        }
    }

    fn rtts(hops: &[Hop]) -> Vec<Option<u64>> {
        hops.iter().map(|hop| hop.fastest().map(|(_, rtt)| rtt / 1000)).collect()
    }

    #[test]
    fn eight_hops_with_all_round_trip_times() {
        for quotes in [true, false] {
            let rtts_ms = [2, 3, 600, 610, 620, 630, 640, 650].map(Some).to_vec();
            let (hops, end, took) = Path { rtts_ms, quotes }.trace(&[]);
            assert_eq!(end, TraceEnd::Reached);
            let expected = [2, 3, 600, 610, 620, 630, 640, 650].map(Some);
            assert_eq!(rtts(&hops), expected);
            assert!(hops.iter().all(|hop| hop.probes.len() == 3));
            assert!(hops.iter().all(|hop| !hop.probes.contains(&Probe::Silent)));
            assert!(took < Duration::from_secs(6), "{took:?}");
        }
    }

    #[test]
    fn a_path_dies_after_the_last_hop_that_answered() {
        let rtts_ms = vec![Some(2), None, Some(600), None, None, None, None, None, None];
        let (hops, end, _) = Path { rtts_ms, quotes: true }.trace(&[]);
        assert_eq!(end, TraceEnd::Died { after_ttl: 3 });
        assert_eq!(rtts(&hops), [Some(2), None, Some(600), None], "with one silent hop to show it");
        let (hops, end, _) = Path { rtts_ms: vec![None; 40], quotes: true }.trace(&[]);
        assert_eq!((hops.len(), end), (1, TraceEnd::Died { after_ttl: 0 }));
    }

    #[test]
    fn a_lost_probe_leaves_the_others() {
        let (hops, end, _) = Path { rtts_ms: [5, 9].map(Some).to_vec(), quotes: true }.trace(&[4]);
        assert_eq!(end, TraceEnd::Reached);
        assert_eq!(hops[0].probes[1], Probe::Silent);
        assert_eq!(hops[0].fastest().unwrap().1, 5000);
    }

    #[test]
    fn late_replies_do_not_count_for_another_hop() {
        let mut tracer = Tracer::default();
        let router = IpAddr::from([10, 0, 0, 1]);
        let reply =
            |at, number| Arrival { at, from: router, kind: ReplyKind::TimeExceeded, number };
        for k in 0..3 {
            assert!(matches!(tracer.step(k * 50 * MS), Step::Send { ttl: 1, .. }));
        }
        tracer.arrived(reply(120 * MS, Some(3)));
        assert!(matches!(tracer.step(4000 * MS), Step::Send { ttl: 2, number: 6 }));
        tracer.arrived(reply(4001 * MS, Some(4)));
        tracer.arrived(reply(4001 * MS, None));
        assert!(tracer.probes[0].fate.is_none());
    }
}
