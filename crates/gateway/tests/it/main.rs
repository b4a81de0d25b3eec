//! Both gateways over loopback, with the link between them in memory.

mod bench;
mod claims;
mod dns;
mod http;
mod limits;
mod marks;
mod pages;
mod paths;
mod ping;
mod policy;
mod preload;
mod relay;
mod reload;
mod single;
mod site;
mod socks;
mod status;
mod tproxy;
mod tproxy_udp;
mod transports;
mod udp;
mod unbound;
mod web;
mod web_tproxy;
mod web_tricks;
mod wire;
