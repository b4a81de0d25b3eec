//! Byte layouts: parsers of received bytes and writers of sent bytes, without state.
//!
//! | file | contents |
//! |---|---|
//! | `codec` | integers and varints |
//! | `header` | the cleartext header of every datagram |
//! | `frame` | frames of a packet, and of a symbol |
//! | `report` | REPORT |
//! | `curve` | CURVE |
//! | `down` | DOWN |
//! | `lease` | DEMAND and LEASE |
//! | `claim` | CLAIM |
//! | `open` | OPEN_DATAGRAMS |
//! | `lane` | lane numbers |

pub mod claim;
pub mod codec;
pub mod curve;
pub mod down;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod header;
pub mod lane;
pub mod lease;
pub mod open;
pub mod report;

#[cfg(test)]
mod tests;
