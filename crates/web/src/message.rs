//! Reading, rewriting and generating of HTTP messages in a proxy.

pub mod codings;
pub mod framing;
pub mod head;
pub mod inflate;
pub mod interim;
pub mod refuse;
pub mod respond;
pub mod sanitizer;
