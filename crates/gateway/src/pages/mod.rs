//! Split HTTP: whole pages in one round trip.
//!
//! What is decided, and how it is written, is `bentpipe-prefetch`; here are its two ends with their
//! streams and connections. [`GroundPages`] fetches a page and what it will ask for, [`AirPages`] asks
//! for it and keeps what comes until it is asked for. Either works on any stream.

mod air;
mod carry;
mod fetch;
mod ground;
mod ledger;
mod object;
mod out;
mod places;
mod pool;
mod session;
mod unasked;

pub use air::{AirPages, AirSettings, Page, PageBody};
pub use bentpipe_prefetch::ask::{Condition, is_object, is_page};
pub use fetch::{Connection, Origins};
pub use ground::{GroundPages, GroundSettings};
pub use object::{ObjectBody, PromiseBroken};
pub use unasked::UNSERVED_FOR;

#[cfg(test)]
mod tests;
