//! Handling of received packets.

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngCore;

use super::Session;
use super::validation::Candidate;
use crate::flow::Violation;
use crate::lane::{Arrival, Lane, SendLane};
use crate::redundancy::Loss;
use crate::wire::codec::Reader;
use crate::wire::curve::Curve;
use crate::wire::frame::{Carried, Fragment, Frame, Packet, Repair, Slide, Symbol};
use crate::wire::header::{DataHeader, PacketId};
use crate::wire::report::Report;

/// Minimum delay of the second half of a flush of repairs. Losses come in bursts of time, and a
/// radio fade of a few packets at 2 Mbit/s lasts as long.
const MIN_REPAIR_DELAY: Duration = Duration::from_millis(25);
/// Delay in mean bursts: one burst in twenty is longer than three.
const REPAIR_DELAY_BURSTS: u32 = 3;
/// Maximum delay, because a report arrives by then.
const MAX_REPAIR_DELAY: Duration = Duration::from_millis(400);
/// Maximum packet time assumed for the peer, whatever rate it claims.
const MAX_PACKET_TIME: Duration = Duration::from_millis(100);
/// Wait for a gap in the datagram lane, in round trips: one until the retransmission arrives, and a
/// part of one for the pacing of reports and of retransmissions …
const ORDER_ROUND_TRIPS: f64 = 1.25;
/// … plus this, for short paths.
const ORDER_SLACK: Duration = Duration::from_millis(50);
/// Loss that is assumed at least while the first data is sent and none is measured: too few repair
/// packets at its end cost a round trip.
const UNKNOWN_LOSS: f64 = 0.04;
/// Number of challenges to a new address before the move is given up.
const CHALLENGE_TRIES: u32 = 6;

