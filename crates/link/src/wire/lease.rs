//! DEMAND and LEASE: an aircraft asks for a rate, the ground grants it for a while.
//!
//! ```text
//! DEMAND  number varint · follows varint · waiting bytes varint · useful bit/s varint
//! LEASE   sequence varint · answers varint · rate bit/s varint · lifetime in ms varint
//! ```
//!
//! A lease ends its lifetime after the DEMAND that it answers was *sent*, on the aircraft's clock;
//! the ground counts from when that DEMAND *came*, which is later. So what the ground believes to
//! have ended has ended, however long either was under way (as a DHCP client counts its lease from
//! its own request: RFC 2131, section 4.4.1). Either may be lost or repeated; the largest number
//! counts, and what is older is ignored.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::codec::{Malformed, Reader, put_varint};
use crate::lease::{Demand, Grant};

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
