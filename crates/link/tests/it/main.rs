//! The transport as its users see it, between two ends and on real sockets.

mod common;

mod classes;
mod congestion;
mod datagrams;
mod floods;
mod flows;
mod hub;
#[cfg(feature = "io")]
mod io;
mod keys;
#[cfg(feature = "io")]
mod marks;
mod mtu;
mod security;
mod session;
mod sharded;
mod shards;
#[cfg(feature = "io")]
mod shards_io;
mod storm;