impl Session {
    /// Decrypts a packet with the keys it names, current or old. Returns `false` for a forgery or a
    /// replay.
    pub(crate) fn unseal(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> bool {
        self.keys.open(header, sealed, plaintext)
    }

    /// Handles an authenticated packet. `bytes` is its length as received, `ce` its Congestion
    /// Experienced mark.
    pub(crate) fn receive(
        &mut self,
        header: &DataHeader,
        plaintext: &[u8],
        from: SocketAddr,
        (bytes, ce): (usize, bool),
        now: Duration,
    ) {
        if self.closing {
            return;
        }
        if self.select_received(header, from, bytes, now) {
            self.receive_here(header, plaintext, from, (bytes, ce), now);
        }
        self.select_first();
    }

    /// Handles a packet of the path in hand.
    fn receive_here(
        &mut self,
        header: &DataHeader,
        plaintext: &[u8],
        from: SocketAddr,
        (bytes, ce): (usize, bool),
        now: Duration,
    ) {
        self.counters.packets_received += 1;
        self.path.received_bytes += (bytes + self.path.outer_bytes()) as u64;
        self.heard(now);
        let Ok(packet) = Packet::parse(plaintext) else {
            return self.close_with(Violation("an authenticated packet that does not parse"));
        };
        self.take_volume(packet.volume, bytes, now);
        // Treated as lost, because the sender does not retransmit a symbol that a report names.
        if let Some(Carried::Symbol(symbol)) = &packet.carried
            && self.refuses(symbol)
        {
            return;
        }
        let newest = self.path.on_packet(header.number, ce, now);
        if newest && self.measures_peer_on(&self.path) {
            let rtt = self.path.rtt.get();
            self.path.recorder.on_newest(header.number, bytes, rtt, now);
        }
        if let Some(challenge) = packet.challenge {
            self.path.response = Some(challenge);
        }
        // Only the ground follows address changes: the air has the ground's address from its
        // configuration.
        self.validate(from, packet.response, now);
        if !self.opens {
            self.follow(from, newest, bytes, packet.response, now);
        }
        // Only the aircraft's operator pays.
        self.path.is_standby |= packet.standby && !self.opens;
        if let Some(down) = packet.down.filter(|_| !self.opens) {
            self.take_down(down, now);
        }
        let asks = packet.asks_for_report();
        if let Some(report) = packet.report {
            self.take_report(&report, packet.curve.as_ref(), now);
        }
        if let Some(slide) = packet.slide {
            self.take_slide(slide, now);
        }
        let gap = match packet.carried {
            Some(Carried::Symbol(symbol)) => self.take_symbol(&symbol, header.packet(), now),
            Some(Carried::Repair(repair)) => {
                self.take_repair(&repair, header.packet(), now);
                false
            }
            Some(Carried::Fragment(fragment)) => self.take_fragment(fragment, header.packet(), now),
            None => false,
        };
        // Each side accepts only messages of the other's role: the ground grants, the air requests.
        match (packet.grant, packet.demand) {
            (Some(grant), _) if self.opens => self.path.lease.on_grant(&grant),
            (_, Some(demand)) if !self.opens => self.path.lease.on_demand(demand),
            _ => {}
        }
        if asks {
            let pace = self.pace();
            self.path.reports.came(gap, pace, now);
        }
        if packet.close {
            self.peer_closed = true;
        }
    }

    /// Notes that the peer is alive, and ends an outage.
    pub(super) fn heard(&mut self, now: Duration) {
        self.heard_at = now;
        // With several paths, only reports show that what is sent on one of them arrives.
        if self.others.is_empty() {
            self.arrives_again(now);
        }
    }

    /// Notes that packets of the path in hand arrive, and ends its outage.
    fn arrives_again(&mut self, now: Duration) {
        self.path.waiting_since = None;
        let was_live = self.path.is_live();
        self.path.is_doubted = false;
        let unheard = self.outage(now);
        if let Some(outage) = self.path.outage.take() {
            if let Some(congestion) = &mut self.path.congestion {
                congestion.on_peer_returned(now);
            }
            self.path.lease.on_peer_returned(now);
            let peer = self.settings.peer_label(&self.path.peer);
            let after = now.saturating_sub(outage.since);
            self.unheard += unheard;
            // What an aircraft reports must not fill the log.
            match !self.opens && self.path.news.is_down {
                true => tracing::debug!(%peer, ?after, "the link is back"),
                false => tracing::info!(%peer, ?after, "the link is back"),
            }
            self.correct_news(now);
        }
        if !was_live && !self.others.is_empty() {
            self.take_over(now);
        }
    }

    fn take_report(&mut self, report: &Report, curve: Option<&Curve>, now: Duration) {
        let came_on = self.path.id;
        if self.select(report.path) {
            self.take_report_here(report, curve, came_on == report.path, now);
            self.select(came_on);
        }
    }

    /// Handles a report of the path in hand. `is_own` says that it came on this path.
    fn take_report_here(
        &mut self,
        report: &Report,
        curve: Option<&Curve>,
        is_own: bool,
        now: Duration,
    ) {
        let Some(outcomes) = self.path.reported(report, curve, is_own, now) else {
            return self.close_with(Violation("a report of packets that were never sent"));
        };
        if let Some(rate) = self.path.lease.take_learned() {
            let peer = self.settings.peer_label(&self.path.peer);
            tracing::info!(%peer, %rate, "the path carries");
        }
        self.note_losses(&outcomes, now);
        let told = outcomes.data();
        self.counters.packets_lost += told.lost;
        self.counters.packets_judged += told.judged;
        self.path.lost_packets += told.lost;
        self.path.judged_packets += told.judged;
        self.adapt(now);
        let late_by = self.path.peer_late_by;
        let news = !outcomes.judged.is_empty() || !outcomes.arrived.is_empty();
        if news {
            self.send.mark_stale();
        }
        if !outcomes.arrived.is_empty() && !self.others.is_empty() {
            self.path.on_news(now);
            if !self.path.precede_its_failure(&outcomes) {
                let waiting_since = self.path.waiting_since;
                self.arrives_again(now);
                self.path.waiting_since = waiting_since;
            }
        }
        for lane_report in &report.lanes {
            let (lane, policy) = (lane_report.lane as usize, &mut self.repair_policy);
            let before = self.send.reliable.get(lane).map_or(0, SendLane::retained_bytes);
            let found = match self.send.reliable.get_mut(lane) {
                Some(lane) => lane.report(lane_report, report.path, late_by, now, policy),
                None => {
                    let newest = PacketId { path: report.path, number: report.largest };
                    self.send.datagrams.report(lane_report, newest, late_by, now, policy)
                }
            };
            let Some(found) = found else {
                return self.close_with(Violation("a report of symbols that were never sent"));
            };
            if let Some(state) = self.send.reliable.get(lane)
                && (found > 0 || state.retained_bytes() < before)
            {
                self.probes[lane] = 0;
            }
        }
        let arrived = outcomes.arrived.iter().map(|(packet, sent)| (*packet, sent, false));
        let lost = outcomes.lost().map(|it| (it.packet, &it.sent, true));
        for (packet, sent, lost) in arrived.chain(lost) {
            if let Some((lane, number)) = sent.contents.symbol {
                let packet = PacketId { path: report.path, number: packet };
                match self.send.reliable.get_mut(lane as usize) {
                    Some(state) => state.on_outcome(number, packet, lost),
                    None => self.send.datagrams.on_outcome(number, packet, lost),
                }
            }
        }
        if news {
            self.send.reliable.iter_mut().for_each(SendLane::settle_repairs);
        }
        self.tune();
    }

    /// Stops waiting for symbols that the peer gave up.
    fn take_slide(&mut self, slide: Slide, now: Duration) {
        if slide.lane != Lane::Datagram {
            return self.close_with(Violation("a lane that slides and must not"));
        }
        if !self.recv[slide.lane as usize].slide(slide.base) {
            return self.close_with(Violation("a lane that slides further than it can be"));
        }
        self.flows.on_datagram_slide(slide.base, now);
    }

    /// Adapts the redundancy to the present loss of the path in hand.
    fn adapt(&mut self, now: Duration) {
        let mut assumed = self.path.arrivals.loss();
        if self.path.lease.is_loss_unknown() {
            assumed.rate = assumed.rate.max(UNKNOWN_LOSS);
        }
        self.path.estimator.assume(assumed);
        let carriers = self.paths().filter(|path| self.is_used(path));
        let carriers = carriers.filter(|path| !self.is_idle_in_bursts(path, now)).count();
        self.repair_policy.several_paths = self.has_other_live() && carriers > 1;
        self.flows.set_in_flight(self.sum_of_rates().bytes_in(self.longest_round_trip()));
        // The times of a path that carries no part of a burst are not those of its repairs.
        let is_idle = self.has_other_live() && self.is_idle_in_bursts(&self.path, now);
        if !is_idle {
            self.adapt_here();
        }
        if !self.others.is_empty() {
            self.mix_losses(now);
        }
    }

    fn adapt_here(&mut self) {
        let loss = self.path.estimator.loss();
        let packet_bytes = self.path.mtu.current() as u64;
        let (our_rate, peers_rate) = self.rates();
        let packet_time = our_rate.time_for(packet_bytes);
        let towards_peer = packet_time.mul_f64(loss.burst_packets());
        // An end that sends little sees few bursts in its own direction, but also those of the
        // other direction.
        let towards_us = peers_rate.time_for(packet_bytes).min(MAX_PACKET_TIME);
        let towards_us = towards_us.mul_f64(self.path.arrivals.burst_packets());
        self.repair_policy.burst = packet_time.mul_f64(loss.excess_packets());
        let burst = towards_peer.max(towards_us);
        (self.repair_policy.loss, self.repair_policy.measured) =
            (self.path.estimator.cautious(), loss);
        self.repair_policy.delay =
            (burst * REPAIR_DELAY_BURSTS).clamp(MIN_REPAIR_DELAY, MAX_REPAIR_DELAY);
    }

    /// Assumes the mean of the losses of the live paths that carry bursts, since the symbols of a range
    /// are on several.
    fn mix_losses(&mut self, now: Duration) {
        let mut weights = 0.0;
        let (mut assumed, mut measured) = ([0.0; 2], [0.0; 2]);
        let used = self.paths().filter(|path| self.is_used(path));
        for path in used.filter(|path| !self.is_idle_in_bursts(path, now)) {
            let weight = path.pacer.rate().bps() as f64;
            weights += weight;
            for (sum, loss) in
                [(&mut assumed, path.estimator.cautious()), (&mut measured, path.estimator.loss())]
            {
                sum[0] += weight * loss.rate;
                sum[1] += weight * loss.correlation;
            }
        }
        if weights > 0.0 {
            let mean =
                |sum: [f64; 2]| Loss { rate: sum[0] / weights, correlation: sum[1] / weights };
            (self.repair_policy.loss, self.repair_policy.measured) =
                (mean(assumed), mean(measured));
        }
    }

    /// Stores a fragment, or handles the symbol that it completes.
    fn take_fragment(&mut self, fragment: Fragment<'_>, packet: PacketId, now: Duration) -> bool {
        let body = match self.assembly.take(packet.path, fragment) {
            Ok(None) => return false,
            Ok(Some(body)) => body,
            Err(violation) => {
                self.close_with(violation);
                return false;
            }
        };
        let Ok(symbol) = Symbol::parse_body(&body) else {
            self.close_with(Violation("fragments of something that does not parse"));
            return false;
        };
        self.take_symbol(&symbol, packet, now)
    }

    /// Returns `true` if there is no room for a symbol now.
    fn refuses(&self, symbol: &Symbol<'_>) -> bool {
        let lane = &self.recv[symbol.lane as usize];
        let shattered = self.flows.is_fragmented() && symbol.lane != Lane::Datagram;
        lane.refuses(symbol.number) || (shattered && symbol.number > lane.base())
    }

    /// Handles a symbol. Returns `true` if it shows a new gap.
    fn take_symbol(&mut self, symbol: &Symbol<'_>, packet: PacketId, now: Duration) -> bool {
        if self.refuses(symbol) {
            return false; // treated as lost: it will be retransmitted
        }
        let lane = &mut self.recv[symbol.lane as usize];
        let gap = match lane.arrive(symbol.number, packet, symbol.content) {
            Arrival::New { gap } => {
                self.last_symbol = Some(now);
                gap
            }
            Arrival::Duplicate => {
                self.counters.symbols_redundant += 1;
                return false;
            }
            Arrival::Refused => return false,
        };
        self.take_content(symbol.lane, symbol.number, symbol.content, now);
        self.take_recovered(symbol.lane, now);
        gap
    }

    fn take_repair(&mut self, repair: &Repair<'_>, packet: PacketId, now: Duration) {
        match self.recv[repair.lane as usize].repair(repair.span, packet, repair.content) {
            Ok(true) => {}
            Ok(false) => self.counters.repairs_redundant += 1,
            Err(_) => return self.close_with(Violation("a repair that contradicts its symbols")),
        }
        self.take_recovered(repair.lane, now);
    }

    fn take_recovered(&mut self, lane: Lane, now: Duration) {
        loop {
            let oldest_only = self.flows.is_fragmented() && lane != Lane::Datagram;
            let next = self.recv[lane as usize].next_recovered(oldest_only);
            let Some((number, content)) = next.filter(|_| !self.closing) else { return };
            self.counters.symbols_recovered += 1;
            self.last_symbol = Some(now);
            self.take_content(lane, number, &content, now);
        }
    }

    /// Handles the content of a symbol that arrived for the first time.
    fn take_content(&mut self, lane: Lane, number: u64, content: &[u8], now: Duration) {
        if lane != Lane::Datagram {
            return self.take_frames(content, None, now);
        }
        self.flows.on_datagram_symbol(number, self.order_patience(), now);
        self.take_frames(content, Some(number), now);
        self.flows.release_ordered(now);
    }

    /// Maximum wait for a gap in the datagram lane. A missing datagram is retransmitted as soon as
    /// a report names it, and arrives half a round trip later, but not after its lifetime.
    fn order_patience(&self) -> Duration {
        let again = self.datagrams_round_trip().mul_f64(ORDER_ROUND_TRIPS) + ORDER_SLACK;
        again.min(self.settings.lifetimes.best_effort)
    }

    /// Handles frames. `symbol` is the symbol's number if that orders its datagrams.
    fn take_frames(&mut self, content: &[u8], symbol: Option<u64>, now: Duration) {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            // By reference: a move of a frame that was just written would stall the processor.
            let taken = match &Frame::parse(&mut reader) {
                Ok(frame) => self.flows.take_frame_at(frame, symbol, now),
                Err(_) => Err(Violation("a symbol that does not parse")),
            };
            if let Err(violation) = taken {
                return self.close_with(violation);
            }
        }
    }

