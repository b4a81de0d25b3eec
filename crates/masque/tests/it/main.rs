//! Client and server over real sockets, in one binary.

mod datagrams;
mod loopback;
mod proxy;
mod standard;
