//! Split HTTP, without sockets or clocks: what lets the ground send a page's objects before the
//! cabin asks for them.
//!
//! | module | one idea |
//! |---|---|
//! | [`scan`] | finds the objects that a page will ask for, while its HTML and CSS stream by |
//! | [`address`] | an absolute `http` or `https` URL that may be asked for, parsed once |
//! | [`referrer`] | what the origins of objects are told of whose page it is |
//! | [`plan`] | which of them are fetched, in what order, within which budgets |
//! | [`ask`] | which requests may be answered so |
//! | [`judge`] | which answers may travel unasked |
//! | [`wire`] | the protocol between the two halves: one stream for each page, or for single requests with packed heads |
//! | [`digest`] | what the cabin has already, in a few hundred bytes |
//! | [`promised`] | on board: what is on its way, so that a GET waits for it |
//! | [`account`] | on board: how many pushed bytes were in vain, and so how many more may be risked |
//!
//! Time is a `Duration` since the run began. Nothing here allocates, loops or waits without a bound;
//! each bound is a constant or a field of [`plan::Limits`]. The byte layouts are in
//! `docs/split-http.md`.

#![forbid(unsafe_code)]

pub mod account;
pub mod address;
pub mod ask;
pub mod digest;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod judge;
pub mod plan;
pub mod promised;
pub mod referrer;
pub mod scan;
pub mod wire;

/// The most objects that are promised for one page. A page of the HTTP Archive's 90th percentile
/// has fewer than 200.
pub const MAX_OBJECTS: usize = 512;
