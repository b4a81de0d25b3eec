//! The next packet, put together at the moment the pacer lets it go.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use crate::lane::{Lane, RecvLane, SLOT_BYTES, Transmission};
use crate::wire::frame;
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::{MAX_RUNS, Report};

/// No more may go to an address that has not proved itself than so many times what came from it.
const ANTI_AMPLIFICATION: usize = 3;
/// The least room worth starting a new symbol in: an OPEN with the longest name fits.
const LEAST_SYMBOL_ROOM: usize = 320;

/// Which symbol goes next.
enum Pick {
    Again(Lane, Transmission),
    New(Lane),
}

impl Session {
    /// Appends the next datagram to `out` and says where it goes; `None` when nothing may leave now.
    pub fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.closes_left == 0 {
            return None;
        }
        if self.closing {
            self.closes_left -= 1;
            self.plaintext.clear();
            frame::put_close(&mut self.plaintext);
            return self.seal(false, now, out);
        }
        if let Some(to) = self.challenge_candidate(now, out) {
            return Some(to);
        }
        self.path.follow_lease(now);
        if !self.path.pacer.is_open(now) {
            return None;
        }
        self.plaintext.clear();
        let probing = self.start_probe(now);
        let asks = self.put_uncoded(now) | self.put_symbol(probing, now);
        if self.plaintext.is_empty() { None } else { self.seal(asks, now, out) }
    }

    fn challenge_candidate(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        let overhead = self.path.outer_bytes() + DATA_OVERHEAD_BYTES;
        let candidate = self.path.candidate.as_mut()?;
        if candidate.next_try > now {
            return None;
        }
        let bytes = overhead + 1 + candidate.challenge.len();
        let allowed = ANTI_AMPLIFICATION * candidate.received_bytes;
        if candidate.tries_left == 0 || candidate.sent_bytes + bytes > allowed {
            self.path.candidate = None;
            return None;
        }
        candidate.tries_left -= 1;
        candidate.sent_bytes += bytes;
        candidate.next_try = now + self.path.rtt.get();
        let to = candidate.address;
        self.plaintext.clear();
        frame::put_challenge(&mut self.plaintext, &candidate.challenge);
        self.seal(true, now, out).map(|_| to)
    }

    /// The uncoded part; `true` when it asks for an answer.
    fn put_uncoded(&mut self, now: Duration) -> bool {
        if self.reports.is_due(now)
            && let Some(report) = self.report(now)
        {
            frame::put_report(&mut self.plaintext, &report);
            self.reports.sent(self.path.rtt.get(), now);
            self.counters.reports_sent += 1;
        }
        if let Some(grant) = self.path.lease.say_grant(self.path.rtt.get(), now) {
            frame::put_grant(&mut self.plaintext, &grant);
        }
        let waiting = self.waiting_bytes(now);
        if let Some(demand) = self.path.lease.say_demand(waiting, self.path.rtt.get(), now) {
            frame::put_demand(&mut self.plaintext, &demand);
        }
        if let Some(challenge) = self.path.response.take() {
            frame::put_response(&mut self.plaintext, &challenge);
        }
        let ping = std::mem::take(&mut self.path.ping);
        if ping {
            frame::put_ping(&mut self.plaintext);
        }
        ping
    }

    fn report(&self, now: Duration) -> Option<Report> {
        let (largest, at) = self.path.largest?;
        let mut runs_left = MAX_RUNS;
        let mut lane_report = |lane: &RecvLane| {
            let report = lane.report(runs_left)?;
            runs_left -= report.runs.len();
            Some(report)
        };
        Some(Report {
            path: self.path.id,
            largest,
            age: now.saturating_sub(at),
            arrived: at,
            received: self.path.received,
            late_by: self.path.late_by(),
            lanes: self.recv.iter().filter_map(&mut lane_report).collect(),
        })
    }

    /// At most one symbol; `true` when there is one.
    fn put_symbol(&mut self, probing: bool, now: Duration) -> bool {
        let packet = self.path.next_packet();
        let room = self.path.most_plaintext() - self.plaintext.len();
        let pick = if self.quiet.is_some() {
            self.pick_probe(probing)
        } else if self.path.lease.holds_data() {
            None
        } else {
            self.pick(now)
        };
        match pick {
            Some(Pick::New(lane)) if room >= LEAST_SYMBOL_ROOM => self.put_new(lane, room, now),
            Some(Pick::Again(lane, kind)) => {
                // A symbol was built for a whole packet: beside a report it may not fit. Alone it goes
                // even where the outer headers have grown since, by a move from IPv4 to IPv6.
                let lane_state = &mut self.send[lane as usize];
                let fits = lane_state
                    .peek_len(kind)
                    .is_some_and(|(number, len)| frame::symbol_head_len(number) + len <= room);
                if !fits && !self.plaintext.is_empty() {
                    return false;
                }
                let Some((number, content)) = lane_state.take(kind, packet, now) else {
                    return false;
                };
                frame::put_symbol_head(&mut self.plaintext, lane, number);
                self.plaintext.extend_from_slice(content);
                match kind {
                    Transmission::Repair => self.counters.repairs_sent += 1,
                    Transmission::Duplicate => self.counters.duplicates_sent += 1,
                }
                true
            }
            _ => false,
        }
    }

    fn put_new(&mut self, lane: Lane, room: usize, now: Duration) -> bool {
        let number = self.send[lane as usize].next_number();
        let mut content = Vec::with_capacity(room);
        self.flows.fill(lane, room - frame::symbol_head_len(number), &mut content, now);
        if content.is_empty() {
            return false;
        }
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        content.shrink_to_fit();
        self.send[lane as usize].push(content, self.path.next_packet(), now);
        self.counters.symbols_sent += 1;
        true
    }

    /// Urgent before bulk; within a lane what is missing, then what is new, then duplicates.
    /// But urgent duplicates go before bulk, or a short transfer's tail would wait behind it.
    fn pick(&mut self, now: Duration) -> Option<Pick> {
        let [urgent, bulk] = [Lane::Urgent, Lane::Bulk];
        if self.send[urgent as usize].has(Transmission::Repair) {
            return Some(Pick::Again(urgent, Transmission::Repair));
        }
        let next = self.flows.next_lane(now);
        if next != Some(urgent) {
            self.send[urgent as usize].drained(now);
        }
        if next.is_none() {
            self.send[bulk as usize].drained(now);
        }
        if next == Some(urgent) && self.may_send_new(urgent) {
            return Some(Pick::New(urgent));
        }
        if self.send[urgent as usize].has(Transmission::Duplicate) {
            return Some(Pick::Again(urgent, Transmission::Duplicate));
        }
        if self.send[bulk as usize].has(Transmission::Repair) {
            return Some(Pick::Again(bulk, Transmission::Repair));
        }
        if next == Some(bulk) && self.may_send_new(bulk) {
            return Some(Pick::New(bulk));
        }
        let duplicates = self.send[bulk as usize].has(Transmission::Duplicate);
        duplicates.then_some(Pick::Again(bulk, Transmission::Duplicate))
    }

    /// In an outage one packet goes out at a time; `true` when it is time for it.
    fn start_probe(&mut self, now: Duration) -> bool {
        let Some(quiet) = self.quiet.as_mut().filter(|quiet| quiet.probe_at <= now) else {
            return false;
        };
        quiet.next_probe(now);
        self.path.ping = true;
        true
    }

    /// A probe carries the oldest symbol, so that its answer tells what else is missing.
    fn pick_probe(&mut self, probing: bool) -> Option<Pick> {
        let lane = Lane::ALL.into_iter().find(|&lane| !self.send[lane as usize].is_clear());
        let lane = lane.filter(|_| probing)?;
        self.send[lane as usize].probe();
        Some(Pick::Again(lane, Transmission::Repair))
    }

    pub(super) fn may_send_new(&self, lane: Lane) -> bool {
        let lane = &self.send[lane as usize];
        let longest = self.path.most_plaintext() + SLOT_BYTES;
        lane.retained_bytes() + longest <= self.lane_window() && lane.has_room()
    }

    /// Seals the plaintext as the path's next packet.
    pub(super) fn seal(
        &mut self,
        asks: bool,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let (number, before) = (self.path.next_packet(), out.len());
        if !self.keys.seal(self.path.id, number, &self.plaintext, out) {
            out.truncate(before);
            return None;
        }
        let bytes = out.len() - before + self.path.outer_bytes();
        self.path.sent(asks, bytes, now);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        Some(self.path.peer)
    }
}
