//! Passengers, and the outcome of their pages.

use std::net::IpAddr;

/// Owner of a page: the passenger's address. A number that is reused or shared would give one
/// passenger another's objects.
pub type Passenger = IpAddr;

/// The IPv6 /64 from which a passenger may choose addresses (RFC 4291 section 2.5.4). Often a whole
/// cabin shares one.
pub fn network(passenger: Passenger) -> Option<u64> {
    match passenger.to_canonical() {
        IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
        IpAddr::V4(_) => None,
    }
}

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
