//! Flows whose hubs come and go, in memory.

mod hub;
mod hub_change;
