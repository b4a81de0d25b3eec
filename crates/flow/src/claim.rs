//! Class claim: the class that a flow gets if its client's statement about the destination is true.

use bentpipe_schedule::Class;

use crate::target::{MAX_NAME_BYTES, TargetError};

/// A class claim: a name that a client stated on a flow whose target is an address, and the class
/// that the flow gets if the ground verifies that the address belongs to the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    name: Box<str>,
    /// The claimed class.
    pub class: Class,
}

impl Claim {
    /// Creates a claim for `name`, which has 1 to [`MAX_NAME_BYTES`] bytes.
    pub fn new(name: &str, class: Class) -> Result<Self, TargetError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(TargetError::Name(name.to_owned()));
        }
        Ok(Self { name: name.into(), class })
    }

    /// Name that the client stated.
    pub fn name(&self) -> &str {
        &self.name
    }
}
