//! A shared HTTP cache for the near side of a slow or expensive link.
//!
//! [`Cache::serve`] answers a GET or HEAD from the store. If it cannot, it sends the request to an
//! [`Origin`] and stores the response if it may. The rules are RFC 9111 and RFC 5861, as a shared
//! cache applies them.
//!
//! ```
//! # use std::sync::Arc;
//! # use bentpipe_webcache::*;
//! # use futures_util::future::BoxFuture;
//! # use http::{Request, Response};
//! # use http_body_util::{BodyExt, Full};
//! struct Hello;
//!
//! impl Origin for Hello {
//!     fn send(&self, _: OriginRequest) -> BoxFuture<'static, Result<Answer, OriginError>> {
//!         let body = Full::new("hello".into()).map_err(|never| match never {}).boxed_unsync();
//!         let mut response = Response::new(body);
//!         response.headers_mut().insert("cache-control", "max-age=60".parse().unwrap());
//!         Box::pin(async { Ok(Answer { response, trusted: true, pushed: false }) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::open(&Settings::default(), Rules::default())?;
//! let origin: Arc<dyn Origin> = Arc::new(Hello);
//! let key = Key::new(Scheme::Http, "example.net", 80, "/").expect("the key is short");
//! let request = Request::get("/").body(())?;
//! for expected in [Outcome::Miss(Forwarded::UriMiss), Outcome::Hit] {
//!     let served = cache.serve(&key, &request, &origin).await;
//!     assert_eq!(served.outcome, expected);
//!     assert_eq!(served.response?.into_body().collect().await?.to_bytes(), "hello");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | `directives` | Cache-Control (RFC 9111 §5.2) and CDN-Cache-Control (RFC 9213) |
//! | `head` | freshness and age (§4.2) |
//! | `policy` | what may be stored (§3) and reused (§4, RFC 5861) |
//! | `validate` | conditional requests (§4.3) |
//! | `range` | byte ranges (RFC 9110 §14) |
//! | `vary` | selection by Vary (§4.1) |
//! | `store` | headers and recent bodies in memory, bodies on disk, each within a budget |
//! | `fill` | a body that is read while it is written |
//! | `flight`, `collapse` | one fetch for all clients that request the same key |
//! | `serve`, `fetch`, `pump`, `respond` | the path of a request and of its response |
//! | `preload` | objects that are fetched before any client requests them |
//! | `admin` | insert, pin, invalidate and list objects |
//!
//! The first six know neither a clock nor a socket: they compute on header fields and moments.
//!
//! # Keys
//!
//! A [`Key`] is scheme, host, port, path and query. The caller makes it. The caller's [`Origin`] must
//! be certain that its response comes from that address, or set [`Answer::trusted`] to `false`.
//!
//! # Never stored
//!
//! The cache is stricter than RFC 9111. It does not store:
//!
//! - a response with Set-Cookie;
//! - a response to a request with Authorization;
//! - a response to a request with Cookie, unless it says `public` or `s-maxage`;
//! - a response that varies by Cookie, if the request had one;
//! - a response to a request with fields that browsers do not send, such as X-Forwarded-Host, unless
//!   Vary names these fields;
//! - partial content.
//!
//! # Objects without a client's request
//!
//! - *Pushed*: the [`Origin`] already has the response when the request comes, and sets
//!   [`Answer::pushed`]. It is stored like any other, and counts as a hit.
//! - *Inserted*: [`Cache::insert`] stores a whole object by the same policy.
//! - *Pinned*: [`Cache::pin`] protects an object from eviction, also across restarts. Pinned objects
//!   use at most half of the space. A stale one is validated like any other.
//! - *Preloaded*: [`Cache::preload`] fetches or validates an object, and pins it.
//!
//! [`Cache::fresh_hashes`] lists the fresh objects of an origin, 64 bits each, for a cache digest.
//!
//! # Bounds
//!
//! | Resource | Bound |
//! |---|---|
//! | memory: headers, recent bodies, transfers | [`Settings::memory_bytes`] |
//! | memory for transfers | half of it; each transfer at most what it leaves to others: with 64 MiB, one of 16 MiB, or two of 10 MiB each and small ones |
//! | stored object | [`Settings::object_bytes`], received within [`MAX_FILL_TIME`] |
//! | transfer of an object that is not stored | a window of [`WINDOW_BYTES`] |
//! | delay by a slow reader of such a transfer | [`MAX_READER_DELAY`] |
//! | body that is served from memory, if a disk has it | [`MAX_FROM_MEMORY_BYTES`]; a larger one is read from disk, a segment at a time |
//! | disk, reserved before each write | [`Settings::disk_bytes`] |
//! | pending writes | 32 MiB in 4,096 objects |
//! | objects, and responses under one key | 65,536, and 8 |
//!
//! A body in memory counts until its last reader is gone, even if it was evicted meanwhile. If nothing
//! can be evicted, new responses are forwarded without being stored.

#![forbid(unsafe_code)]

mod admin;
mod answer;
mod body;
mod cache;
mod collapse;
mod directives;
mod error;
mod fetch;
mod fill;
mod flight;
mod head;
mod key;
mod origin;
mod policy;
mod preload;
mod pump;
mod range;
mod recent;
mod record;
mod respond;
mod serve;
mod status;
mod store;
mod validate;
mod vary;

pub use body::Body;
pub use cache::{CACHE_STATUS, Cache, Clock, MAX_COLLAPSE_WAIT, Served};
pub use directives::is_only_if_cached;
pub use error::OriginError;
pub use fetch::MAX_WHOLE_FOR_RANGE_BYTES;
pub use fill::{MAX_READER_DELAY, SEGMENT_BYTES, WINDOW_BYTES};
pub use flight::Waiters;
pub use head::{Head, Lifetime, Moment, Rules};
pub use key::{Key, MAX_KEY_BYTES, Scheme};
pub use origin::{Answer, Origin, OriginBody, OriginRequest};
pub use policy::{Use, invalidates, storable, usable};
pub use preload::{Budget, PreloadError, Preloaded};
pub use pump::{MAX_FILL_TIME, STALL};
pub use serve::MAX_RANGE_START;
pub use status::{Forwarded, Outcome};
pub use store::{Counts, MAX_FROM_MEMORY_BYTES, Occupancy, OpenError, Settings};
pub use vary::Selection;

/// Decodes any bytes as the file of a stored header, for the fuzz target.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use record::fuzz as fuzz_record;
