//! The page-load client and its servers across an emulated link.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_lab::browser::{self, Browser};
use bentpipe_lab::emu::Testbed;
use bentpipe_lab::loader::{self, Load, Protocol, Tickets, Visit};
use bentpipe_lab::site::{Authority, ServerSettings, Shape, Site, SiteServer, TlsVersion};
use futures_util::future::join_all;

use crate::links;

const DEADLINE: Duration = Duration::from_secs(180);

/// Serves `site` in a testbed with `link`, and loads it once for each of `loads`, all concurrently.
fn load_all(
    link: &LinkSpec,
    site: &Site,
    tls: TlsVersion,
    loads: impl Fn(&Site) -> Vec<Load<'_>> + Sync,
) -> Vec<Visit> {
    let testbed = Testbed::new(link, None, 1).unwrap();
    let authority = Authority::new().unwrap();
    let settings = ServerSettings { tls, ..ServerSettings::new(authority.clone()) };
    let _server = SiteServer::start(&testbed.server, site, &settings).unwrap();
    let visits = testbed.client.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let loads = loads(site);
        runtime.block_on(join_all(loads.iter().map(async |load| {
            let mut tickets = Tickets::new(&authority).unwrap();
            loader::load(load, &mut tickets).await
        })))
    });
    let visits = visits.unwrap();
    assert_eq!(testbed.radio_counters().unwrap().unmodelled(), 0);
    visits
}

fn check(visit: &Visit, site: &Site) {
    let failed: Vec<_> = visit.entries.iter().filter(|entry| entry.failed.is_some()).collect();
    assert!(!visit.failed(), "{}: {failed:?}", visit.protocol);
    assert_eq!(visit.bytes(), site.bytes(), "{}", visit.protocol);
}

/// A page of twelve objects over all protocols in one testbed, whose link loses 6 % of all packets.
pub fn protocols() {
    let site = Site::page(12, 5_000, 1);
    let visits = load_all(&links::mss(), &site, TlsVersion::Tls13, |site| {
        Protocol::ALL.map(|protocol| Load::new(site, protocol, DEADLINE)).to_vec()
    });
    for visit in visits {
        check(&visit, &site);
        assert_eq!(visit.entries.len(), 13);
        // The document, then the objects, with a round trip of 760 ms for each.
        let [document, object] = [&visit.entries[0], &visit.entries[1]];
        assert!(document.wait >= Duration::from_millis(760), "{document:?}");
        assert!(object.started >= document.wait, "{object:?}");
        let expected = match visit.protocol {
            Protocol::Http1 | Protocol::Http1Tls | Protocol::Http1TlsResumed => 6,
            Protocol::Http1Close => 13,
            _ => 1,
        };
        assert_eq!(visit.connections, expected, "{}", visit.protocol);
    }
}

/// Rural-PAWS, section IX.C: with a retry after 250 ms, six connections are opened for HTTP/2 and
/// five of them dropped. With a retry after 1500 ms, none is dropped.
pub fn retries() {
    let site = Site::page(5, 10_000, 1);
    let retries = [250, 1500].map(|ms| Some(Duration::from_millis(ms)));
    let link = links::constant(8_000_000, 325, 0.0);
    let visits = load_all(&link, &site, TlsVersion::Tls12, |site| {
        let load = |connect_retry| {
            let tls = TlsVersion::Tls12;
            Load { connect_retry, tls, ..Load::new(site, Protocol::Http2, DEADLINE) }
        };
        retries.map(load).to_vec()
    });
    visits.iter().for_each(|visit| check(visit, &site));
    let opened = visits.iter().map(|visit| (visit.connections, visit.connections_dropped));
    assert_eq!(opened.collect::<Vec<_>>(), [(6, 5), (1, 0)]);
    // One round trip of TCP, two of TLS 1.2, then the document.
    let document = &visits[1].entries[0];
    assert!(document.connect.unwrap() >= Duration::from_millis(3 * 650), "{document:?}");
    assert!(document.secure.unwrap() >= Duration::from_millis(2 * 650), "{document:?}");
}

/// Table I of the SPDY paper: a model opens about as many connections as the real site.
pub fn models() {
    for (name, connections, kilobytes, requests, domains) in
        [("wikipedia", 17, 111.13, 18.97, 3.0), ("huffington-post", 173, 1481.8, 110.11, 32.89)]
    {
        let shape = Shape { connections, kilobytes, requests, domains };
        let site = Site::model(name, &shape, 1, 1).unwrap();
        let link = links::constant(1_000_000, 260, 0.0);
        let [http1, proxied] = [Protocol::Http1, Protocol::Http2Proxied].map(|protocol| {
            let visits = load_all(&link, &site, TlsVersion::Tls13, |site| {
                vec![Load::new(site, protocol, DEADLINE)]
            });
            check(&visits[0], &site);
            visits[0].connections
        });
        println!("{name}: {http1} connections, {connections} in Table I");
        assert!((connections / 2..=connections * 2).contains(&http1), "{name}: {http1}");
        assert_eq!(proxied, 1, "{name}");
    }
}

