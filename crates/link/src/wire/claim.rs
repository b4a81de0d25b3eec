//! CLAIM: the class that a flow gets if the name its client stated is verified.

use bentpipe_flow::Claim;
use bentpipe_schedule::Class;

use super::codec::{Malformed, Reader};

/// Reads the frame after its flow number.
pub fn parse(reader: &mut Reader<'_>) -> Result<Claim, Malformed> {
    let class = Class::from_u8(reader.u8()?).ok_or(Malformed)?;
    let length = usize::from(reader.u8()?);
    let name = std::str::from_utf8(reader.take(length)?).map_err(|_| Malformed)?;
    Claim::new(name, class).map_err(|_| Malformed)
}

/// Appends the frame after its flow number.
pub fn put(claim: &Claim, out: &mut Vec<u8>) {
    out.push(claim.class.to_u8());
    out.push(claim.name().len() as u8); // at most MAX_NAME_BYTES, see `Claim::new`
    out.extend_from_slice(claim.name().as_bytes());
}
