//! Experiments: systems under test and workloads on a profile, each in its own testbed.

pub mod attacks;
pub mod browse;
pub mod browser;
pub mod browser_quic;
pub mod cabin_mix;
pub mod call;
pub mod cell;
pub mod choice;
pub mod compare;
pub mod dns;
pub mod engine;
pub mod gate;
pub mod grid;
pub mod http_cache;
pub mod latency;
pub mod learned;
pub mod measure;
pub mod pages;
pub mod pages_browser;
pub mod progress;
pub mod replay;
pub mod report;
pub mod rural_paws;
pub mod stand;
pub mod table;
pub mod transfers;
mod virtual_link;
