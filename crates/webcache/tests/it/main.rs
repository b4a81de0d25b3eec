//! Tests of the cache from outside, in one binary.

mod behaviour;
mod collapse;
mod common;
mod disk;
mod disk_failures;
mod preload;
mod pushed;
mod rfc9111;
