//! Passengers, and the outcome of their pages.

use std::net::IpAddr;

/// Owner of a page: the passenger's address. A number that is reused or shared would give one
/// passenger another's objects.
pub type Passenger = IpAddr;

/// Bytes of a page, once it is settled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that passengers requested and received: the page and its objects, pushed or not.
    pub page_bytes: u64,
    /// Bytes of pushed objects.
    pub pushed_bytes: u64,
    /// Pushed bytes that nobody requested.
    pub wasted_bytes: u64,
}
