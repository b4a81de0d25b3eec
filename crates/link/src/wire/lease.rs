//! DEMAND and LEASE: an aircraft requests a rate, and the ground grants it for a limited time.
//!
//! ```text
//! DEMAND  number varint · follows varint · waiting bytes varint · useful bit/s varint
//! LEASE   sequence varint · answers varint · rate bit/s varint · lifetime in ms varint
//! ```
//!
//! On the aircraft's clock, a lease ends its lifetime after the DEMAND that it answers was *sent*.
//! The ground counts from the *arrival* of that DEMAND, which is later. So a lease that has ended
//! for the ground has ended for the aircraft, however long either message was in flight. A DHCP
//! client counts its lease from its own request for the same reason (RFC 2131, section 4.4.1).
//! Either message may be lost or repeated: the largest number counts, and older ones are ignored.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::codec::{Malformed, Reader, put_varint};

/// DEMAND: the data that an aircraft wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Number, which increases with every DEMAND of a session.
    pub number: u64,
    /// Sequence of the LEASE in use; 0 if there is none. Earlier ones will never be used again.
    pub follows: u64,
    /// Bytes that wait to be sent.
    pub waiting_bytes: u64,
    /// Rate that could be used.
    pub useful: BitRate,
}

/// LEASE: a rate granted to an aircraft for a limited time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Sequence, which increases with every grant to an aircraft.
    pub sequence: u64,
    /// Number of the DEMAND from whose sending the lifetime counts.
    pub answers: u64,
    /// Granted rate.
    pub rate: BitRate,
    /// Lifetime of the grant.
    pub lifetime: Duration,
}

impl Demand {
    /// Appends the frame's body.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, self.follows);
        put_varint(out, self.waiting_bytes);
        put_varint(out, self.useful.bps());
    }

    /// Reads the frame's body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            number: reader.varint()?,
            follows: reader.varint()?,
            waiting_bytes: reader.varint()?,
            useful: BitRate::from_bps(reader.varint()?),
        })
    }
}

impl Grant {
    /// Appends the frame's body.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.sequence);
        put_varint(out, self.answers);
        put_varint(out, self.rate.bps());
        put_varint(out, u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX));
    }

    /// Reads the frame's body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            sequence: reader.varint()?,
            answers: reader.varint()?,
            rate: BitRate::from_bps(reader.varint()?),
            lifetime: Duration::from_millis(reader.varint()?),
        })
    }
}
