//! The scheduler in virtual time, in one binary. `no_alloc` has its own, because it replaces the
//! allocator.

mod common;
mod properties;
mod sharing;
