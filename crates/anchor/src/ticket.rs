//! Tickets: what an egress lets an aircraft take to another hub.
//!
//! A ticket is sealed by the egress that issued it. It holds for one flow of one aircraft at this
//! egress, in the session in which it was issued and in later ones, until it expires. The hub that
//! forwards it can only read for which egress it is.

use std::time::Duration;

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};

/// Length of a ticket: egress (8 bytes), session (8), expiry (8), seal (16).
pub const TICKET_BYTES: usize = 40;

/// Time for which a ticket holds. A flow that is longer on one carrier ends at the next change. The
/// egress's clock counts it, from the egress's start.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Number of a flow, drawn by the air.
pub type FlowId = [u8; 16];

/// Number of an egress: the first bytes of its public key.
pub type EgressId = [u8; 8];

/// A sealed ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket([u8; TICKET_BYTES]);

impl From<[u8; TICKET_BYTES]> for Ticket {
    fn from(bytes: [u8; TICKET_BYTES]) -> Self {
        Self(bytes)
    }
}

impl Ticket {
    /// Bytes on the wire.
    pub fn as_bytes(&self) -> &[u8; TICKET_BYTES] {
        &self.0
    }

    /// Egress that can open the ticket.
    pub fn egress(&self) -> EgressId {
        self.number(0)
    }

    fn number(&self, from: usize) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[from..from + 8]);
        bytes
    }
}

/// Key with which an egress seals its tickets, drawn at its start.
pub struct TicketKey {
    key: [u8; 32],
    egress: EgressId,
}

impl TicketKey {
    /// Creates a key from random bytes.
    pub fn new(key: [u8; 32], egress: EgressId) -> Self {
        Self { key, egress }
    }

    /// Number of the egress.
    pub fn egress(&self) -> EgressId {
        self.egress
    }

    /// The key itself, for the next process of this egress.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.key
    }

    /// Issues a ticket for a flow, in the aircraft's session `session`.
    pub fn issue(&self, aircraft: &[u8; 32], id: &FlowId, session: u64, now: Duration) -> Ticket {
        let expiry = (now + TICKET_LIFETIME).as_secs();
        let mut ticket = [0; TICKET_BYTES];
        ticket[..8].copy_from_slice(&self.egress);
        ticket[8..16].copy_from_slice(&session.to_be_bytes());
        ticket[16..24].copy_from_slice(&expiry.to_be_bytes());
        let seal: [u8; 16] = self.seal(&ticket, aircraft, id).finalize_fixed().into();
        ticket[24..].copy_from_slice(&seal);
        Ticket(ticket)
    }

    /// Returns `true` if this key has sealed the ticket for the flow, not in a later session than
    /// `session`, and it has not expired.
    pub fn holds(
        &self,
        ticket: &Ticket,
        aircraft: &[u8; 32],
        id: &FlowId,
        session: u64,
        now: Duration,
    ) -> bool {
        use blake2::digest::Mac;
        let seal = self.seal(&ticket.0, aircraft, id);
        // Compares in constant time.
        seal.verify_slice(&ticket.0[24..]).is_ok()
            && ticket.egress() == self.egress
            && u64::from_be_bytes(ticket.number(8)) <= session
            && u64::from_be_bytes(ticket.number(16)) > now.as_secs()
    }

    fn seal(
        &self,
        ticket: &[u8; TICKET_BYTES],
        aircraft: &[u8; 32],
        id: &FlowId,
    ) -> Blake2sMac<U16> {
        let mut seal = Blake2sMac::<U16>::new((&self.key).into());
        for part in [&b"bentpipe ticket v1"[..], aircraft, id, &ticket[..24]] {
            Update::update(&mut seal, part);
        }
        seal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_holds_for_its_flow_aircraft_egress_session_and_time() {
        let (key, now) = (TicketKey::new([7; 32], [1; 8]), Duration::from_secs(5));
        let (aircraft, id) = ([2; 32], [3; 16]);
        let ticket = key.issue(&aircraft, &id, 9, now);
        assert!(key.holds(&ticket, &aircraft, &id, 9, now));
        assert!(key.holds(
            &ticket,
            &aircraft,
            &id,
            10,
            now + TICKET_LIFETIME - Duration::from_secs(1)
        ));
        assert!(!key.holds(&ticket, &[4; 32], &id, 9, now), "another aircraft");
        assert!(!key.holds(&ticket, &aircraft, &[4; 16], 9, now), "another flow");
        assert!(!key.holds(&ticket, &aircraft, &id, 8, now), "an earlier session");
        assert!(!key.holds(&ticket, &aircraft, &id, 9, now + TICKET_LIFETIME), "too late");
        let restarted = TicketKey::new([8; 32], [1; 8]);
        assert!(!restarted.holds(&ticket, &aircraft, &id, 9, now), "another key");
        let elsewhere = TicketKey::new([7; 32], [2; 8]);
        assert!(!elsewhere.holds(&ticket, &aircraft, &id, 9, now), "another egress");
        for bit in 0..TICKET_BYTES * 8 {
            let mut forged = ticket;
            forged.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.holds(&forged, &aircraft, &id, 9, now), "bit {bit}");
        }
    }
}
