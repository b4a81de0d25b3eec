//! Orders to the client's host, and the ports of the server.

use bentpipe_link::Class;

use crate::traffic::{Carry, Talk};

/// Server port for a class.
pub(super) fn port(class: Class) -> u16 {
    7000 + u16::from(class.to_u8())
}

/// Next action for the client's host.
pub(super) enum Order {
    Carry(usize, Carry),
    Talk(usize, Talk),
}
