//! The next packet, put together at the moment the pacer lets it go.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::report::Pace;
use crate::lane::{Lane, RecvLane, SLOT_BYTES, SendLane};
use crate::wire::frame::{self, REPAIR_EXTRA_BYTES};
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::{MAX_RUNS, Report};

/// No more may go to an address that has not proved itself than so many times what came from it.
const ANTI_AMPLIFICATION: usize = 3;
/// The least room worth starting a new symbol in: an OPEN with the longest name fits.
const LEAST_SYMBOL_ROOM: usize = 320;

/// What fills the next packet.
#[derive(Clone, Copy)]
enum Pick {
    /// A symbol that was lost.
    Lost(Lane),
    Repair(Lane),
    New(Lane),
}

/// What a packet carries beside its uncoded part.
#[derive(Default)]
struct Load {
    /// The symbol, new or again.
    symbol: Option<(Lane, u64)>,
    /// It asks for a report.
    asks: bool,
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
            return self.seal(None, false, now, out);
        }
        if let Some(to) = self.challenge_candidate(now, out) {
            return Some(to);
        }
        if !self.path.pacer.is_open(now) {
            return None;
        }
        self.plaintext.clear();
        let probing = self.start_probe(now);
        let report_bytes = self.put_report(now);
        let asks = self.put_uncoded();
        let load = self.put_load(probing, now);
        if self.plaintext.is_empty() {
            return None;
        }
        if let Some(bytes) = report_bytes {
            // Beside a symbol it costs itself; alone, a packet.
            let alone = self.plaintext.len() == bytes;
            let packet = self.path.outer_bytes() + DATA_OVERHEAD_BYTES;
            self.reported((bytes + if alone { packet } else { 0 }) as u64, now);
        }
        self.seal(load.symbol, asks || load.asks, now, out)
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
        self.seal(None, true, now, out).map(|_| to)
    }

    /// A report, where one is due; its length.
    fn put_report(&mut self, now: Duration) -> Option<usize> {
        let report = self.reports.is_due(now).then(|| self.report(now)).flatten()?;
        frame::put_report(&mut self.plaintext, &report);
        Some(self.plaintext.len())
    }

    fn reported(&mut self, bytes: u64, now: Duration) {
        self.reports.sent(bytes, self.pace(), now);
        self.path.arrivals.reported();
        self.counters.reports_sent += 1;
        self.counters.report_bytes += bytes;
    }

    pub(super) fn pace(&self) -> Pace {
        let (our_rate, peers_rate) = (self.path.pacer.rate(), self.peer.rate);
        Pace { rtt: self.path.rtt.get(), our_rate, peers_rate }
    }

    /// The rest of the uncoded part; `true` when it asks for an answer.
    fn put_uncoded(&mut self) -> bool {
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
        let (largest, at) = self.path.arrivals.newest()?;
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
            late_by: self.path.arrivals.late_by(),
            packets: self.path.arrivals.to_report(),
            marked: self.path.marked,
            lanes: self.recv.iter().filter_map(&mut lane_report).collect(),
        })
    }

    /// At most one symbol or repair.
    fn put_load(&mut self, probing: bool, now: Duration) -> Load {
        // In an outage the probes have their own pace.
        if self.quiet.is_none() && !self.path.takes_more() {
            self.held_back(now);
            return Load::default();
        }
        let room = self.path.most_plaintext() - self.plaintext.len();
        let pick = if self.quiet.is_some() { self.pick_probe(probing) } else { self.pick(now) };
        match pick {
            Some(Pick::New(lane)) if room >= LEAST_SYMBOL_ROOM => self.put_new(lane, room, now),
            Some(Pick::Lost(lane)) => self.put_again(lane, room, now),
            Some(Pick::Repair(lane)) => self.put_repair(lane, room, now),
            _ => Load::default(),
        }
    }

    /// A symbol was built for a whole packet: beside a report it may not fit. Alone it goes even
    /// where the outer headers have grown since, by a move from IPv4 to IPv6.
    fn put_again(&mut self, lane: Lane, room: usize, now: Duration) -> Load {
        let state = &mut self.send[lane as usize];
        let fits = state
            .peek_len()
            .is_some_and(|(number, len)| frame::symbol_head_len(number) + len <= room);
        if !fits && !self.plaintext.is_empty() {
            return Load::default();
        }
        let packet = self.path.next_packet();
        let Some((number, content)) = state.take(packet, now) else { return Load::default() };
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(content);
        self.counters.retransmissions_sent += 1;
        self.counters.retransmission_bytes += content.len() as u64;
        Load { symbol: Some((lane, number)), asks: true }
    }

    fn put_repair(&mut self, lane: Lane, room: usize, now: Duration) -> Load {
        let state = &mut self.send[lane as usize];
        let Some((span, len)) = state.peek_repair() else { return Load::default() };
        if frame::repair_head_len(span) + len > room {
            if self.plaintext.is_empty() {
                state.give_up_repair();
            }
            return Load::default();
        }
        frame::put_repair_head(&mut self.plaintext, lane, span);
        state.take_repair(span, self.path.next_packet(), now, &mut self.plaintext);
        self.counters.repairs_sent += 1;
        self.counters.repair_bytes += len as u64;
        Load { symbol: None, asks: true }
    }

    /// The congestion window is full. It may grow only where it kept something from leaving.
    fn held_back(&mut self, now: Duration) {
        if self.has_symbols(now)
            && let Some(congestion) = &mut self.path.congestion
        {
            congestion.held_back(now);
        }
    }

    fn put_new(&mut self, lane: Lane, room: usize, now: Duration) -> Load {
        let number = self.send[lane as usize].next_number();
        // A repair of this symbol has to fit into a packet too.
        let room = room - frame::symbol_head_len(number) - REPAIR_EXTRA_BYTES;
        let mut content = Vec::with_capacity(room);
        let ended = self.flows.fill(lane, room, &mut content, now);
        if content.is_empty() {
            return Load::default();
        }
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        content.shrink_to_fit();
        self.counters.symbols_sent += 1;
        self.counters.symbol_bytes += content.len() as u64;
        self.send[lane as usize].push(content, self.path.next_packet(), now);
        if let Some(class) = ended {
            self.send[lane as usize].ended(class, now);
        }
        Load { symbol: Some((lane, number)), asks: true }
    }

    /// Urgent before bulk, unless it is the turn of a flow with bulk; and within a lane what was
    /// lost, then repairs, then what is new, since what left first is waited for longest.
    fn pick(&mut self, now: Duration) -> Option<Pick> {
        let [urgent, bulk] = [Lane::Urgent, Lane::Bulk];
        let again = |lane: Lane, state: &mut SendLane| {
            let lost = state.has_lost().then_some(Pick::Lost(lane));
            lost.or_else(|| state.has_repair().then_some(Pick::Repair(lane)))
        };
        let next = self.flows.next_lane(now).filter(|&lane| self.may_send_new(lane));
        for lane in Lane::ALL {
            let state = &mut self.send[lane as usize];
            if state.wants_protection(next == Some(lane), now, &self.rule) {
                state.protect(now, &mut self.rule);
            }
        }
        if let Some(pick) = again(urgent, &mut self.send[urgent as usize]) {
            return Some(pick);
        }
        if next == Some(urgent) {
            return Some(Pick::New(urgent));
        }
        again(bulk, &mut self.send[bulk as usize]).or(next.map(Pick::New))
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
        self.send[lane as usize].probe_oldest();
        Some(Pick::Lost(lane))
    }

    pub(super) fn may_send_new(&self, lane: Lane) -> bool {
        let lane = &self.send[lane as usize];
        let longest = self.path.most_plaintext() + SLOT_BYTES;
        lane.retained_bytes() + longest <= self.lane_window() && lane.has_room()
    }

    /// Seals the plaintext as the path's next packet.
    pub(super) fn seal(
        &mut self,
        symbol: Option<(Lane, u64)>,
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
        self.path.sent(symbol, asks, bytes, now);
        self.path.pacer.spend(bytes);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        Some(self.path.peer)
    }
}
