use std::sync::Arc;
use std::time::Duration;

use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::eligible;
use tokio::time::Instant;

use super::*;
use crate::loader::tally::Tally;
use crate::loader::{Load, Tickets};
use crate::site::{Authority, Site};

fn made(site: &Site, protocol: Protocol, header_bytes: Option<usize>, place: usize) -> Request<()> {
    let load = Load { header_bytes, ..Load::new(site, protocol, Duration::from_secs(1)) };
    let tickets = Tickets::new(&Authority::new().unwrap()).unwrap();
    let tally = Arc::new(Tally::new(Instant::now(), &load));
    request(&Dialer::new(&load, &tickets, tally).unwrap(), place).unwrap()
}

/// Size of the header of the document's request in HTTP/1.1.
fn written(protocol: Protocol, header_bytes: Option<usize>) -> usize {
    let request = made(&Site::page(12, 100, 7), protocol, header_bytes, 0);
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

#[test]
fn split_http_takes_the_requests() {
    let site = Site::page(2, 100, 7);
    for protocol in [Protocol::Http1, Protocol::Http1Close] {
        let [document, object] = [0, 1].map(|place| made(&site, protocol, Some(650), place));
        let (method, headers) = (document.method(), document.headers());
        assert!(eligible::is_page(method, headers, eligible::Condition::OfClient), "{document:?}");
        let address = Address::parse(&site.url("http", 1)).unwrap();
        assert!(eligible::is_object(object.method(), &address, object.headers()), "{object:?}");
        // Pushed objects are not valid for another client, so the user agent must not differ.
        let name = |request: &Request<()>| request.headers()[header::USER_AGENT].clone();
        assert_eq!(name(&document), name(&object));
    }
}
