//! Loads over this machine's loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::site::{Authority, Resource, ServerSettings, Shape, SiteServer};
use crate::site::{Ports, Site, TlsVersion};

/// Ports that an unprivileged process may use.
const PORTS: Ports = Ports { http: 18080, https: 18443, proxy: 18843 };
const DEADLINE: Duration = Duration::from_secs(60);

/// A site at its own loopback addresses, and its servers.
struct Served {
    site: Site,
    authority: Authority,
    tls: TlsVersion,
    _server: SiteServer,
}

/// Serves a site at addresses that no other test uses: all of 127.0.0.0/8 is available, and the
/// process ID distinguishes this process from others.
fn served(mut site: Site, tls: TlsVersion) -> Served {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for domain in &mut site.domains {
        let number = (std::process::id() << 8) + NEXT.fetch_add(1, Ordering::Relaxed) + 2;
        let host = number & 0x00ff_ffff;
        domain.address = IpAddr::V4(Ipv4Addr::from_bits(0x7f00_0000 | host));
    }
    let authority = Authority::new().unwrap();
    let settings = ServerSettings { ports: PORTS, tls, ..ServerSettings::new(authority.clone()) };
    let _server = SiteServer::start_here(&site, &settings).unwrap();
    Served { site, authority, tls, _server }
}

impl Served {
    fn load(&self, protocol: Protocol) -> Load<'_> {
        Load {
            ports: PORTS,
            tls: self.tls,
            rates: true,
            ..Load::new(&self.site, protocol, DEADLINE)
        }
    }

    fn tickets(&self) -> Tickets {
        Tickets::new(&self.authority).unwrap()
    }
}

fn model() -> Site {
    let shape = Shape { connections: 9, kilobytes: 90.0, requests: 20.0, domains: 3.0 };
    Site::model("three", &shape, 7, 1).unwrap()
}

/// Checks a load without failures.
fn check(load: &Load<'_>, visit: &Visit) {
    let failed: Vec<_> = visit.entries.iter().filter(|entry| entry.failed.is_some()).collect();
    assert!(!visit.failed(), "{}: {failed:?}", load.protocol);
    assert_eq!(visit.bytes(), load.site.bytes(), "{}", load.protocol);
    assert_eq!(visit.rates.iter().flatten().sum::<u64>(), load.site.bytes());
    for (entry, resource) in visit.entries.iter().zip(&load.site.resources) {
        assert_eq!(entry.bytes, resource.bytes);
        assert_eq!(entry.status, Some(200));
        // An object begins only when the object in which it is found is complete.
        if let Some(after) = resource.after {
            let found = &visit.entries[after];
            assert!(entry.started >= found.started + found.time(), "{}", entry.url);
        }
        assert!(entry.started + entry.time() <= visit.took);
    }
}

#[tokio::test]
async fn every_protocol_loads_a_page_of_twenty_objects() {
    let served = served(Site::page(20, 5_000, 1), TlsVersion::Tls13);
    for protocol in Protocol::ALL {
        let load = served.load(protocol);
        let visit = super::load(&load, &mut served.tickets()).await;
        check(&load, &visit);
        assert_eq!(visit.entries.len(), 21, "{protocol}");
        let expected = match protocol {
            Protocol::Http1 | Protocol::Http1Tls | Protocol::Http1TlsResumed => 6,
            Protocol::Http1Close => 21,
            _ => 1,
        };
        assert_eq!(visit.connections, expected, "{protocol}");
        assert_eq!(visit.connections_dropped, 0, "{protocol}");
    }
}

#[tokio::test]
async fn a_load_over_http3_is_logged_and_none_that_only_brings_tickets() {
    let served = served(Site::page(3, 5_000, 1), TlsVersion::Tls13);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sqlog");
    let qlog = Qlog::create(&path).unwrap();
    let load = Load { qlog: Some(&qlog), ..served.load(Protocol::Http3ZeroRtt) };
    let mut tickets = served.tickets();
    warm(&load, &mut tickets, 7).await.unwrap();
    let events = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&path).unwrap();
        let records = text.split('\x1e').skip(2);
        records.map(|record| serde_json::from_str(record).unwrap()).collect()
    };
    let visit = super::load(&load, &mut tickets).await;
    check(&load, &visit);
    drop(qlog);
    let events = events();
    let groups: std::collections::BTreeSet<_> =
        events.iter().map(|event| event["group_id"].to_string()).collect();
    // One group with the ID before the server's answer, and one with the ID after it.
    assert_eq!(groups.len(), 2 * visit.connections as usize, "{groups:?}");
    for name in ["packet_sent", "packet_received"] {
        let is_it = |event: &&serde_json::Value| event["name"].as_str().unwrap().ends_with(name);
        assert!(events.iter().filter(is_it).count() > 5, "{name}: {events:?}");
    }
}