/// The page-load client represents a browser. Over the same link, both load the same objects with
/// the same bytes, over at most six connections, and neither is faster than the link allows.
pub fn both() {
    if browser::find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return;
    }
    let (objects, bytes, rate_bps, delay_ms) = (20, 10_000, 2_000_000, 150);
    let site = Site::page(objects, bytes, 1);
    let testbed = Testbed::new(&links::constant(rate_bps, delay_ms, 0.0), None, 1).unwrap();
    let authority = Authority::new().unwrap();
    let _server =
        SiteServer::start(&testbed.server, &site, &ServerSettings::new(authority.clone())).unwrap();
    // A handshake, the document, then the objects and their time on the link.
    let objects_ms = u64::from(objects) * bytes * 8 * 1000 / rate_bps;
    let bound = Duration::from_millis(3 * 2 * delay_ms + objects_ms);
    for (protocol, scheme) in
        [(Protocol::Http1, "http"), (Protocol::Http2, "https"), (Protocol::Http3, "https")]
    {
        let folder = tempfile::tempdir().unwrap();
        let flags = browser::flags(&site, protocol, &authority.key_hash()).unwrap();
        let (light, seen) = testbed
            .client
            .run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let mut tickets = Tickets::new(&authority).unwrap();
                    let load = Load::new(&site, protocol, DEADLINE);
                    let light = loader::load(&load, &mut tickets).await;
                    let shell = testbed.client.command("sh");
                    let mut browser = Browser::start(shell, &flags, folder.path()).await.unwrap();
                    let seen = browser.visit(&site.url(scheme, 0), DEADLINE).await.unwrap();
                    browser.close().await.unwrap();
                    (light, seen)
                })
            })
            .unwrap();
        check(&light, &site);
        let by_light: BTreeMap<&str, u64> =
            light.entries.iter().map(|entry| (entry.url.as_str(), entry.bytes)).collect();
        let requests = seen.record.requests();
        let by_chromium: BTreeMap<&str, u64> =
            requests.iter().map(|request| (request.url.as_str(), request.body_bytes)).collect();
        assert_eq!(by_light, by_chromium, "{protocol}");
        assert_eq!(requests.len(), site.resources.len(), "{protocol}: nothing is asked for twice");
        let mut connections: Vec<_> = requests.iter().map(|request| request.connection).collect();
        connections.sort();
        connections.dedup();
        let most = if protocol.is_multiplexed() { 1 } else { 6 };
        assert!(connections.len() <= most && light.connections as usize <= most, "{protocol}");
        let loaded = seen.loaded.expect("it loads");
        println!(
            "{protocol}: Chromium {loaded:.2?}, the light loader {:.2?}: {:.2}",
            light.took,
            loaded.as_secs_f64() / light.took.as_secs_f64()
        );
        assert!(loaded.min(light.took) >= bound, "{protocol}: {bound:?}");
    }
    assert_eq!(testbed.radio_counters().unwrap().unmodelled(), 0);
}

/// TCP Fast Open, if both kernels support it: the first packet to a known server carries the
/// request.
pub fn fast_open() {
    let site = Site::page(3, 5_000, 1);
    let testbed = Testbed::new(&links::constant(8_000_000, 20, 0.0), None, 1).unwrap();
    for host in [&testbed.client, &testbed.server] {
        // Clients, servers, and servers that do not request it: ip-sysctl.rst of the kernel.
        let set = || std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027");
        host.run(set).unwrap().unwrap();
    }
    let authority = Authority::new().unwrap();
    let settings = ServerSettings::new(authority.clone());
    let _server = SiteServer::start(&testbed.server, &site, &settings).unwrap();
    let mut begun = 0;
    for (fast_open, expected) in [(false, 0), (true, 3)] {
        let load = Load { fast_open, ..Load::new(&site, Protocol::Http1Close, DEADLINE) };
        let visit = testbed.client.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let mut tickets = Tickets::new(&authority).unwrap();
            runtime.unwrap().block_on(loader::load(&load, &mut tickets))
        });
        check(&visit.unwrap(), &site);
        let all = testbed.client.run(first_packets).unwrap();
        assert_eq!(all - begun, expected, "fast open {fast_open}");
        begun = all;
    }
}

/// Number of connections whose first packet carried data that the server accepted, by the kernel's
/// counter.
fn first_packets() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut rows = counters.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = rows.next().unwrap().split_whitespace();
    let values = rows.next().unwrap().split_whitespace();
    let found = names.zip(values).find(|(name, _)| *name == "TCPFastOpenActive");
    found.unwrap().1.parse().unwrap()
}
