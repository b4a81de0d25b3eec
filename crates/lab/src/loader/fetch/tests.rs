use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::loader::tally::Tally;
use crate::loader::{Load, Tickets};
use crate::site::{Authority, Site};

/// The header of a request as HTTP/1.1 writes it.
fn written(protocol: Protocol, header_bytes: Option<usize>) -> usize {
    let site = Site::page(12, 100, 7);
    let load = Load { header_bytes, ..Load::new(&site, protocol, Duration::from_secs(1)) };
    let tickets = Tickets::new(&Authority::new().unwrap()).unwrap();
    let tally = Arc::new(Tally::new(Instant::now(), &load));
    let dialer = Dialer::new(&load, &tickets, tally).unwrap();
    let request = request(&dialer, 11).unwrap();
    let line = format!("GET {} HTTP/1.1\r\n", request.uri().path());
    let host = match request.uri().host() {
        Some(host) => format!("host: {host}\r\n"),
        None => String::new(),
    };
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    line.len() + host.len() + lines.sum::<usize>() + 2
}

#[test]
fn headers_are_filled_up_to_their_size() {
    for protocol in Protocol::ALL {
        assert_eq!(written(protocol, Some(650)), 650, "{protocol}");
        let own = written(protocol, None);
        assert_eq!(written(protocol, Some(10)), own, "{protocol}");
        assert!(written(protocol, Some(1 << 30)) <= MAX_HEADER_BYTES, "{protocol}");
    }
}
