//! The next packet, composed when the pacer releases it.

use std::net::SocketAddr;
use std::time::Duration;

use super::Session;
use super::choose::NextSend;
use super::copy_queue::{Copied, Original};
use super::fragment::Outgoing;
use super::path::Path;
use super::sent::{PacketContents, SentContents};
use super::validation::ANTI_AMPLIFICATION;
use crate::Class;
use crate::flow::{Content, Filled, PacketCharge};
use crate::lane::{Due, Lane, Lost, NewSymbol};
use crate::spare;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame::{self, CHALLENGE_BYTES, PADDING, REPAIR_EXTRA_BYTES};
use crate::wire::header::DATA_OVERHEAD_BYTES;

/// Minimum room for a new symbol: an OPEN with the longest name fits.
const MIN_SYMBOL_ROOM: usize = 320;

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
            self.select_for_close();
            self.plaintext.clear();
            frame::put_close(&mut self.plaintext);
            self.sent_on = self.path.id;
            let to = self.within_volume(|it| it.seal(SentContents::default(), None, now, out));
            self.select_first();
            return to;
        }
        if self.others.is_empty() {
            self.sent_on = self.path.id;
            return self.within_volume(|it| it.transmit_here(now, out));
        }
        let mut sent = None;
        for id in self.paths_by_arrival(now) {
            self.select(id);
            sent = self.within_volume(|it| it.transmit_here(now, out));
            if sent.is_some() {
                self.sent_on = id;
                break;
            }
        }
        self.select_first();
        sent
    }

    /// Path of the last packet of [`Self::transmit`].
    pub fn sent_on(&self) -> u8 {
        self.sent_on
    }

    /// Appends the next datagram of the path in hand.
    fn transmit_here(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some(to) = self.challenge_candidate(now, out) {
            return Some(to);
        }
        if self.path.validation.is_some() {
            return self.transmit_validation(now, out);
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
        let reports_on = self.report_due(now);
        let report_bytes = reports_on.and_then(|path| self.put_report(path, now));
        let reports_on = reports_on.unwrap_or(self.path.id);
        // Nothing else may show in time that the path that carries the reports of others is dead.
        if reports_on != self.path.id && self.path.asked_at + self.path.rtt.get() <= now {
            self.path.ping = true;
        }
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
            self.reported(reports_on, (bytes + if alone { packet } else { 0 }) as u64, now);
        }
        self.path.mtu.used(self.path.bytes_of(self.plaintext.len()), now);
        self.seal(SentContents { asks: asks || contents.asks, ..contents }, charge, now, out)
    }

    /// Appends a challenge on a path that carries no data yet, or the echo of the peer's.
    fn transmit_validation(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        let bytes = self.path.bytes_of(2 * (1 + CHALLENGE_BYTES));
        self.plaintext.clear();
        if let Some(challenge) = self.take_challenge(bytes, now) {
            frame::put_challenge(&mut self.plaintext, &challenge);
        }
        let challenges = !self.plaintext.is_empty();
        if let Some(validation) = &mut self.path.validation
            && (challenges || validation.affords(bytes))
            && let Some(challenge) = self.path.response.take()
        {
            // A challenge has paid for the whole packet.
            validation.sent_bytes += if challenges { 0 } else { bytes };
            frame::put_response(&mut self.plaintext, &challenge);
        }
        if self.plaintext.is_empty() {
            return None;
        }
        self.put_standby();
        let contents = SentContents::default();
        self.seal(contents, None, now, out)
    }

    /// Tells the ground that the path in hand is on standby. Repeated, because it may be lost.
    fn put_standby(&mut self) {
        if self.opens && self.path.is_standby && self.max_paths > 1 {
            frame::put_standby(&mut self.plaintext);
        }
    }

    /// Fills an empty packet with padding if the rate is to be learned and nothing else waits.
    fn pad(&mut self, contents: SentContents, now: Duration) -> SentContents {
        let may_load =
            self.path.outage.is_none() && self.path.may_be_loaded() && self.path.takes_more(now);
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
        if let Some(slide) = self.send.datagrams.slide().filter(|_| self.path.outage.is_none()) {
            frame::put_slide(&mut self.plaintext, slide);
            self.send.datagrams.slid(self.path.next_id());
        }
        self.put_down(now);
        let ping = std::mem::take(&mut self.path.ping);
        if ping {
            if self.path.waiting_since.is_some() {
                self.path.volume.pay_answer();
            }
            frame::put_ping(&mut self.plaintext);
            self.put_standby();
        }
        ping
    }

    /// Puts at most one symbol or repair. Returns it with its charge.
    fn put_contents(&mut self, probing: bool, now: Duration) -> PacketContents {
        if !self.path.affords_full() || (self.yields() && !self.path.has_copy(now)) {
            return PacketContents::default();
        }
        // In an outage, probes have their own pace.
        if self.path.outage.is_none() && !self.path.takes_more(now) {
            self.held_back(now);
            return PacketContents::default();
        }
        let room = self.path.max_plaintext().saturating_sub(self.plaintext.len());
        // Large packets may be vanishing, so that the uncoded part is sent by itself.
        if !self.plaintext.is_empty() && !probing && self.path.mtu.is_in_doubt() {
            return PacketContents::default();
        }
        if self.path.fragments.is_some() {
            return self.put_fragment(room);
        }
        if self.path.has_copy(now)
            && let Some(copied) = self.put_copy(room, now)
        {
            return copied;
        }
        if self.yields() {
            return PacketContents::default();
        }
        let choose =
            if self.path.outage.is_some() { self.choose_probe(probing) } else { self.choose(now) };
        match choose {
            Some(NextSend::New(Lane::Datagram)) => self.put_datagrams(room, now),
            Some(NextSend::New(lane)) if self.room_everywhere(room) >= MIN_SYMBOL_ROOM => {
                self.put_new(lane, room, now)
            }
            Some(NextSend::Lost(lane)) => self.put_retransmission(lane, room, now),
            Some(NextSend::Repair(lane)) => self.put_repair(lane, room, now),
            _ => PacketContents::default(),
        }
    }

    /// Retransmits a symbol, which was built for a whole packet and may not fit next to a report.
    /// If packets have become smaller, it is sent alone and in fragments.
    fn put_retransmission(&mut self, lane: Lane, room: usize, now: Duration) -> PacketContents {
        let allowed = self.allowed(lane, now);
        let state = self.send.get(lane);
        let Some(Lost { number, len, class }) = state.peek(&allowed, now) else {
            return PacketContents::default();
        };
        let fits = frame::symbol_head_len(number) + len <= room;
        if !fits && !self.plaintext.is_empty() {
            return PacketContents::default();
        }
        let packet = self.path.next_id();
        let Some((number, content)) = state.take(&allowed, packet, now) else {
            return PacketContents::default();
        };
        self.counters.retransmissions_sent += 1;
        self.counters.retransmission_bytes += content.len() as u64;
        let mut body = Vec::with_capacity(room.max(content.len() + MAX_VARINT_BYTES + 1));
        frame::put_symbol_head(&mut body, lane, number);
        body.extend_from_slice(content);
        if body.len() <= room {
            self.plaintext.extend_from_slice(&body);
            self.copy_if_redundant(lane, Original::Symbol(number), class, now);
            return (SentContents::of(lane, number), Some(PacketCharge::of(class)));
        }
        self.path.fragments = Some(Outgoing::new(body, class, packet.number, room));
        self.put_fragment(room)
    }

    /// Puts the next fragment of a symbol. The outcome of a fragment's packet is not the symbol's,
    /// which its lane judges.
    fn put_fragment(&mut self, room: usize) -> PacketContents {
        let Some(fragments) = &mut self.path.fragments else { return PacketContents::default() };
        let put = fragments.put_next(room, &mut self.plaintext);
        let charge = put.then(|| PacketCharge::of(fragments.class));
        self.counters.fragments_sent += u64::from(put);
        // A symbol cut for larger packets than the present ones is dropped, and counts as lost.
        if fragments.is_done() || (!put && self.plaintext.is_empty()) {
            self.path.fragments = None;
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
        state.take_repair(span, self.path.next_id(), now, &mut self.plaintext);
        self.counters.repairs_sent += 1;
        self.counters.repair_bytes += len as u64;
        self.copy_if_redundant(lane, Original::Repair(span), class, now);
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
        let room = self.room_everywhere(room);
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
        self.path.new_below[lane as usize] = number + 1;
        let state = &mut self.send.reliable[lane as usize];
        state.push(content, charge.class, self.path.next_id(), now);
        if let Some(class) = ended {
            state.ended(class, now);
        }
        // A request is short, and everything waits for it.
        let is_request = ended.is_some() && self.opens && lane == Lane::Urgent;
        let what = Original::Symbol(number);
        if is_request || self.goes_on_each(charge.class) {
            self.copy_elsewhere(Copied { lane, what, class: charge.class }, now);
        }
        (SentContents::of(lane, number), Some(charge))
    }

    /// Room for a new symbol, which any live path may have to carry again.
    pub(super) fn room_everywhere(&self, room: usize) -> usize {
        let used = self.paths().filter(|path| self.is_used(path));
        used.map(Path::max_plaintext).fold(room, usize::min)
    }

    /// Fills a symbol with datagrams. Those that do not fit next to a report wait for the next
    /// packet.
    fn put_datagrams(&mut self, room: usize, now: Duration) -> PacketContents {
        let lane = Lane::Datagram;
        let number = self.send.next_number(lane);
        let room = self.room_everywhere(room);
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
        let (packet, max_bytes) = (self.path.next_id(), self.lane_window());
        let Filled { datagrams, charge, expires } = filled;
        let fresh = NewSymbol { content, datagrams, class: charge.class, expires };
        self.send.datagrams.push(fresh, packet, max_bytes, now, &self.repair_policy);
        self.copy_if_redundant(lane, Original::Symbol(number), charge.class, now);
        if !self.flows.has_datagrams() {
            self.send.datagrams.ended(now);
        }
        (SentContents::of(lane, number), Some(charge))
    }

    /// Returns `true` if it is time for the next packet in an outage.
    fn start_probe(&mut self, now: Duration) -> bool {
        let path = &mut *self.path;
        let Some(outage) = path.outage.as_mut().filter(|outage| outage.probe_at <= now) else {
            return false;
        };
        outage.next_probe(&mut path.news, &path.volume, now);
        path.ping = true;
        // Only large packets may be lost, so that every other probe is small.
        outage.bare = !outage.bare && path.mtu.is_in_doubt();
        !outage.bare
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
        self.count_volume();
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