    /// Sets the peer's address.
    pub(crate) fn moved_to(&mut self, address: SocketAddr, now: Duration) {
        // Another port from a NAT does not change the path.
        if address.ip() != self.path.peer.ip() {
            self.path.mtu.moved(now);
        }
        self.path.peer = address;
        self.path.candidate = None;
    }

    /// Handles a newest packet from another address, to which the peer may have moved. Only
    /// challenges are sent there, with at most three times the bytes received from there, until the
    /// peer echoes one.
    fn follow(
        &mut self,
        from: SocketAddr,
        newest: bool,
        bytes: usize,
        response: Option<[u8; 8]>,
        now: Duration,
    ) {
        if from == self.path.peer {
            if newest {
                self.path.candidate = None;
            }
            return;
        }
        if self.path.validation.is_some() {
            if newest {
                self.validate_again(from, bytes, now);
            }
            return;
        }
        if let Some(candidate) = self.path.candidate.as_mut().filter(|it| it.address == from) {
            candidate.received_bytes += bytes;
            if response == Some(candidate.challenge) {
                let peer = self.settings.peer_label(&"the ground");
                tracing::info!(%peer, was = %self.path.peer, is = %from, "the peer moved");
                self.moved_to(from, now);
            }
        } else if newest {
            let mut challenge = [0; 8];
            self.rng.fill_bytes(&mut challenge);
            self.path.candidate = Some(Candidate {
                address: from,
                challenge,
                next_try: now,
                tries_left: CHALLENGE_TRIES,
                received_bytes: bytes,
                sent_bytes: 0,
            });
        }
    }
}
