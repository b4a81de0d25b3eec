//! Packets that came.

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngCore;

use super::Session;
use super::path::Candidate;
use crate::flow::Violation;
use crate::lane::{Arrival, Lane, SendLane};
use crate::wire::codec::Reader;
use crate::wire::frame::{Carried, Fragment, Frame, Packet, Repair, Slide, Symbol};
use crate::wire::header::DataHeader;
use crate::wire::report::Report;

/// The second half of a flush of repairs waits at least this long: losses come in bursts of time,
/// and in the air a fade of a few packets at 2 Mbit/s takes as long.
const LEAST_REPAIR_DELAY: Duration = Duration::from_millis(25);
/// … or so many mean bursts: one burst in twenty is longer than three.
const REPAIR_DELAY_BURSTS: u32 = 3;
/// … but never longer than this: then a report is here first.
const MOST_REPAIR_DELAY: Duration = Duration::from_millis(400);
/// Whatever rate the peer claims, a packet of its takes no longer than this.
const MOST_PACKET_TIME: Duration = Duration::from_millis(100);
/// A gap in the datagram lane is waited for so many round trips: one until what is missing comes again,
/// and a part of one for the reports' pacing and the turn of what is sent again …
const ORDER_ROUND_TRIPS: f64 = 1.25;
/// … and so long, on short paths.
const ORDER_SLACK: Duration = Duration::from_millis(50);
/// Number of challenges to a new address before the move is given up.
const CHALLENGE_TRIES: u32 = 6;

