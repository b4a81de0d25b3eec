//! The resolver of a cabin, as a value: queries and the ground's answers in, answers and questions for
//! the ground out. Time is a [`std::time::Duration`] since the Unix epoch, and an argument.
//!
//! [`Front`] is the whole of it. Under it, from the bottom up:
//!
//! | module | one idea |
//! |---|---|
//! | `wire` | what stands in a message, and where, by hickory-proto's decoder |
//! | `parts` | a message put together, by its encoder |
//! | [`Query`], [`Key`] | what a client asks, and what two questions must share to have one answer |
//! | [`Answer`] | a message kept as it came: only its id, flags, question's spelling and TTLs are written anew |
//! | `cache` | answers within a bound of bytes, their age, and who still wants them |
//! | [`may_hold`] | what of the room for questions one client gets |
//! | [`Settings`] | how long answers count, how stale they may be, who may ask how much |
//! | [`journal`] | what outlives the process, each record under a checksum |
//! | [`push`] | what the ground sends unasked to an aircraft that begins |
//! | [`Designated`] | what devices are told of the encrypted resolver (DDR) |
//! | [`pad`] | answers over TLS, of lengths that say little |
//! | [`is_private`] | addresses that names of the Internet may not lead to |
//! | [`Pool`] | *instant names*: private addresses that stand for names |
//!
//! Messages are not decoded into records and encoded again: DNSSEC, HTTPS and SVCB (so ECH), types
//! that nobody has heard of, and the spelling of names pass as the bytes that they are.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod cache;
mod counts;
pub mod designated;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz;
pub mod journal;
mod key;
mod known;
mod limit;
mod pad;
mod parts;
mod pool;
mod private;
pub mod push;
mod query;
mod settings;
mod share;
#[cfg(test)]
mod testing;
mod wire;

pub use hickory_proto::op::ResponseCode;

pub use answer::{Answer, Kind, NotAnAnswer, least_ttl};
pub use counts::Counts;
pub use designated::Designated;
pub use front::{Action, Front, Limited};
#[cfg(feature = "fuzzing")]
pub use fuzz::{fuzz_journal, fuzz_message};
pub use key::Key;
pub use pad::{pad, wants_padding};
pub use pool::{NotAPool, Pool};
pub use private::is_private;
pub use query::{Query, Refusal, Room};
pub use settings::Settings;
pub use share::{Holding, Source, may_hold};
pub use wire::Malformed;
