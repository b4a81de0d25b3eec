//! Single requests, of which the heads cross the link packed: where the cabin reads HTTP and asks an origin for
//! something that did not come with a page.
//!
//! The cabin opens a stream to the ground's half of Split HTTP and says where it should lead; the ground
//! treats it from then on like any other flow to there, but that it puts together again what goes up. What
//! comes down is the origin's bytes as they are. To a site that is asked over TLS it is the ground that makes
//! TLS, and what comes down says also how it ended. How all that is written is
//! [`bentpipe_prefetch::wire::single`].

mod known;
mod opening;
mod outbox;
mod packed;
mod said;
mod taken;
mod unpacked;

pub use known::{AskedPacked, Known};
#[cfg(any(test, feature = "fuzzing"))]
pub use opening::Leads;
pub use opening::{Opening, opening, opening_of_site};
pub use packed::Packed;
pub use said::{Cuts, Said, end};
pub use unpacked::Unpacked;
