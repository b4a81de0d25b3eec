//! The Bentpipe radio transport: encrypted, paced at a lease, reliable by symbol, delivered by flow.

mod code;
mod target;

pub use bentpipe_schedule::Class;
pub use code::ResetCode;
pub use target::{Host, MAX_NAME_BYTES, Target, TargetError};
