//! Single requests, of which the heads cross the link packed: where the cabin reads HTTP in clear and asks
//! an origin for something that did not come with a page.
//!
//! The cabin opens a stream to the ground's half of Split HTTP and says where it should lead; the ground
//! treats it from then on like any other flow to there, but that it puts together again what goes up. What
//! comes down is the origin's bytes as they are. How they are packed is [`bentpipe_prefetch::wire::single`].

mod opening;
mod packed;
mod taken;
mod unpacked;

pub use opening::{Opening, opening};
pub use packed::Packed;
pub use taken::{AskedPacked, Taken};
pub use unpacked::Unpacked;
