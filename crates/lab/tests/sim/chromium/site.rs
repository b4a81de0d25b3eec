//! The lab's sites in real Chromium, on loopback.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use bentpipe_lab::browser::{self, Browser, Request};
use bentpipe_lab::loader::Protocol;
use bentpipe_lab::site::{Authority, Kind, Ports, ServerSettings, Shape, Site, SiteServer};

const PORTS: Ports = Ports { http: 18080, https: 18443, proxy: 18843 };
const DEADLINE: Duration = Duration::from_secs(60);

/// Flags with which Chromium finds the site, trusts its certificates, and uses only this protocol.
fn flags(site: &Site, protocol: Protocol, authority: &Authority) -> Vec<String> {
    let port = if protocol.is_secure() { PORTS.https } else { PORTS.http };
    let map = site.domains.iter().map(|it| format!("MAP {} {}:{port}", it.name, it.address));
    let quic = match protocol {
        Protocol::Http3 => {
            let names = site.domains.iter().map(|domain| format!("{}:443", domain.name));
            format!("--origin-to-force-quic-on={}", names.collect::<Vec<_>>().join(","))
        }
        _ => "--disable-quic".to_owned(),
    };
    let mut flags = vec![
        format!("--host-resolver-rules={}", map.collect::<Vec<_>>().join(",")),
        format!("--ignore-certificate-errors-spki-list={}", authority.key_hash()),
        // A site in plain HTTP must stay in plain HTTP.
        "--disable-features=HttpsUpgrades".to_owned(),
        quic,
    ];
    if !protocol.is_multiplexed() {
        flags.push("--disable-http2".into());
    }
    flags
}

/// Loads a model in real Chromium. It must find exactly the objects of the graph, and those of
/// style sheets and scripts only after these have arrived.
#[tokio::test]
async fn chromium_loads_what_the_graph_has() {
    if browser::find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return;
    }
    let shape = Shape { connections: 20, kilobytes: 200.0, requests: 40.0, domains: 4.0 };
    let mut site = Site::model("four", &shape, 3, 1).unwrap();
    for (number, domain) in (0..).zip(&mut site.domains) {
        let host = ((std::process::id() & 0xfff) << 4) + number + 1;
        domain.address = IpAddr::V4(Ipv4Addr::from_bits(0x7f6e_0000 | host));
    }
    let authority = Authority::new().unwrap();
    let settings = ServerSettings { ports: PORTS, ..ServerSettings::new(authority.clone()) };
    let _server = SiteServer::start_here(&site, &settings).unwrap();
    for (protocol, scheme, name) in [
        (Protocol::Http1, "http", "http/1.1"),
        (Protocol::Http1Tls, "https", "http/1.1"),
        (Protocol::Http2, "https", "h2"),
        (Protocol::Http3, "https", "h3"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let flags = flags(&site, protocol, &authority);
        let mut browser = Browser::start(Command::new("sh"), &flags, folder.path()).await.unwrap();
        let visit = browser.visit(&site.url(scheme, 0), DEADLINE).await.unwrap();
        browser.close().await.unwrap();
        assert!(visit.loaded.is_some(), "{protocol}: {:?}", visit.failed);
        let requests: Vec<_> =
            visit.record.requests().iter().filter(|it| !it.url.starts_with("data:")).collect();
        let urls: BTreeSet<_> = requests.iter().map(|it| it.url.clone()).collect();
        let graph: BTreeSet<_> =
            (0..site.resources.len()).map(|number| site.url(scheme, number)).collect();
        assert_eq!(urls, graph, "{protocol}");
        for request in &requests {
            assert_eq!((request.status, &*request.protocol), (200, name), "{}", request.url);
            assert_eq!((&request.failed, request.is_cached), (&None, false), "{}", request.url);
        }
        let request = |number| -> &&Request {
            requests.iter().find(|it| it.url == site.url(scheme, number)).unwrap()
        };
        for (number, resource) in site.resources.iter().enumerate() {
            let found = resource.after.filter(|it| site.resources[*it].kind != Kind::Document);
            if let Some(found) = found {
                let ended = request(found).ended.unwrap();
                // The two times come from clocks of two processes.
                assert!(request(number).wanted > ended - 0.01, "{}", request(number).url);
            }
        }
    }
}
