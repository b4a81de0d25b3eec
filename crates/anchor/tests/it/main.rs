//! Flows whose hubs come and go, in memory.

mod datagrams;
mod handover;
mod hub;
mod hub_change;
mod memory;
