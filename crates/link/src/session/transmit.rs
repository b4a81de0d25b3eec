//! The next packet, composed when the pacer releases it.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::fragment::Outgoing;
use super::report::Pace;
use super::sent::SentContents;
use crate::Class;
use crate::flow::{Content, Filled, PacketCharge};
use crate::lane::{Due, Lane, Lost, NewSymbol, RecvLane, SLOT_BYTES};
use crate::spare;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::curve::MAX_CURVE_BYTES;
use crate::wire::frame::{self, PADDING, REPAIR_EXTRA_BYTES};
use crate::wire::header::DATA_OVERHEAD_BYTES;
use crate::wire::report::{MAX_RUNS, Report};

/// Maximum bytes sent to an unproven address, relative to the bytes received from it.
const ANTI_AMPLIFICATION: usize = 3;
/// Minimum room for a new symbol: an OPEN with the longest name fits.
const MIN_SYMBOL_ROOM: usize = 320;

/// Room reserved next to a report: a LEASE or a DEMAND (41 bytes), a RESPONSE (9), a SLIDE (12) and
/// a PING (1).
const NEXT_TO_REPORT_BYTES: usize = 63;

/// Contents of a packet besides its uncoded part, and their charge.
type PacketContents = (SentContents, Option<PacketCharge>);

/// Choice for the next packet.
#[derive(Clone, Copy)]
enum NextSend {
    /// A retransmission.
    Lost(Lane),
    Repair(Lane),
    New(Lane),
}

impl Session {
    /// Appends the next datagram to `out` and returns its destination; `None` if none may be sent
    /// now.
    pub fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.closes_left == 0 {
            return None;
        }
        if self.keys.is_used_up() {
            // Without keys, no CLOSE can be sent.
            self.closes_left = if self.closing { 0 } else { self.closes_left };
            self.path.pacer.pause();
            return None;
        }
        if self.closing {
            self.closes_left -= 1;
            self.plaintext.clear();
            frame::put_close(&mut self.plaintext);
            return self.seal(SentContents::default(), None, now, out);
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
        let (contents, charge) = self.put_contents(probing, now);
        let charge = charge.map(|charge| charge.with_uncoded(uncoded));
        let contents = self.pad(contents, now);
        if self.plaintext.is_empty() {
            self.path.pacer.pause();
            return None;
        }
        if let Some(bytes) = report_bytes {
            // Next to a symbol, a report costs its own bytes; alone, a whole packet.
            let alone = self.plaintext.len() == bytes;
            let packet = self.path.outer_bytes() + DATA_OVERHEAD_BYTES;
            self.reported((bytes + if alone { packet } else { 0 }) as u64, now);
        }
        self.path.mtu.used(self.path.bytes_of(self.plaintext.len()), now);
        self.seal(SentContents { asks: asks || contents.asks, ..contents }, charge, now, out)
    }

    /// Fills an empty packet with padding if the rate is to be learned and nothing else waits.
    fn pad(&mut self, contents: SentContents, now: Duration) -> SentContents {
        let may_load = self.outage.is_none() && self.path.takes_more(now);
        if !self.plaintext.is_empty() || !may_load || !self.path.lease.wants_padding(now) {
            return contents;
        }
        frame::put_ping(&mut self.plaintext);
        self.plaintext.resize(self.path.max_plaintext(), PADDING);
        SentContents { asks: true, padding: true, ..contents }
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
        self.seal(SentContents { asks: true, ..SentContents::default() }, None, now, out)
            .map(|_| to)
    }

    /// Puts a report if one is due, into the empty packet. Returns its length.
    fn put_report(&mut self, now: Duration) -> Option<usize> {
        let mut report = self.reports.is_due(now).then(|| self.report(now)).flatten()?;
        frame::put_report(&mut self.plaintext, &report);
        let curve = self.path.recorder.curve(report.largest).filter(|_| self.peer_learns());
        let beside = curve.as_ref().map_or(0, |_| MAX_CURVE_BYTES) + NEXT_TO_REPORT_BYTES;
        let room = self.path.max_plaintext() - beside;
        if self.plaintext.len() > room {
            self.plaintext.clear();
            report.shorten(room - 1);
            frame::put_report(&mut self.plaintext, &report);
        }
        if let Some(curve) = curve {
            frame::put_curve(&mut self.plaintext, &curve);
        }
        Some(self.plaintext.len())
    }

