//! Every query of the dashboard for Grafana, executed by a Prometheus that scrapes all metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bentpipe_flow::Traffic;
use bentpipe_link::Class;
use bentpipe_metering::experience::{Group, Waits};
use serde_json::Value;

use super::of;
use crate::{Document, ExperienceEntry, Gateway, RateEntry, Session, nameless};

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/bentpipe.json");

/// Window of rates. It has several scrapes, of which a rate needs two.
const WINDOW: &str = "10s";

/// Queries of all panels, with values for Grafana's variables.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let filled = expressions.map(|it| {
        let it = it.replace("$__rate_interval", WINDOW);
        it.replace("$instance", ".*").replace("$aircraft", ".*")
    });
    filled.collect()
}

/// All metrics of a gateway with one session; each counter is `count`.
fn metrics(count: u64) -> String {
    let names = [
        "reset_refused",
        "flows_network",
        "refused_udp_flows",
        "evicted_udp_flows",
        "http_bytes_saved",
        "http_round_trips_saved",
        "dns_bytes_saved",
        "dns_round_trips_saved",
    ];
    let mut session = Session::of(Traffic::default(), None, &nameless());
    let source = "learned".to_owned();
    session.sending = Some(RateEntry { rate_bps: Some(2_000_000), source, ceiling_bps: None });
    let group = Group { class: Class::Assured, rule: "video".into() };
    let mut waits = Waits { failed: count, ..Waits::default() };
    waits.first_byte.counts[4] = count;
    waits.completion.counts[6] = count;
    of(&Document {
        counters: BTreeMap::from(names.map(|name| (name.to_owned(), count))),
        experience: vec![ExperienceEntry::of(&(group, waits))],
        sessions: vec![session],
        ..Document::empty(Gateway::Air)
    })
}

/// Serves the metrics for ever; counters rise with each request.
fn serve(listener: TcpListener) {
    for (count, stream) in (1..).zip(listener.incoming()) {
        let (Ok(mut stream), body) = (stream, metrics(count)) else { return };
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

/// A Prometheus of this test's own, which ends with it.
struct Prometheus {
    process: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Starts it with a scrape of `target` each second. `None` if it is not installed.
    fn start(target: SocketAddr, at: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\n\
             scrape_configs: [{{ job_name: bentpipe, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { process, at, _folder: folder })
    }

    /// Result of a query; an error before the server listens.
    fn query(&self, query: &str) -> std::io::Result<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut stream = TcpStream::connect(self.at)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(serde_json::from_str(body)?)
    }

    /// Waits for three scrapes.
    fn wait(&self) {
        let began = Instant::now();
        let scrapes = "count_over_time(bentpipe_sessions[1m]) >= 3";
        let has_scraped = || {
            let found = self.query(scrapes).ok()?;
            found["data"]["result"].as_array().map(|found| !found.is_empty())
        };
        while has_scraped() != Some(true) {
            // Not a measurement; it only ends a test that would otherwise hang.
            assert!(began.elapsed() < Duration::from_secs(120), "Prometheus does not scrape");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn prometheus_answers_every_query_of_the_dashboard() {
    let queries = queries();
    assert!(queries.len() > 20, "{}", queries.len());
    // An address of this process alone, so that the port stays free.
    let ours = Ipv4Addr::from(0x7f40_0000 | std::process::id() & 0x3f_ffff);
    let listener = TcpListener::bind((ours, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let free = TcpListener::bind((ours, 0)).unwrap().local_addr().unwrap();
    std::thread::spawn(move || serve(listener));
    let Some(prometheus) = Prometheus::start(target, free) else {
        // Past the harness, which keeps what a test prints.
        let line = "SKIPPED: the dashboard's queries, because there is no prometheus here\n";
        std::fs::write("/dev/stderr", line).unwrap();
        return;
    };
    prometheus.wait();
    for query in queries {
        let found = prometheus.query(&query).unwrap();
        assert_eq!(found["status"], "success", "{query}: {found}");
        let count = found["data"]["result"].as_array().map_or(0, Vec::len);
        assert!(count > 0, "{query} finds nothing");
    }
}
