//! Real Chromium on loopback, which needs no emulated hosts.

mod browser;
mod site;