    fn reported(&mut self, bytes: u64, now: Duration) {
        self.reports.sent(bytes, self.pace(), now);
        self.path.arrivals.reported();
        self.path.recorder.reported();
        self.counters.reports_sent += 1;
        self.counters.report_bytes += bytes;
    }

    pub(super) fn pace(&self) -> Pace {
        let (our_rate, peers_rate) = (self.path.pacer.rate(), self.peers_rate());
        Pace { rtt: self.path.rtt.get(), our_rate, peers_rate }
    }

    /// Puts the rest of the uncoded part. Returns `true` if it requests a report.
    fn put_uncoded(&mut self, now: Duration) -> bool {
        if let Some(grant) = self.path.lease.next_grant(self.path.rtt.get(), now) {
            frame::put_grant(&mut self.plaintext, &grant);
        }
        if self.path.lease.is_client() {
            let waiting = self.flows.waiting();
            if let Some(demand) = self.path.lease.next_demand(&waiting, self.path.rtt.get(), now) {
                frame::put_demand(&mut self.plaintext, &demand);
            }
        }
        if let Some(challenge) = self.path.response.take() {
            frame::put_response(&mut self.plaintext, &challenge);
        }
        // A SLIDE may wait for the end of an outage.
        if let Some(slide) = self.send.datagrams.slide().filter(|_| self.outage.is_none()) {
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

    /// Puts at most one symbol or repair. Returns it with its charge.
    fn put_contents(&mut self, probing: bool, now: Duration) -> PacketContents {
        // In an outage, probes have their own pace.
        if self.outage.is_none() && !self.path.takes_more(now) {
            self.held_back(now);
            return PacketContents::default();
        }
        let room = self.path.max_plaintext().saturating_sub(self.plaintext.len());
        // Large packets may be vanishing, so that the uncoded part is sent by itself.
        if !self.plaintext.is_empty() && !probing && self.path.mtu.is_in_doubt() {
            return PacketContents::default();
        }
        if self.fragments.is_some() {
            return self.put_fragment(room);
        }
        let choose =
            if self.outage.is_some() { self.choose_probe(probing) } else { self.choose(now) };
        match choose {
            Some(NextSend::New(Lane::Datagram)) => self.put_datagrams(room, now),
            Some(NextSend::New(lane)) if room >= MIN_SYMBOL_ROOM => self.put_new(lane, room, now),
            Some(NextSend::Lost(lane)) => self.put_retransmission(lane, room, now),
            Some(NextSend::Repair(lane)) => self.put_repair(lane, room, now),
            _ => PacketContents::default(),
        }
    }

    /// Retransmits a symbol, which was built for a whole packet and may not fit next to a report.
    /// If packets have become smaller, it is sent alone and in fragments.
    fn put_retransmission(&mut self, lane: Lane, room: usize, now: Duration) -> PacketContents {
        let state = self.send.get(lane);
        let Some(Lost { number, len, class }) = state.peek(now) else {
            return PacketContents::default();
        };
        let fits = frame::symbol_head_len(number) + len <= room;
        if !fits && !self.plaintext.is_empty() {
            return PacketContents::default();
        }
        let packet = self.path.next_packet();
        let Some((number, content)) = state.take(packet, now) else {
            return PacketContents::default();
        };
        self.counters.retransmissions_sent += 1;
        self.counters.retransmission_bytes += content.len() as u64;
        let mut body = Vec::with_capacity(room.max(content.len() + MAX_VARINT_BYTES + 1));
        frame::put_symbol_head(&mut body, lane, number);
        body.extend_from_slice(content);
        if body.len() <= room {
            self.plaintext.extend_from_slice(&body);
            return (SentContents::of(lane, number), Some(PacketCharge::of(class)));
        }
        self.fragments = Some(Outgoing::new(body, class, packet, room));
        self.put_fragment(room)
    }

    /// Puts the next fragment of a symbol. The outcome of a fragment's packet is not the symbol's,
    /// which its lane judges.
    fn put_fragment(&mut self, room: usize) -> PacketContents {
        let Some(fragments) = &mut self.fragments else { return PacketContents::default() };
        let put = fragments.put_next(room, &mut self.plaintext);
        let charge = put.then(|| PacketCharge::of(fragments.class));
        self.counters.fragments_sent += u64::from(put);
        // A symbol cut for larger packets than the present ones is dropped, and counts as lost.
        if fragments.is_done() || (!put && self.plaintext.is_empty()) {
            self.fragments = None;
        }
        (SentContents { asks: put, ..SentContents::default() }, charge)
    }

    fn put_repair(&mut self, lane: Lane, room: usize, now: Duration) -> PacketContents {
        let state = self.send.get(lane);
        let Some(Due { span, len, class }) = state.peek_repair(now) else {
            return PacketContents::default();
        };
        if frame::repair_head_len(span) + len > room {
            if self.plaintext.is_empty() {
                state.give_up_repair();
            }
            return PacketContents::default();
        }
        frame::put_repair_head(&mut self.plaintext, lane, span);
        state.take_repair(span, self.path.next_packet(), now, &mut self.plaintext);
        self.counters.repairs_sent += 1;
        self.counters.repair_bytes += len as u64;
        (SentContents { asks: true, ..SentContents::default() }, Some(PacketCharge::of(class)))
    }

    /// Notes that the congestion window is full: it may grow only if it delayed something.
    fn held_back(&mut self, now: Duration) {
        if self.has_symbols(now)
            && let Some(congestion) = &mut self.path.congestion
        {
            congestion.held_back(now);
        }
    }

    fn put_new(&mut self, lane: Lane, room: usize, now: Duration) -> PacketContents {
        let number = self.send.next_number(lane);
        // A repair of this symbol has to fit into a packet too.
        let room = room - frame::symbol_head_len(number) - REPAIR_EXTRA_BYTES;
        let mut content = spare::content(room);
        let Content { ended, charge } = self.flows.fill(lane, room, &mut content, now);
        if content.is_empty() {
            spare::give_content(content);
            return PacketContents::default();
        }
        self.flows.sent_as((lane, number));
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        let content = spare::fitted(content);
        self.counters.symbols_sent += 1;
        self.counters.symbol_bytes += content.len() as u64;
        let state = &mut self.send.reliable[lane as usize];
        state.push(content, charge.class, self.path.next_packet(), now);
        if let Some(class) = ended {
            state.ended(class, now);
        }
        (SentContents::of(lane, number), Some(charge))
    }

    /// Fills a symbol with datagrams. Those that do not fit next to a report wait for the next
    /// packet.
    fn put_datagrams(&mut self, room: usize, now: Duration) -> PacketContents {
        let lane = Lane::Datagram;
        let number = self.send.next_number(lane);
        let heads = frame::symbol_head_len(number) + REPAIR_EXTRA_BYTES;
        let Some(room) = room.checked_sub(heads) else { return PacketContents::default() };
        let whole = self.plaintext.is_empty();
        let mut content = Vec::with_capacity(room);
        let Some(filled) = self.flows.fill_datagrams(room, whole, &mut content, now) else {
            return PacketContents::default();
        };
        frame::put_symbol_head(&mut self.plaintext, lane, number);
        self.plaintext.extend_from_slice(&content);
        content.shrink_to_fit();
        self.counters.symbols_sent += 1;
        self.counters.symbol_bytes += content.len() as u64;
        let (packet, max_bytes) = (self.path.next_packet(), self.lane_window());
        let Filled { datagrams, charge, expires } = filled;
        let fresh = NewSymbol { content, datagrams, class: charge.class, expires };
        self.send.datagrams.push(fresh, packet, max_bytes, now, &self.repair_policy);
        if !self.flows.has_datagrams() {
            self.send.datagrams.ended(now);
        }
        (SentContents::of(lane, number), Some(charge))
    }

    /// Chooses the next symbol or repair:
    ///
    /// - urgent before datagrams before bulk, unless it is the turn of a flow of another lane;
    /// - within a lane, retransmissions before repairs before new symbols, because the peer has
    ///   waited longest for what was sent first;
    /// - retransmissions of a more favoured class before those of others.
    fn choose(&mut self, now: Duration) -> Option<NextSend> {
        let next = self.next_lane(now);
        for lane in Lane::RELIABLE {
            let state = &mut self.send.reliable[lane as usize];
            if let Some(class) = self.flows.take_due_burst_end(lane) {
                state.ended(class, now);
            }
            if state.wants_protection(next == Some(lane), now, &self.repair_policy) {
                state.protect(now, &mut self.repair_policy);
            }
        }
        let class = next.and_then(|_| self.flows.next_class(now));
        let new = next.zip(class);
        let again = [Lane::Urgent, Lane::Datagram].map(|lane| self.choose_resend(lane, now));
        // The first of equals.
        let again = again.into_iter().flatten().min_by_key(|(_, class)| *class);
        if let Some((choose, class)) = again
            && !new.is_some_and(|new| self.leads(new, choose, class, now))
        {
            self.repair_waits = false;
            return Some(choose);
        }
        match new {
            Some((Lane::Urgent, _)) => return Some(NextSend::New(Lane::Urgent)),
            Some((Lane::Datagram, class)) if again.is_some() || class <= Class::Network => {
                return Some(NextSend::New(Lane::Datagram));
            }
            _ => {}
        }
        let again = self.choose_resend(Lane::Bulk, now).map(|(choose, _)| choose);
        again.or(next.map(NextSend::New))
    }

    /// Returns `true` if new data goes before a retransmission of `class`:
    ///
    /// - data of the operator's and the network's classes, before less favoured classes, as far as
    ///   the classes' shares permit;
    /// - first bytes of a passenger, before what is no more favoured, at most every other time;
    /// - urgent bytes, before datagrams.
    fn leads(&mut self, new: (Lane, Class), choose: NextSend, class: Class, now: Duration) -> bool {
        let (lane, new) = new;
        if new <= Class::Network && new < class && self.flows.precedes(class, now) {
            return true;
        }
        if lane == Lane::Bulk || new > class {
            return false;
        }
        if matches!(choose, NextSend::Lost(Lane::Datagram) | NextSend::Repair(Lane::Datagram)) {
            return lane == Lane::Urgent;
        }
        if self.repair_waits || !self.flows.next_is_new(now) {
            return false;
        }
        self.repair_waits = true;
        true
    }

    /// The lane's next retransmission or repair, and its class.
    fn choose_resend(&mut self, lane: Lane, now: Duration) -> Option<(NextSend, Class)> {
        let state = self.send.get(lane);
        let lost = state.peek(now).map(|lost| (NextSend::Lost(lane), lost.class));
        lost.or_else(|| state.repair_class(now).map(|class| (NextSend::Repair(lane), class)))
    }

    /// Returns `true` if it is time for the next packet in an outage.
    fn start_probe(&mut self, now: Duration) -> bool {
        let Some(outage) = self.outage.as_mut().filter(|outage| outage.probe_at <= now) else {
            return false;
        };
        outage.next_probe(now);
        self.path.ping = true;
        // Only large packets may be lost, so that every other probe is small.
        outage.bare = !outage.bare && self.path.mtu.is_in_doubt();
        !outage.bare
    }

    /// Chooses the oldest symbol for a probe, so that the answer reveals everything else that is
    /// missing.
    fn choose_probe(&mut self, probing: bool) -> Option<NextSend> {
        let clear = |lane: Lane| self.send.reliable[lane as usize].is_clear();
        let lane = Lane::RELIABLE.into_iter().find(|&lane| !clear(lane));
        let lane = lane.filter(|_| probing)?;
        self.send.reliable[lane as usize].probe_oldest();
        Some(NextSend::Lost(lane))
    }

    /// The lane of the next new symbol; flows of full lanes do not delay others.
    pub(super) fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        self.flows.set_room(Lane::ALL.map(|lane| self.may_send_new(lane)), now);
        self.flows.next_lane(now)
    }

    fn may_send_new(&self, lane: Lane) -> bool {
        let Some(lane) = self.send.reliable.get(lane as usize) else {
            return self.send.datagrams.has_room();
        };
        let longest = self.path.max_plaintext() + SLOT_BYTES;
        lane.retained_bytes() + longest <= self.lane_window() && lane.has_room()
    }

    /// Seals the plaintext as the path's next packet. Without a `charge` the packet is the
    /// network's own.
    pub(super) fn seal(
        &mut self,
        contents: SentContents,
        charge: Option<PacketCharge>,
        now: Duration,
        out: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let (number, before) = (self.path.next_packet(), out.len());
        if !self.keys.seal(self.path.id, number, &self.plaintext, out) {
            out.truncate(before);
            return None;
        }
        let bytes = out.len() - before + self.path.outer_bytes();
        self.dscp = charge.map_or(Class::Network, |charge| charge.best).dscp();
        if let Some(charge) = charge {
            self.flows.charge(charge.class, bytes.saturating_sub(charge.paid), now);
        }
        self.path.sent(contents, bytes, charge.map(|charge| charge.class), now);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        Some(self.path.peer)
    }
}
