//! Byte strings with their lengths, in the state of a relay.

use bytes::{Buf, BufMut, TryGetError};

/// Appends `bytes` to `state`.
pub fn put(state: &mut Vec<u8>, bytes: &[u8]) {
    state.put_u32(bytes.len() as u32);
    state.extend(bytes);
}

/// Takes the next byte string from `rest`.
pub fn get(rest: &mut &[u8]) -> Result<Vec<u8>, TryGetError> {
    let requested = rest.try_get_u32()? as usize;
    let (bytes, after) =
        rest.split_at_checked(requested).ok_or(TryGetError { requested, available: rest.len() })?;
    *rest = after;
    Ok(bytes.to_vec())
}
