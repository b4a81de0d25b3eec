//! A shared HTTP cache for the near side of a long link.
//!
//! [`Cache::serve`] answers a GET or a HEAD from what is stored, or asks an [`Origin`] and stores what it
//! may. The policy is arithmetic on heads and moments: `directives` reads Cache-Control, [`Head`] knows
//! freshness and age (RFC 9111 §4.2), `policy` what may be stored and used (§3, §4; RFC 5861), `validate`
//! conditional requests (§4.3), `range` parts (RFC 9110 §14), [`Selection`] Vary (§4.1). None of these
//! knows a clock or a socket. `store` keeps heads and the latest bodies in memory and bodies on disk,
//! each within a budget; `fill` is a body that is read while it is written, `flight` one fetch for all
//! who ask for the same.
//!
//! What is stored lies under a [`Key`]: scheme, host, port, path and query. The caller makes the key, and
//! has to be certain that what its [`Origin`] brings is what that address means, or say that it is not
//! ([`Answer::trusted`]).
//!
//! # What it never stores
//!
//! Beyond what RFC 9111 forbids: any answer with Set-Cookie; any answer to a request with Authorization;
//! an answer to a request with Cookie unless it says `public` or `s-maxage`; partial content; answers
//! that vary by Cookie where there was one; answers to requests with fields that browsers do not send
//! (X-Forwarded-Host and the like) unless Vary names these.
//!
//! # Objects that come unasked
//!
//! - *Pushed*: an [`Origin`] may have an answer that the ground sent before it was asked for, and says so
//!   ([`Answer::pushed`]): it is stored like any other, and counts as a hit.
//! - *Whole*: [`Cache::insert`] stores an object by the same policy.
//! - *Pinned*: [`Cache::insert`] with `pinned`, or [`Cache::pin`]: nothing displaces it, up to half of the
//!   room, and it is pinned still after a restart. It is validated like any other when it is stale.
//! - *Ahead of everybody*: [`Cache::ahead`] fetches an object that nobody has asked for, or has it
//!   confirmed, and pins it.
//! - *A digest* of what is here is made of [`Cache::fresh_hashes`], 64 bits an object, by address prefix;
//!   how it is coded for the link is for those who send it.
//!
//! # Bounds
//!
//! Memory: [`Settings::memory_bytes`] for heads, bodies in memory, and bodies on their way, which have at
//! most half of it, each no more than it leaves to others: with 64 MiB, one of 16 MiB, or two of 10 MiB
//! each, and small ones beside. A body beyond that, larger than [`Settings::object_bytes`], or longer on
//! its way than [`MOST_FILLING`], passes through in a window of [`WINDOW_BYTES`] and is not stored. A
//! reader that is slower there than others delays them for [`MOST_DELAY`] at most. What is stored and larger than
//! [`MOST_FROM_MEMORY`] is given from disk a segment at a time; a body that is read from memory counts until its
//! last reader is gone, stored or not. Disk:
//! [`Settings::disk_bytes`], before each write; what waits for it has at most 32 MiB in 4,096 objects.
//! Full of what cannot go, either passes requests through. At most 65,536 objects, and 8 answers under one
//! address.

mod ahead;
mod answer;
mod body;
mod cache;
mod collapse;
mod directives;
mod fetch;
mod fill;
mod flight;
mod give;
mod head;
mod keep;
mod key;
mod origin;
mod policy;
mod pump;
mod range;
mod recent;
mod record;
mod status;
mod store;
mod validate;
mod vary;

pub use ahead::{Ahead, Budget, NotAhead};
pub use body::Body;
pub use cache::{
    CACHE_STATUS, Cache, Clock, FURTHEST_RANGE_START, MOST_BEHIND_RANGE, PATIENCE, Served,
};
pub use directives::is_only_if_cached;
pub use fill::{MOST_DELAY, SEGMENT_BYTES, WINDOW_BYTES};
pub use head::{Head, Lifetime, Moment, Rules};
pub use key::{Key, MOST_KEY_BYTES, Scheme};
pub use origin::{Answer, Confirming, Failure, ForOthers, Origin, OriginBody, STALLED, StandIn};
pub use policy::{Use, invalidates, storable, usable};
pub use pump::{MOST_FILLING, STALL};
pub use status::{Forwarded, Outcome};
pub use store::{Counts, MOST_FROM_MEMORY, Occupancy, OpenError, Settings};
pub use vary::Selection;

/// For the fuzz target: reads any bytes as the file of a stored head.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use record::fuzz as fuzz_record;
