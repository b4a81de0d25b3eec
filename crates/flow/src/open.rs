//! The opening of a datagram flow.

use bentpipe_schedule::Class;

use crate::target::Target;

/// Description of a datagram flow to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDatagrams {
    /// Destination. The port is 0 if the protocol has none.
    pub target: Target,
    /// IP protocol number: 17 is UDP, 1 and 58 are echo, anything else is raw.
    pub protocol: u8,
    /// The client's port; 0 if there is none.
    pub source: u16,
    /// Class.
    pub class: Class,
    /// Number of its passenger.
    pub passenger: u32,
}
