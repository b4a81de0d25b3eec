//! Packets that came.

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngCore;

use super::Session;
use super::path::Candidate;
use crate::flow::Violation;
use crate::lane::Arrival;
use crate::wire::codec::Reader;
use crate::wire::frame::{Frame, Packet, Symbol};
use crate::wire::header::DataHeader;
use crate::wire::report::Report;

/// How often a challenge is sent to a new address before the move is given up.
const CHALLENGE_TRIES: u32 = 6;

impl Session {
    /// Opens a packet under the keys it names, current or old; `false` for a forgery or a replay.
    pub(crate) fn unseal(
        &mut self,
        header: &DataHeader,
        sealed: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> bool {
        if header.receiver == self.keys.local {
            return self.keys.open(header, sealed, plaintext);
        }
        let old = self.old_keys.as_mut().filter(|(keys, _)| keys.local == header.receiver);
        old.is_some_and(|(keys, _)| keys.open(header, sealed, plaintext))
    }

    /// Acts on an authenticated packet. `bytes` is its length as it came.
    pub(crate) fn receive(
        &mut self,
        header: &DataHeader,
        plaintext: &[u8],
        from: SocketAddr,
        bytes: usize,
        now: Duration,
    ) {
        if header.path != self.path.id || self.closing {
            return;
        }
        self.counters.packets_received += 1;
        self.heard(now);
        let newest = self.path.came(header.number, now);
        let Ok(packet) = Packet::parse(plaintext) else {
            return self.break_off(Violation("an authenticated packet that does not parse"));
        };
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
        // Each side believes only what the other's part is: the ground grants, the air asks.
        match (packet.grant, packet.demand) {
            (Some(grant), _) if self.opens => self.path.lease.take_grant(&grant),
            (_, Some(demand)) if !self.opens => self.path.lease.hear_demand(demand),
            _ => {}
        }
        let gap = packet.symbol.is_some_and(|symbol| self.take_symbol(symbol, header.number, now));
        if asks {
            self.reports.came(gap, self.path.rtt.get(), now);
        }
        if packet.close {
            self.peer_closed = true;
        }
    }

    /// The peer is there.
    pub(super) fn heard(&mut self, now: Duration) {
        self.path.waiting_since = None;
        if let Some(quiet) = self.quiet.take() {
            tracing::info!(peer = %self.path.peer, after = ?now.saturating_sub(quiet.since), "the link is back");
        }
    }

    fn take_report(&mut self, report: &Report, now: Duration) {
        if report.path != self.path.id {
            return;
        }
        let Some((lost, judged)) = self.path.reported(report, now) else {
            return self.break_off(Violation("a report of packets that were never sent"));
        };
        self.counters.packets_lost += lost;
        self.counters.packets_judged += judged;
        let late_by = self.path.peer_late_by;
        for lane_report in &report.lanes {
            let lane = lane_report.lane as usize;
            let before = self.send[lane].retained_bytes();
            let Some(found) = self.send[lane].report(lane_report, late_by) else {
                return self.break_off(Violation("a report of symbols that were never sent"));
            };
            if found > 0 || self.send[lane].retained_bytes() < before {
                self.probes[lane] = 0;
            }
        }
        self.tune();
    }

    /// Acts on a symbol that is new; `true` when it shows a gap that was not known.
    fn take_symbol(&mut self, symbol: Symbol<'_>, packet: u64, now: Duration) -> bool {
        let lane = &mut self.recv[symbol.lane as usize];
        if self.flows.is_shattered() && symbol.number > lane.base() {
            return false; // as if it were lost: it comes again
        }
        let gap = match lane.arrive(symbol.number, packet) {
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
        let mut reader = Reader::new(symbol.content);
        while !reader.is_empty() {
            let frame = match Frame::parse(&mut reader) {
                Ok(frame) => frame,
                Err(_) => {
                    self.break_off(Violation("a symbol that does not parse"));
                    return false;
                }
            };
            if let Err(violation) = self.flows.take_frame(frame, now) {
                self.break_off(violation);
                return false;
            }
        }
        gap
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
                tracing::info!(was = %self.path.peer, is = %from, "the peer moved");
                self.path.peer = from;
                self.path.candidate = None;
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
