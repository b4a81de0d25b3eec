//! Class claim: the class that a flow gets if its client's statement about the destination is true.

use bentpipe_schedule::Class;

use crate::target::{MAX_NAME_BYTES, TargetError};
use crate::wire::codec::{Malformed, Reader};

/// A name that a client says on a flow whose target is an address, and the class that the flow may
/// have if the ground finds that the address is the name's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    name: Box<str>,
    /// The class.
    pub class: Class,
}

impl Claim {
    /// `name` has 1 to [`MAX_NAME_BYTES`] bytes.
    pub fn new(name: &str, class: Class) -> Result<Self, TargetError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(TargetError::Name(name.to_owned()));
        }
        Ok(Self { name: name.into(), class })
    }

    /// The name, as the client says it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let class = Class::from_u8(reader.u8()?).ok_or(Malformed)?;
        let length = usize::from(reader.u8()?);
        let name = std::str::from_utf8(reader.take(length)?).map_err(|_| Malformed)?;
        Self::new(name, class).map_err(|_| Malformed)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.class.to_u8());
        out.push(self.name.len() as u8); // at most MAX_NAME_BYTES, see `new`
        out.extend_from_slice(self.name.as_bytes());
    }
}
