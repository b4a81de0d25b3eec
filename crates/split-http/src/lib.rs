//! Split HTTP: whole pages in one round trip.
//!
//! `bentpipe-prefetch` contains the decisions and the wire format. This module contains the two
//! endpoints with their streams and connections:
//!
//! - [`GroundPages`] fetches a page and the objects that the page will request.
//! - [`AirPages`] requests the page, and keeps the objects until the browser requests them.
//!
//! Both work on any stream.
//!
//! | module | contents |
//! |---|---|
//! | `air`, `carry`, `page`, `object` | the air's end: pages in progress, and promised objects |
//! | `push_budgets`, `negative_cache` | accounts of pages in progress, and pages that the ground refuses |
//! | `ground`, `serve`, `session`, `inbox`, `out` | the ground's end: a page with its objects, and its stream |
//! | `fetch`, `pool` | requests to origins, and idle connections |
//! | `quota` | slots for pages and downloads |

#![forbid(unsafe_code)]

mod air;
mod carry;
mod fetch;
mod ground;
mod inbox;
mod negative_cache;
mod object;
mod out;
mod page;
mod pool;
mod push_budgets;
mod quota;
mod serve;
mod session;

use bentpipe_metering::{counters, refusals};
use bentpipe_relay::flows;

pub use air::{AirPages, AirSettings, Reader};
pub use bentpipe_prefetch::eligible::{Condition, is_object, is_page};
pub use fetch::{Connection, Origins};
pub use ground::{GroundPages, GroundSettings};
pub use negative_cache::UNSERVED_FOR;
pub use object::{ObjectBody, PromiseBroken};
pub use page::{Page, PageBody};

#[cfg(test)]
mod tests;
