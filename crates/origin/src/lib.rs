//! Requests to the origins of HTTP objects, for either gateway.
//!
//! | module | contents |
//! |---|---|
//! | [`idle_pool`] | idle connections |
//! | [`tls`] | TLS to the origins of sites |
//! | [`request_error`] | reasons why a request fails while the link is up |
//! | [`via`] | the gateway's name in forwarded messages |

#![forbid(unsafe_code)]

pub mod idle_pool;
pub mod request_error;
pub mod tls;
pub mod via;
