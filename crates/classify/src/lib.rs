//! Class of a flow, decided by the operator's rules and the visible properties of the flow.
//!
//! The module is pure: bytes, addresses and time are arguments.
//!
//! - [`visible`] reads the name in a client's first bytes.
//! - [`NameTable`] records which addresses our own resolver returned for which names.
//! - [`Rules`] combines both.
//!
//! A rule about domains matches only if a name *and* its address agree, because a client may state
//! any name. If they are not known to agree, the [`Decision`] contains a [`Claim`] that the ground
//! gateway can verify. Until then the flow has the class that it would have without the claim.

#![forbid(unsafe_code)]

mod condition;
mod domain;
mod first_bytes;
mod host;
mod names;
mod police;
mod rules;
mod sni;
mod subject;
mod visible;

pub use condition::net;
pub use condition::{Mac, Ports, Protocol, Who};
pub use domain::{Domain, DomainError, Name};
pub use first_bytes::visible;
pub use names::{
    MAX_ADDRESSES_PER_NAME, MAX_NAMES, MAX_NAMES_CONSIDERED, MAX_TTL, MIN_TTL, NameTable,
};
pub use police::Policer;
pub use rules::{Claim, Condition, Decision, Match, Rule, Rules, Trusted};
pub use subject::{Named, Subject};
pub use visible::{EncryptedHello, Visible};
