//! Real Chromium on loopback, which needs no emulated hosts.

mod accessibility;
mod browser;
mod gateway_pages;
mod site;