impl Session {
    /// Opens a packet under the keys it names, current or old; `false` for a forgery or a replay.
    pub(crate) fn unseal(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> bool {
        self.keys.open(header, sealed, plaintext)
    }

    /// Acts on an authenticated packet: `bytes` is its length as it came, `ce` whether it came
    /// marked Congestion Experienced.
    pub(crate) fn receive(
        &mut self,
        header: &DataHeader,
        plaintext: &[u8],
        from: SocketAddr,
        (bytes, ce): (usize, bool),
        now: Duration,
    ) {
        if header.path != self.path.id || self.closing {
            return;
        }
        self.counters.packets_received += 1;
        self.heard(now);
        let Ok(packet) = Packet::parse(plaintext) else {
            return self.break_off(Violation("an authenticated packet that does not parse"));
        };
        // As if it were lost: what a report says to have come is not sent again.
        if let Some(Carried::Symbol(symbol)) = &packet.carried
            && self.refuses(symbol)
        {
            return;
        }
        let newest = self.path.came(header.number, ce, now);
        if let Some(challenge) = packet.challenge {
            self.path.response = Some(challenge);
        }
        // Only the ground follows: the air knows where the ground is from its configuration.
        if !self.opens {
            self.follow(from, newest, bytes, packet.response, now);
        }
        let asks = packet.asks_for_report();
        if let Some(report) = packet.report {
            self.take_report(&report, now);
        }
        if let Some(slide) = packet.slide {
            self.take_slide(slide, now);
        }
        let gap = match packet.carried {
            Some(Carried::Symbol(symbol)) => self.take_symbol(&symbol, header.number, now),
            Some(Carried::Repair(repair)) => {
                self.take_repair(&repair, header.number, now);
                false
            }
            Some(Carried::Fragment(fragment)) => self.take_fragment(fragment, header.number, now),
            None => false,
        };
        // Each side believes only what the other's part is: the ground grants, the air asks.
        match (packet.grant, packet.demand) {
            (Some(grant), _) if self.opens => self.path.lease.take_grant(&grant),
            (_, Some(demand)) if !self.opens => self.path.lease.hear_demand(demand),
            _ => {}
        }
        if asks {
            self.reports.came(gap, self.pace(), now);
        }
        if packet.close {
            self.peer_closed = true;
        }
    }

    /// The peer is there.
    pub(super) fn heard(&mut self, now: Duration) {
        self.path.waiting_since = None;
        self.heard_at = now;
        if let Some(quiet) = self.quiet.take() {
            if let Some(congestion) = &mut self.path.congestion {
                congestion.heard_again(now);
            }
            let peer = self.settings.called(&self.path.peer);
            let after = now.saturating_sub(quiet.since);
            self.unheard += after;
            tracing::info!(%peer, ?after, "the link is back");
        }
    }

    fn take_report(&mut self, report: &Report, now: Duration) {
        if report.path != self.path.id {
            return;
        }
        let Some(fates) = self.path.reported(report, now) else {
            return self.break_off(Violation("a report of packets that were never sent"));
        };
        let told = fates.data();
        self.counters.packets_lost += told.lost;
        self.counters.packets_judged += told.judged;
        self.adapt();
        let late_by = self.path.peer_late_by;
        let news = !fates.judged.is_empty() || !fates.arrived.is_empty();
        if news {
            self.send.think_again();
        }
        for lane_report in &report.lanes {
            let (lane, rule) = (lane_report.lane as usize, &mut self.rule);
            let before = self.send.reliable.get(lane).map_or(0, SendLane::retained_bytes);
            let found = match self.send.reliable.get_mut(lane) {
                Some(lane) => lane.report(lane_report, late_by, now, rule),
                None => {
                    let newest = report.largest;
                    self.send.datagrams.report(lane_report, newest, late_by, now, rule)
                }
            };
            let Some(found) = found else {
                return self.break_off(Violation("a report of symbols that were never sent"));
            };
            if let Some(state) = self.send.reliable.get(lane)
                && (found > 0 || state.retained_bytes() < before)
            {
                self.probes[lane] = 0;
            }
        }
        let arrived = fates.arrived.iter().map(|(packet, sent)| (*packet, sent, false));
        let lost = fates.lost().map(|it| (it.packet, &it.sent, true));
        for (packet, sent, lost) in arrived.chain(lost) {
            if let Some((lane, number)) = sent.cargo.symbol {
                match self.send.reliable.get_mut(lane as usize) {
                    Some(state) => state.fate(number, packet, lost),
                    None => self.send.datagrams.fate(number, packet, lost),
                }
            }
        }
        if news {
            self.send.reliable.iter_mut().for_each(SendLane::settle_repairs);
        }
        self.tune();
    }

    /// The peer gave up symbols: they are waited for no more.
    fn take_slide(&mut self, slide: Slide, now: Duration) {
        if slide.lane != Lane::Datagram {
            return self.break_off(Violation("a lane that slides and must not"));
        }
        if !self.recv[slide.lane as usize].slide(slide.base) {
            return self.break_off(Violation("a lane that slides further than it can be"));
        }
        self.flows.gave_up_below(slide.base, now);
    }

    /// Takes to heart what the path loses now.
    fn adapt(&mut self) {
        self.path.estimator.assume(self.path.arrivals.loss());
        let loss = self.path.estimator.loss();
        let packet_bytes = self.path.mtu.current() as u64;
        let packet_time = self.path.pacer.rate().time_for(packet_bytes);
        let towards_peer = packet_time.mul_f64(loss.burst_packets());
        // Who sends little sees few bursts; but it sees those of the other direction.
        let towards_us = self.peer.rate.time_for(packet_bytes).min(MOST_PACKET_TIME);
        let towards_us = towards_us.mul_f64(self.path.arrivals.burst_packets());
        self.rule.burst = packet_time.mul_f64(loss.excess_packets());
        let burst = towards_peer.max(towards_us);
        (self.rule.loss, self.rule.measured) = (self.path.estimator.cautious(), loss);
        self.flows.tell_in_flight(self.path.pacer.rate().bytes_in(self.path.rtt.get()));
        self.rule.delay =
            (burst * REPAIR_DELAY_BURSTS).clamp(LEAST_REPAIR_DELAY, MOST_REPAIR_DELAY);
    }

    /// Keeps a fragment, or acts on the symbol that it makes whole.
    fn take_fragment(&mut self, fragment: Fragment<'_>, packet: u64, now: Duration) -> bool {
        let body = match self.assembly.take(fragment) {
            Ok(None) => return false,
            Ok(Some(body)) => body,
            Err(violation) => {
                self.break_off(violation);
                return false;
            }
        };
        let Ok(symbol) = Symbol::parse_body(&body) else {
            self.break_off(Violation("fragments of something that does not parse"));
            return false;
        };
        self.take_symbol(&symbol, packet, now)
    }

    /// Returns `true` if there is no room for a symbol now.
    fn refuses(&self, symbol: &Symbol<'_>) -> bool {
        let lane = &self.recv[symbol.lane as usize];
        let shattered = self.flows.is_shattered() && symbol.lane != Lane::Datagram;
        lane.refuses(symbol.number) || (shattered && symbol.number > lane.base())
    }

    /// Acts on a symbol that is new; `true` when it shows a gap that was not known.
    fn take_symbol(&mut self, symbol: &Symbol<'_>, packet: u64, now: Duration) -> bool {
        if self.refuses(symbol) {
            return false; // as if it were lost: it comes again
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

    fn take_repair(&mut self, repair: &Repair<'_>, packet: u64, now: Duration) {
        match self.recv[repair.lane as usize].repair(repair.span, packet, repair.content) {
            Ok(true) => {}
            Ok(false) => self.counters.repairs_redundant += 1,
            Err(_) => return self.break_off(Violation("a repair that contradicts its symbols")),
        }
        self.take_recovered(repair.lane, now);
    }

    fn take_recovered(&mut self, lane: Lane, now: Duration) {
        loop {
            let oldest_only = self.flows.is_shattered() && lane != Lane::Datagram;
            let next = self.recv[lane as usize].next_recovered(oldest_only);
            let Some((number, content)) = next.filter(|_| !self.closing) else { return };
            self.counters.symbols_recovered += 1;
            self.last_symbol = Some(now);
            self.take_content(lane, number, &content, now);
        }
    }

    /// Acts on what is in a symbol that is here for the first time.
    fn take_content(&mut self, lane: Lane, number: u64, content: &[u8], now: Duration) {
        if lane != Lane::Datagram {
            return self.take_frames(content, None, now);
        }
        self.flows.symbol_came(number, self.order_patience(), now);
        self.take_frames(content, Some(number), now);
        self.flows.release_ordered(now);
    }

    /// Maximum wait for a gap in the datagram lane. A missing datagram is sent again as soon as a
    /// report names it, and arrives half a round trip after that; none does after its lifetime.
    fn order_patience(&self) -> Duration {
        let again = self.path.rtt.get().mul_f64(ORDER_ROUND_TRIPS) + ORDER_SLACK;
        again.min(self.settings.lifetimes.best_effort)
    }

    /// `place` is the number of the symbol, where that orders its datagrams.
    fn take_frames(&mut self, content: &[u8], place: Option<u64>, now: Duration) {
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            let Ok(frame) = Frame::parse(&mut reader) else {
                return self.break_off(Violation("a symbol that does not parse"));
            };
            if let Err(violation) = self.flows.take_frame_at(frame, place, now) {
                return self.break_off(violation);
            }
        }
    }

    /// The peer is known to be at `address` from now on.
    pub(crate) fn moved_to(&mut self, address: SocketAddr, now: Duration) {
        // A NAT that gives another port does not change the way.
        if address.ip() != self.path.peer.ip() {
            self.path.mtu.moved(now);
        }
        self.path.peer = address;
        self.path.candidate = None;
    }

    /// The peer's newest packet came from elsewhere: perhaps it moved. Nothing but challenges go
    /// there, never more than three times what came from there, until it echoes one.
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
        if let Some(candidate) = self.path.candidate.as_mut().filter(|it| it.address == from) {
            candidate.received_bytes += bytes;
            if response == Some(candidate.challenge) {
                let peer = self.settings.called(&"the ground");
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
