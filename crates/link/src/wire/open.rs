//! OPEN_DATAGRAMS: the opening of a datagram flow.

use bentpipe_flow::{OpenDatagrams, Target, TargetError};
use bentpipe_schedule::Class;

use super::codec::{Malformed, Reader, put_varint};

/// Tag of the frame.
pub const TAG: u8 = 0x0b;

/// Reads the frame after its flow number.
pub fn parse(reader: &mut Reader<'_>) -> Result<OpenDatagrams, Malformed> {
    let class = Class::from_u8(reader.u8()?).ok_or(Malformed)?;
    let passenger = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let protocol = reader.u8()?;
    let source = u16::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let (target, used) = Target::decode(reader.rest()).map_err(|_| Malformed)?;
    reader.take(used)?;
    Ok(OpenDatagrams { target, protocol, source, class, passenger })
}

/// Appends the frame. Leaves `out` as it was if a name is too long.
pub fn put(open: &OpenDatagrams, flow: u64, out: &mut Vec<u8>) -> Result<(), TargetError> {
    let mut target = Vec::new();
    open.target.encode(&mut target)?;
    out.push(TAG);
    put_varint(out, flow);
    out.push(open.class.to_u8());
    put_varint(out, u64::from(open.passenger));
    out.push(open.protocol);
    put_varint(out, u64::from(open.source));
    out.extend_from_slice(&target);
    Ok(())
}