/// There are more rounds than allowed connections, and each object is found in the one before. A
/// free connection must be reused for the next request.
#[tokio::test]
async fn late_objects_use_a_free_connection() {
    let mut site = Site::page(12, 1_000, 1);
    for (number, resource) in site.resources.iter_mut().enumerate().skip(1) {
        resource.after = Some(number - 1);
    }
    let served = served(site, TlsVersion::Tls13);
    for protocol in [Protocol::Http1, Protocol::Http1Tls] {
        let load = Load { deadline: Duration::from_secs(20), ..served.load(protocol) };
        let visit = super::load(&load, &mut served.tickets()).await;
        check(&load, &visit);
        assert_eq!(visit.connections, 1, "{protocol}");
    }
}

#[tokio::test]
async fn a_site_of_three_domains_is_loaded_in_the_order_of_its_graph() {
    let served = served(model(), TlsVersion::Tls12);
    for protocol in Protocol::ALL {
        let load = served.load(protocol);
        let visit = super::load(&load, &mut served.tickets()).await;
        check(&load, &visit);
        match protocol {
            Protocol::Http2Proxied => assert_eq!(visit.connections, 1),
            Protocol::Http2 | Protocol::Http3 | Protocol::Http3ZeroRtt => {
                assert_eq!(visit.connections, 3);
            }
            Protocol::Http1Close => assert_eq!(visit.connections, 20),
            _ => assert!((3..=18).contains(&visit.connections), "{}", visit.connections),
        }
    }
}

#[tokio::test]
async fn a_second_visit_resumes_its_sessions() {
    for tls in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let served = served(Site::page(20, 3_000, 1), tls);
        for protocol in Protocol::ALL.into_iter().filter(|it| it.is_secure()) {
            let load = served.load(protocol);
            let mut tickets = served.tickets();
            super::warm(&load, &mut tickets, 2).await.unwrap();
            let visit = super::load(&load, &mut tickets).await;
            check(&load, &visit);
            let expected = if protocol.resumes() { visit.connections } else { 0 };
            assert_eq!(visit.connections_resumed, expected, "{protocol} {tls:?}");
            let anew = visit.connections - expected;
            assert_eq!(visit.connections_anew, anew, "{protocol} {tls:?}");
            if protocol.resumes() {
                // There is no session from an earlier visit.
                let visit = super::load(&load, &mut served.tickets()).await;
                assert!(visit.connections_anew > 0, "{protocol} {tls:?}");
            }
        }
    }
}

#[tokio::test]
async fn failures_are_recorded_in_their_entries() {
    let served = served(Site::page(3, 1_000, 1), TlsVersion::Tls13);
    let mut site = served.site.clone();
    let missing = site.resources.len();
    let resource = |path: &str, after| Resource {
        path: path.into(),
        after: Some(after),
        ..served.site.resources[1].clone()
    };
    site.resources.push(resource("/missing.bmp", 0));
    site.resources.push(resource("/never-found.bmp", missing));
    // The client expects a longer object than the server's, with other bytes.
    site.resources[2].bytes = 2_000;
    for protocol in Protocol::ALL {
        // The client expects the document of the server, which does not name the added resources.
        let mut site = site.clone();
        site.resources[0].recorded = Some(crate::site::Recorded {
            body: whole(&served.site.content(0)),
            content_type: "text/html".into(),
            content_encoding: None,
        });
        site.resources[0].path = served.site.path(0);
        let load = Load { site: &site, ..served.load(protocol) };
        let visit = super::load(&load, &mut served.tickets()).await;
        assert!(visit.finished && visit.failed(), "{protocol}");
        let failed = |place: usize| visit.entries[place].failed.as_deref().unwrap_or("");
        assert_eq!([failed(0), failed(1), failed(3)], [""; 3], "{protocol}");
        assert!(failed(2).starts_with("damaged within"), "{protocol}: {}", failed(2));
        assert!(failed(missing).contains("404"), "{protocol}: {}", failed(missing));
        assert_eq!(visit.entries.len(), missing + 1, "{protocol}");
    }
}

