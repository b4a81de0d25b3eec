//! On-board DNS resolver as a value: takes queries and the ground's answers, returns answers and
//! queries for the ground. Time is an argument, a [`std::time::Duration`] since the Unix epoch.
//!
//! [`Resolver`] is the entry point. From the bottom up:
//!
//! | module | contents |
//! |---|---|
//! | `wire` | zero-copy reading of messages, with hickory-proto's decoder |
//! | `parts` | construction of messages, with its encoder |
//! | [`Query`], [`Key`] | a client's query, and the key that questions with the same answer share |
//! | [`Answer`] | a response stored as received; only id, flags, spelling and TTLs are rewritten |
//! | `cache` | answers within a memory bound, their age and popularity |
//! | `limit`, [`Source`] | rate limits of clients, and the sources of queries |
//! | `pending` | pending queries, their retransmission and their waiting clients |
//! | [`Settings`] | lifetimes, staleness and limits |
//! | [`journal`] | persistence, each record under a checksum |
//! | [`push`], `warm_start` | answers that the ground pushes to an aircraft with an empty cache |
//! | [`Designated`] | discovery of the encrypted resolver (DDR) |
//! | [`pad`] | padding of answers on encrypted transports |
//! | [`is_private`] | addresses to which names of the Internet must not lead |
//! | [`io`] | messages on streams |
//! | [`FakeIpPool`] | fake-IP addresses (*instant names*): private addresses that stand for names |
//!
//! ```
//! use std::net::IpAddr;
//! use std::time::Duration;
//! use bentpipe_dns::{Action, Resolver, Room, Settings, Source};
//!
//! let now = Duration::from_secs(1_800_000_000);
//! let mut resolver = Resolver::new(Settings::default(), false, [7; 16]);
//! let client = IpAddr::from([10, 0, 0, 1]);
//! // "www.gov.uk", type A.
//! let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x03gov\x02uk\x00\x00\x01\x00\x01";
//! let answer = resolver.query((1, Source::Stream(client.into())), query, Room::Packet(1232), now);
//!
//! // Nothing is cached yet, so the query goes to the ground.
//! assert!(answer.is_none());
//! assert!(matches!(resolver.poll(), Some(Action::Query { over_stream: false, .. })));
//! ```
//!
//! Messages are not decoded into records and encoded again. DNSSEC, HTTPS and SVCB records (and
//! thereby ECH), unknown types and the spelling of names pass as unchanged bytes.
//!
//! Bounds: [`Settings`] bounds the cache and the pending queries; waiting clients use at most 8
//! MiB; the fake-IP pool holds 65,536 names.

#![forbid(unsafe_code)]

mod action;
mod answer;
mod asker;
mod cache;
mod counts;
pub mod designated;
mod fake_ip;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz;
pub mod io;
pub mod journal;
mod journal_queue;
mod key;
mod known_clients;
mod limit;
mod pad;
mod parts;
mod pending;
mod private;
pub mod push;
mod query;
mod resolver;
mod settings;
mod share;
#[cfg(test)]
mod testing;
mod warm_start;
mod wire;

pub use hickory_proto::op::ResponseCode;

pub use action::{Action, Limited};
pub use answer::{Answer, AnswerError, Kind, min_ttl};
pub use asker::Asker;
pub use counts::Counts;
pub use designated::Designated;
pub use fake_ip::{FakeIpPool, PoolError, PoolUsage};
#[cfg(feature = "fuzzing")]
pub use fuzz::{fuzz_journal, fuzz_message};
pub use key::Key;
pub use pad::{pad, wants_padding};
pub use private::is_private;
pub use query::{Query, Refusal, Room};
pub use resolver::Resolver;
pub use settings::Settings;
pub use share::{QueryUsage, Source};
pub use wire::Malformed;
