//! Flows whose hubs come and go, in memory.

mod datagrams;
mod directory;
mod forwarding;
mod handover;
mod hub;
mod hub_change;
mod memory;