fn whole(content: &crate::site::Content) -> bytes::Bytes {
    let mut all = Vec::new();
    while (all.len() as u64) < content.bytes() {
        all.extend_from_slice(&content.slice(all.len() as u64));
    }
    all.into()
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said() {
    let mut served = served(Site::page(3, 1_000, 1), TlsVersion::Tls13);
    // No server listens at this address.
    served.site.domains[0].address = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 254));
    for protocol in Protocol::ALL {
        let deadline = Duration::from_secs(2);
        let load = Load { deadline, ..served.load(protocol) };
        let visit = super::load(&load, &mut served.tickets()).await;
        assert!(visit.failed(), "{protocol}");
        assert_eq!((visit.entries.len(), visit.connections), (1, 0), "{protocol}");
        // Only TCP reports a closed port. QUIC retries until it is cut off.
        let why = visit.entries[0].failed.clone().unwrap();
        let expected = if protocol.is_quic() { "cut off" } else { "no connection to 127.255" };
        assert!(why.contains(expected), "{protocol}: {why}");
        assert_eq!(visit.finished, !protocol.is_quic(), "{protocol}");
    }
}

/// A listener with a full queue: the kernel drops further handshakes without an answer.
fn unresponsive(address: IpAddr) -> (std::net::TcpListener, Vec<std::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let address = std::net::SocketAddr::new(address, PORTS.https);
    socket.bind(&address.into()).unwrap();
    socket.listen(0).unwrap();
    let wait = Duration::from_millis(100);
    let fill = || std::net::TcpStream::connect_timeout(&address, wait).ok();
    let filled = std::iter::from_fn(fill).take(8).collect();
    (socket.into(), filled)
}

#[tokio::test]
async fn a_connection_that_is_not_up_in_time_is_tried_again() {
    let authority = Authority::new().unwrap();
    let mut site = Site::page(3, 1_000, 1);
    let host = (std::process::id() & 0xffff) << 6;
    site.domains[0].address = IpAddr::V4(Ipv4Addr::from_bits(0x7fc0_0001 | host));
    let _full = unresponsive(site.domains[0].address);
    for protocol in [Protocol::Http2, Protocol::Http1Tls] {
        for (retry, expected) in [(None, 1), (Some(40), 6), (Some(500), 2)] {
            let load = Load {
                ports: PORTS,
                rates: true,
                connect_retry: retry.map(Duration::from_millis),
                ..Load::new(&site, protocol, Duration::from_millis(800))
            };
            let visit = super::load(&load, &mut Tickets::new(&authority).unwrap()).await;
            // One row for each attempt.
            assert_eq!(visit.rates.len(), expected, "{protocol} {retry:?}");
            assert_eq!((visit.connections, visit.connections_dropped), (0, 0));
            assert!(!visit.finished && visit.failed());
        }
    }
}

#[tokio::test]
async fn har_has_what_its_specification_requires() {
    let served = served(model(), TlsVersion::Tls13);
    for protocol in Protocol::ALL {
        let load = served.load(protocol);
        let visit = super::load(&load, &mut served.tickets()).await;
        check(&load, &visit);
        let har = visit.har(&load, time::OffsetDateTime::UNIX_EPOCH);
        let log = &har["log"];
        assert_eq!(log["version"], "1.2");
        let has = |of: &serde_json::Value, fields: &[&str]| {
            let missing: Vec<_> = fields.iter().filter(|it| of.get(**it).is_none()).collect();
            assert!(missing.is_empty(), "{missing:?} are not in {of}");
        };
        // All fields that the specification does not declare optional.
        has(log, &["version", "creator", "entries"]);
        has(&log["creator"], &["name", "version"]);
        has(&log["pages"][0], &["startedDateTime", "id", "title", "pageTimings"]);
        let entries = log["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 20);
        for (entry, kept) in entries.iter().zip(&visit.entries) {
            let top = ["startedDateTime", "time", "request", "response", "cache", "timings"];
            has(entry, &top);
            let both = ["httpVersion", "cookies", "headers", "headersSize", "bodySize"];
            has(&entry["request"], &both);
            has(&entry["request"], &["method", "url", "queryString"]);
            has(&entry["response"], &both);
            has(&entry["response"], &["status", "statusText", "content", "redirectURL"]);
            has(&entry["response"]["content"], &["size", "mimeType"]);
            has(&entry["timings"], &["send", "wait", "receive"]);
            let time = |name: &str| entry["timings"][name].as_f64().unwrap();
            // −1 means absent; ssl is a part of connect.
            let parts = ["blocked", "dns", "connect", "send", "wait", "receive"];
            let sum: f64 = parts.iter().map(|name| time(name).max(0.0)).sum();
            assert!((sum - entry["time"].as_f64().unwrap()).abs() < 0.01, "{entry}");
            assert!(time("ssl") <= time("connect").max(0.0), "{entry}");
            assert_eq!(entry["request"]["url"], kept.url.as_str());
            assert_eq!(entry["response"]["bodySize"].as_u64(), Some(kept.bytes));
            let began = entry["startedDateTime"].as_str().unwrap();
            assert!(began.starts_with("1970-01-01T00:00:") && began.ends_with('Z'), "{began}");
        }
    }
}
