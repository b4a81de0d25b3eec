//! Split HTTP without sockets or clocks: the ground gateway pushes a page's objects before the browser
//! requests them.
//!
//! | Module | Content |
//! |---|---|
//! | [`scan`] | finds the objects that a page will request, while its HTML and CSS stream by |
//! | [`address`] | absolute `http` and `https` URLs, parsed once |
//! | [`referrer`] | Referer of the requests for objects |
//! | [`plan`] | the ground gateway's choice of objects: order and budgets |
//! | [`eligible`] | requests that may be answered this way |
//! | [`pushable`] | responses that may be pushed |
//! | [`wire`] | the protocol: one stream for each page |
//! | [`digest`] | the air gateway's cached objects in a few hundred bytes |
//! | [`passenger`] | owners of pages, and what became of the pages' bytes |
//! | [`push_cache`] | pushed objects at the air gateway: a GET waits for them |
//! | [`budget`] | the bytes that may be pushed, from the share of earlier pushes that was wasted |
//!
//! ```
//! use bentpipe_prefetch::scan::{HtmlScanner, Item};
//!
//! let mut scanner = HtmlScanner::new(&["image/avif"]);
//! let mut urls = Vec::new();
//! let mut report = |item| {
//!     if let Item::Object(object) = item {
//!         urls.push(object.url);
//!     }
//! };
//! scanner.push(b"<link rel=stylesheet href=/a.css><img src=b", &mut report);
//! scanner.push(b".png>", &mut report);
//! scanner.finish(&mut report);
//! assert_eq!(urls, ["/a.css", "b.png"]);
//! ```
//!
//! Time is a `Duration` since the start of the run. Every allocation, loop and wait has a bound, which
//! is a constant or a field of [`plan::Limits`]. The byte layouts are in `docs/split-http.md`.

#![forbid(unsafe_code)]

pub mod address;
pub mod budget;
pub mod digest;
pub mod eligible;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod passenger;
pub mod plan;
pub mod push_cache;
pub mod pushable;
pub mod referrer;
pub mod scan;
pub mod wire;

/// Maximum number of objects that are promised for one page. A page at the 90th percentile of the HTTP
/// Archive has fewer than 200.
pub const MAX_OBJECTS: usize = 512;
