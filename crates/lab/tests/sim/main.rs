//! Tests that need no emulated hosts: the simulator in exact virtual time, and Chromium on
//! loopback. They are one binary, because each binary takes disk space and time to link.
//!
//! `cargo test -p bentpipe-lab --test sim -- NAME` runs the tests whose names contain NAME.

mod cabin;
mod call;
mod chromium;
mod classes;
mod fade;
mod grid;
mod learned;
mod masque;
mod masque_datagrams;
mod mesh;
mod modem;
mod mtu;
mod net;
mod preload;
mod quic_order;
mod share;
mod suite;
mod two_radios;
