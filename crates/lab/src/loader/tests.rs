//! Loads over this machine's loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::site::{Authority, Kind, ServerSettings, Shape, SiteServer};

/// Ports that anybody may listen at.
const PORTS: Ports = Ports { http: 18080, https: 18443, proxy: 18843 };
const DEADLINE: Duration = Duration::from_secs(60);

/// A site at loopback addresses of its own, and its servers.
struct Served {
    site: Site,
    authority: Authority,
    _server: SiteServer,
}

/// Serves a site where no other test does: 127.0.0.0/8 is all ours, and the process's number sets
/// this one apart from others.
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
    Served { site, authority, _server }
}

impl Served {
    fn load(&self, protocol: Protocol) -> Load<'_> {
        Load { ports: PORTS, rates: true, ..Load::new(&self.site, protocol, DEADLINE) }
    }

    fn tickets(&self) -> Tickets {
        Tickets::new(&self.authority).unwrap()
    }
}

fn model() -> Site {
    let shape = Shape { connections: 9, kilobytes: 90.0, requests: 20.0, domains: 3.0 };
    Site::model("three", &shape, 7, 1).unwrap()
}

/// What must hold of a load in which nothing went wrong.
fn check(load: &Load<'_>, visit: &Visit) {
    let failed: Vec<_> = visit.entries.iter().filter(|entry| entry.failed.is_some()).collect();
    assert!(!visit.failed(), "{}: {failed:?}", load.protocol);
    assert_eq!(visit.bytes(), load.site.bytes(), "{}", load.protocol);
    assert_eq!(visit.rates.iter().flatten().sum::<u64>(), load.site.bytes());
    for (entry, resource) in visit.entries.iter().zip(&load.site.resources) {
        assert_eq!(entry.bytes, resource.bytes);
        assert_eq!(entry.status, Some(200));
        // The graph: what is found in something begins when that is complete.
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
