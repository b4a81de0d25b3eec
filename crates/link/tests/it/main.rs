//! The transport from outside, between two ends and on real sockets.

mod common;

mod classes;
mod congestion;
mod datagrams;
mod hub;
mod io;
mod marks;
mod mtu;
mod security;
mod session;
mod storm;
