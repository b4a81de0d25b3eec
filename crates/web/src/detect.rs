//! Detection of a connection's protocol from its first bytes.

pub mod http;
pub mod tls;
