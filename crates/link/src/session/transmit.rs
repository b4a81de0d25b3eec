//! The next packet, put together at the moment the pacer lets it go.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::fragment::Outgoing;
use super::report::Pace;
use super::sent::Cargo;
use crate::Class;
use crate::flow::{Bill, Content, Filled};
use crate::lane::{Due, Fresh, Lane, Lost, RecvLane, SLOT_BYTES};
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame::{self, REPAIR_EXTRA_BYTES};
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::{MAX_RUNS, Report};

/// No more may go to an address that has not proved itself than so many times what came from it.
const ANTI_AMPLIFICATION: usize = 3;
/// The least room worth starting a new symbol in: an OPEN with the longest name fits.
const LEAST_SYMBOL_ROOM: usize = 320;

/// Room next to a report: a LEASE or a DEMAND (41 bytes), a RESPONSE (9), a SLIDE (12) and a PING
/// (1).
const BESIDE_REPORT_BYTES: usize = 63;

/// Content of a packet in addition to its uncoded part, and its payers.
type Load = (Cargo, Option<Bill>);

/// Choice for the next packet.
#[derive(Clone, Copy)]
enum Pick {
    /// A symbol that was lost.
    Lost(Lane),
    Repair(Lane),
    New(Lane),
}

impl Session {
    /// Appends the next datagram to `out` and says where it goes; `None` when nothing may leave now.
    pub fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.closes_left == 0 {
            return None;
        }
        if self.keys.is_used_up() {
            // No goodbye can be said without keys.
            self.closes_left = if self.closing { 0 } else { self.closes_left };
            self.path.pacer.pause();
            return None;
        }
        if self.closing {
            self.closes_left -= 1;
            self.plaintext.clear();
            frame::put_close(&mut self.plaintext);
            return self.seal(Cargo::default(), None, now, out);
        }
        if let Some(to) = self.challenge_candidate(now, out) {
            return Some(to);
        }
        self.path.follow_lease(now);
        if !self.path.pacer.is_open(now) {
            return None;
        }
        if let Some(to) = self.transmit_probe(now, out) {
            return Some(to);
        }
        self.plaintext.clear();
        let probing = self.start_probe(now);
        let report_bytes = self.put_report(now);
        let asks = self.put_uncoded(now);
        let uncoded = self.plaintext.len();
        let (load, bill) = self.put_load(probing, now);
        let bill = bill.map(|bill| bill.beside(uncoded));
        if self.plaintext.is_empty() {
            self.path.pacer.pause();
            return None;
        }
        if let Some(bytes) = report_bytes {
            // Beside a symbol it costs itself; alone, a packet.
            let alone = self.plaintext.len() == bytes;
            let packet = self.path.outer_bytes() + DATA_OVERHEAD_BYTES;
            self.reported((bytes + if alone { packet } else { 0 }) as u64, now);
        }
        self.path.mtu.used(self.path.bytes_of(self.plaintext.len()), now);
        self.seal(Cargo { asks: asks || load.asks, ..load }, bill, now, out)
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
        self.seal(Cargo { asks: true, ..Cargo::default() }, None, now, out).map(|_| to)
    }

    /// A report, where one is due; its length. The packet is empty before it.
    fn put_report(&mut self, now: Duration) -> Option<usize> {
        let mut report = self.reports.is_due(now).then(|| self.report(now)).flatten()?;
        frame::put_report(&mut self.plaintext, &report);
        let room = self.path.most_plaintext() - BESIDE_REPORT_BYTES;
        if self.plaintext.len() > room {
            self.plaintext.clear();
            report.shorten(room - 1);
            frame::put_report(&mut self.plaintext, &report);
        }
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
    fn put_uncoded(&mut self, now: Duration) -> bool {
        if let Some(grant) = self.path.lease.say_grant(self.path.rtt.get(), now) {
            frame::put_grant(&mut self.plaintext, &grant);
        }
        let waiting = self.flows.waiting();
        if let Some(demand) = self.path.lease.say_demand(&waiting, self.path.rtt.get(), now) {
            frame::put_demand(&mut self.plaintext, &demand);
        }
        if let Some(challenge) = self.path.response.take() {
            frame::put_response(&mut self.plaintext, &challenge);
        }
        // Nothing is lost if a peer who hears nothing is told later.
        if let Some(slide) = self.send.datagrams.slide().filter(|_| self.quiet.is_none()) {
            frame::put_slide(&mut self.plaintext, slide);
            self.send.datagrams.slid(self.path.next_packet());
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
            arrived: at,
            late_by: self.path.arrivals.late_by(now),
            packets: self.path.arrivals.to_report(),
            marked: self.path.marked,
            lanes: self.recv.iter().filter_map(&mut lane_report).collect(),
        })
    }

    /// At most one symbol or repair, and who pays for it.
    fn put_load(&mut self, probing: bool, now: Duration) -> Load {
        // In an outage the probes have their own pace.
        if self.quiet.is_none() && !self.path.takes_more() {
            self.held_back(now);
            return Load::default();
        }
        let room = self.path.most_plaintext().saturating_sub(self.plaintext.len());
        // Large packets may be vanishing: what the peer needs to know goes by itself.
        if !self.plaintext.is_empty() && !probing && self.path.mtu.is_in_doubt() {
            return Load::default();
        }
        if self.fragments.is_some() {
            return self.put_fragment(room);
        }
        let pick = if self.quiet.is_some() { self.pick_probe(probing) } else { self.pick(now) };
        match pick {
            Some(Pick::New(Lane::Datagram)) => self.put_datagrams(room, now),
            Some(Pick::New(lane)) if room >= LEAST_SYMBOL_ROOM => self.put_new(lane, room, now),
            Some(Pick::Lost(lane)) => self.put_again(lane, room, now),
            Some(Pick::Repair(lane)) => self.put_repair(lane, room, now),
            _ => Load::default(),
        }
    }

    /// A symbol was built for a whole packet: beside a report it may not fit. Alone it goes in
    /// fragments where packets have become smaller since.
    fn put_again(&mut self, lane: Lane, room: usize, now: Duration) -> Load {
        let state = self.send.get(lane);
        let Some(Lost { number, len, class }) = state.peek(now) else { return Load::default() };
        let fits = frame::symbol_head_len(number) + len <= room;
        if !fits && !self.plaintext.is_empty() {
            return Load::default();
        }
        let packet = self.path.next_packet();
        let Some((number, content)) = state.take(packet, now) else { return Load::default() };
        self.counters.retransmissions_sent += 1;
        self.counters.retransmission_bytes += content.len() as u64;
        let mut body = Vec::with_capacity(room.max(content.len() + MAX_VARINT_BYTES + 1));
        frame::put_symbol_head(&mut body, lane, number);
        body.extend_from_slice(content);
        if body.len() <= room {
            self.plaintext.extend_from_slice(&body);
            return (Cargo::of(lane, number), Some(Bill::of(class)));
        }
        self.fragments = Some(Outgoing::new(body, class, packet, room));
        self.put_fragment(room)
    }

    /// Puts the next fragment of the symbol that has begun to leave. No packet's fate tells the
    /// symbol's: it is judged by its lane alone.
    fn put_fragment(&mut self, room: usize) -> Load {
        let Some(fragments) = &mut self.fragments else { return Load::default() };
        let put = fragments.put_next(room, &mut self.plaintext);
        let bill = put.then(|| Bill::of(fragments.class));
        self.counters.fragments_sent += u64::from(put);
        // One cut for larger packets than there are now is dropped: it counts as lost.
        if fragments.is_done() || (!put && self.plaintext.is_empty()) {
            self.fragments = None;
        }
        (Cargo { asks: put, ..Cargo::default() }, bill)
    }

    fn put_repair(&mut self, lane: Lane, room: usize, now: Duration) -> Load {
        let state = self.send.get(lane);
        let Some(Due { span, len, class }) = state.peek_repair(now) else { return Load::default() };
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
        (Cargo { asks: true, ..Cargo::default() }, Some(Bill::of(class)))
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
        let number = self.send.next_number(lane);
        // A repair of this symbol has to fit into a packet too.
        let room = room - frame::symbol_head_len(number) - REPAIR_EXTRA_BYTES;
        let mut content = Vec::with_capacity(room);
        let Content { ended, bill } = self.flows.fill(lane, room, &mut content, now);
        if content.is_empty() {
            return Load::default();
        }
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        content.shrink_to_fit();
        self.counters.symbols_sent += 1;
        self.counters.symbol_bytes += content.len() as u64;
        let state = &mut self.send.reliable[lane as usize];
        state.push(content, bill.class, self.path.next_packet(), now);
        if let Some(class) = ended {
            state.ended(class, now);
        }
        (Cargo::of(lane, number), Some(bill))
    }

    /// Datagrams that do not fit beside a report wait for the next packet.
    fn put_datagrams(&mut self, room: usize, now: Duration) -> Load {
        let lane = Lane::Datagram;
        let number = self.send.next_number(lane);
        let heads = frame::symbol_head_len(number) + REPAIR_EXTRA_BYTES;
        let Some(room) = room.checked_sub(heads) else { return Load::default() };
        let whole = self.plaintext.is_empty();
        let mut content = Vec::with_capacity(room);
        let Some(filled) = self.flows.fill_datagrams(room, whole, &mut content, now) else {
            return Load::default();
        };
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        content.shrink_to_fit();
        self.counters.symbols_sent += 1;
        self.counters.symbol_bytes += content.len() as u64;
        let (packet, most_bytes) = (self.path.next_packet(), self.lane_window());
        let Filled { datagrams, bill, expires } = filled;
        let fresh = Fresh { content, datagrams, class: bill.class, expires };
        self.send.datagrams.push(fresh, packet, most_bytes, now, &self.rule);
        if !self.flows.has_datagrams() {
            self.send.datagrams.ended(now);
        }
        (Cargo::of(lane, number), Some(bill))
    }

    /// Urgent before datagrams before bulk, unless it is the turn of a flow of another lane; and
    /// within a lane what was lost, then repairs, then what is new, since what left first is waited
    /// for longest. What is sent again of a more favoured class goes before that of others.
    fn pick(&mut self, now: Duration) -> Option<Pick> {
        let next = self.next_lane(now);
        for lane in Lane::RELIABLE {
            let state = &mut self.send.reliable[lane as usize];
            if let Some(class) = self.flows.ended_since(lane) {
                state.ended(class, now);
            }
            if state.wants_protection(next == Some(lane), now, &self.rule) {
                state.protect(now, &mut self.rule);
            }
        }
        let class = next.and_then(|_| self.flows.next_class(now));
        let new = next.zip(class);
        let again = [Lane::Urgent, Lane::Datagram].map(|lane| self.pick_again(lane, now));
        // The first of those that are equal.
        let again = again.into_iter().flatten().min_by_key(|(_, class)| *class);
        if let Some((pick, class)) = again
            && !new.is_some_and(|new| self.leads(new, pick, class, now))
        {
            self.repair_waits = false;
            return Some(pick);
        }
        match new {
            Some((Lane::Urgent, _)) => return Some(Pick::New(Lane::Urgent)),
            Some((Lane::Datagram, class)) if again.is_some() || class <= Class::Network => {
                return Some(Pick::New(Lane::Datagram));
            }
            _ => {}
        }
        let again = self.pick_again(Lane::Bulk, now).map(|(pick, _)| pick);
        again.or(next.map(Pick::New))
    }

    /// Returns `true` if new data goes before a retransmission of `class`. New bytes that must
    /// never wait go before all of less favoured classes, as far as the classes' shares allow.
    /// Those of passengers who have just begun go before what is no more favoured, every other time
    /// at most. Urgent ones go before datagrams.
    fn leads(&mut self, new: (Lane, Class), pick: Pick, class: Class, now: Duration) -> bool {
        let (lane, new) = new;
        if new <= Class::Network && new < class && self.flows.precedes(class, now) {
            return true;
        }
        if lane == Lane::Bulk || new > class {
            return false;
        }
        if matches!(pick, Pick::Lost(Lane::Datagram) | Pick::Repair(Lane::Datagram)) {
            return lane == Lane::Urgent;
        }
        if self.repair_waits || !self.flows.next_is_new(now) {
            return false;
        }
        self.repair_waits = true;
        true
    }

    /// Retransmission that the lane has to send, and its class.
    fn pick_again(&mut self, lane: Lane, now: Duration) -> Option<(Pick, Class)> {
        let state = self.send.get(lane);
        let lost = state.peek(now).map(|lost| (Pick::Lost(lane), lost.class));
        lost.or_else(|| state.repair_class(now).map(|class| (Pick::Repair(lane), class)))
    }

    /// In an outage one packet goes out at a time; `true` when it is time for it.
    fn start_probe(&mut self, now: Duration) -> bool {
        let Some(quiet) = self.quiet.as_mut().filter(|quiet| quiet.probe_at <= now) else {
            return false;
        };
        quiet.next_probe(now);
        self.path.ping = true;
        // The silence may be that of large packets only: every other probe is small then.
        quiet.bare = !quiet.bare && self.path.mtu.is_in_doubt();
        !quiet.bare
    }

    /// A probe carries the oldest symbol, so that its answer tells what else is missing.
    fn pick_probe(&mut self, probing: bool) -> Option<Pick> {
        let clear = |lane: Lane| self.send.reliable[lane as usize].is_clear();
        let lane = Lane::RELIABLE.into_iter().find(|&lane| !clear(lane));
        let lane = lane.filter(|_| probing)?;
        self.send.reliable[lane as usize].probe_oldest();
        Some(Pick::Lost(lane))
    }

    /// The lane of the next new symbol; flows of lanes that are full keep nobody else waiting.
    pub(super) fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        self.flows.tell_room(Lane::ALL.map(|lane| self.may_send_new(lane)), now);
        self.flows.next_lane(now)
    }

    fn may_send_new(&self, lane: Lane) -> bool {
        let Some(lane) = self.send.reliable.get(lane as usize) else {
            return self.send.datagrams.has_room();
        };
        let longest = self.path.most_plaintext() + SLOT_BYTES;
        lane.retained_bytes() + longest <= self.lane_window() && lane.has_room()
    }

    /// Seals the plaintext as the path's next packet; `bill` says who pays for it, if anybody does:
    /// what nobody pays for is the network's own.
    pub(super) fn seal(
        &mut self,
        cargo: Cargo,
        bill: Option<Bill>,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let (number, before) = (self.path.next_packet(), out.len());
        if !self.keys.seal(self.path.id, number, &self.plaintext, out) {
            out.truncate(before);
            return None;
        }
        let bytes = out.len() - before + self.path.outer_bytes();
        self.dscp = bill.map_or(Class::Network, |bill| bill.best).dscp();
        if let Some(bill) = bill {
            self.flows.charge(bill.class, bytes.saturating_sub(bill.paid), now);
        }
        self.path.sent(cargo, bytes, bill.map(|bill| bill.class), now);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        Some(self.path.peer)
    }
}
