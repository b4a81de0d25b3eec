use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use bentpipe_flow::{FlowTraffic, Target, Traffic};
use bentpipe_link::{Activity, Class, ClassActivity, PassengerActivity, PerClass};
use bentpipe_units::Span;

use super::*;
use crate::atomic_file::{GROUP_READABLE, replace};
use bentpipe_transport::{EgressState, GroundStanding};

/// Maximum size of an air gateway's file.
const LARGEST_OF_ONE: usize = 140_000;

fn seat(passenger: u32) -> PassengerActivity {
    let (class, flows, activity) = (Class::BestEffort, usize::MAX, Activity::default());
    PassengerActivity { passenger, class, flows, activity }
}

fn flow(id: u64) -> FlowTraffic {
    let target: Target = format!(
        "{}:65535",
        ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".")
    )
    .parse()
    .unwrap();
    let (passenger, class, protocol) = (u32::MAX, Class::BestEffort, 17);
    FlowTraffic { id, passenger, class, protocol, target, activity: Activity::default() }
}

/// Maximum data of a session.
fn traffic() -> Traffic {
    let most = MAX_OF_A_SESSION;
    Traffic {
        classes: PerClass::<ClassActivity>::default(),
        passengers: (0..most as u32).map(seat).collect(),
        flows: (0..most as u64).map(flow).collect(),
        ..Traffic::default()
    }
}

fn config(file: impl Into<PathBuf>, detail: Detail) -> StatusConfig {
    StatusConfig {
        file: file.into(),
        interval: Span::new(Duration::from_secs(1)),
        detail,
        listen: None,
        token: None,
    }
}

fn reporter(detail: Detail, sessions: usize) -> Reporter {
    let config = config("status.json", detail);
    Reporter::new(&config, Gateway::Air, Arc::default(), move || sessions)
}

#[tokio::test]
async fn the_status_is_bounded_and_as_configured() {
    let most = |detail, sessions| {
        let SnapshotLimits { passengers, flows } = reporter(detail, sessions).most();
        (passengers, flows)
    };
    assert_eq!(most(Detail::Classes, 1), (0, 0));
    assert_eq!(most(Detail::Passengers, 1), (64, 0));
    assert_eq!(most(Detail::Flows, 1), (64, 64));
    assert_eq!(most(Detail::Flows, 100), (10, 10));
    assert_eq!(most(Detail::Flows, 5000), (1, 1));
    let names = (0..64).map(|number| (number, "0123:4567:89ab:cdef:0123:4567:89ab:cdef".into()));
    let session = Session::of(traffic(), None, &names.collect());
    let document = reporter(Detail::Flows, 1).document(vec![session]);
    let json = document.to_json();
    assert!(json.len() <= LARGEST_OF_ONE, "{} bytes", json.len());
    let read: Document = serde_json::from_slice(&json).unwrap();
    assert_eq!(read, document);
    assert_eq!((read.schema, read.sessions[0].classes.len()), (1, 5));
    assert!(
        read.counters.contains_key("to_link_bytes") && read.counters.contains_key("flows_network")
    );
}

#[test]
fn whoever_reads_has_the_old_file_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("status.json");
    let contents = [vec![b'a'; 300_000], vec![b'b'; 200_000]];
    replace(&path, &contents[0], GROUP_READABLE).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                replace(&path, &contents[round % 2], GROUP_READABLE).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut reads = 0;
        while !done.load(Ordering::Acquire) || reads < 20 {
            let read = std::fs::read(&path).unwrap();
            assert!(contents.contains(&read), "{} bytes, half of a file", read.len());
            reads += 1;
        }
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_stopped_gateways_file_is_gone_whoever_was_writing_it() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..100 {
        let place = Place::new(&folder.path().join("status.json"));
        place.replace(b"{}").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // Writes in progress, and one after the removal.
                scope.spawn(|| (0..5).try_for_each(|_| place.replace(&[b'a'; 10_000])).unwrap());
            }
            place.remove();
        });
        place.replace(b"{}").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_reporter_that_is_dropped_takes_its_file_away() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path().join("status.json"), Detail::Classes);
    let mut reporter = Reporter::new(&config, Gateway::Air, Arc::default(), || 1);
    reporter.write(&|_| Vec::new()).await;
    assert_eq!(read(&config.file).unwrap().interval_ms, 1000);
    drop(reporter.keep(|_| Vec::new()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn nobody_else_may_read_it_whatever_was_there_before() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["status.json", "other"].map(|name| folder.path().join(name));
    // Leftover of a crash, and a foreign file at the temporary path.
    std::fs::write(&other, "precious").unwrap();
    symlink(&other, folder.path().join("status.json.new")).unwrap();
    replace(&path, b"{}", GROUP_READABLE).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    assert!(replace(&folder.path().join("none").join("a"), b"", GROUP_READABLE).is_err());
}

#[test]
fn a_file_that_is_none_of_ours_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let why = |content: &str| {
        std::fs::write(&path, content).unwrap();
        read(&path).unwrap_err().to_string()
    };
    assert!(why("{}").contains("is not a status of a gateway"));
    assert!(why("{\"schema\": 2}").contains("has the format 2"));
    assert!(why("{\"schema\": 1}").contains("missing field"));
    assert!(read(&folder.path().join("b")).unwrap_err().to_string().contains("while it runs"));
}

/// A server of an empty document, and its address, which no other test and no other process of ours
/// uses.
fn served(host: u8, token: Option<&str>) -> (server::Serving, std::net::SocketAddr) {
    let newest = watch::Sender::new(Arc::new(Document::empty(Gateway::Air)));
    let [.., high, low] = std::process::id().to_be_bytes();
    let listen = ([127, 1 + high % 254, low, host], 9465).into();
    let token = token.map(|token| crate::config::Token::new(token).unwrap());
    let newest = Newest { document: newest.subscribe(), history: Arc::default(), token };
    (server::serve(listen, newest), listen)
}

/// Response to `request`.
async fn ask(listen: std::net::SocketAddr, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut tcp = loop {
        match tokio::net::TcpStream::connect(listen).await {
            Ok(tcp) => break tcp,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn with_a_token_nothing_is_served_without_it() {
    let (_serving, listen) = served(2, Some("0123456789abcdef"));
    for path in ["/", "/metrics", "/operator.json", "/none"] {
        let request = |more: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: noc.example\r\n{more}Connection: close\r\n\r\n")
        };
        for wrong in ["", "Authorization: Bearer 0123456789abcdeg\r\n"] {
            let text = ask(listen, &request(wrong)).await;
            assert!(text.starts_with("HTTP/1.1 401"), "{path}: {text}");
            assert!(text.contains("www-authenticate: Basic realm=\"bentpipe\""), "{path}: {text}");
        }
        let text = ask(listen, &request("Authorization: Bearer 0123456789abcdef\r\n")).await;
        let expected = if path == "/none" { "HTTP/1.1 404" } else { "HTTP/1.1 200" };
        assert!(text.starts_with(expected), "{path}: {text}");
    }
}

#[tokio::test]
async fn metrics_and_the_page_are_served_at_their_paths_alone() {
    let (_serving, listen) = served(1, None);
    let ask = async |request: &str| ask(listen, request).await;
    let rest = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let text = ask(&format!("GET /metrics{rest}")).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("bentpipe_sessions 0"), "{text}");
    // A stranger's name, which may lead here.
    assert!(ask(&format!("GET /{rest}")).await.starts_with("HTTP/1.1 403"));
    let rest = rest.replace("Host: x", "Host: localhost:9464");
    for (path, content) in [
        ("/", "text/html; charset=utf-8"),
        ("/operator.css", "text/css; charset=utf-8"),
        ("/operator.js", "text/javascript; charset=utf-8"),
        ("/operator.json", "application/json"),
    ] {
        let text = ask(&format!("GET {path}{rest}")).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
        for part in [content, "default-src 'none'; script-src 'self'", "nosniff", "no-store"] {
            assert!(text.contains(part), "{path}: no {part}");
        }
    }
    let data = ask(&format!("GET /operator.json{rest}")).await;
    let data: serde_json::Value =
        serde_json::from_str(data.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&data["gateway"], &data["cell_ms"]), (&"air".into(), &300_000.into()));
    assert!(ask(&format!("GET /none{rest}")).await.starts_with("HTTP/1.1 404"));
    assert!(ask(&format!("POST /metrics{rest}")).await.starts_with("HTTP/1.1 405"));
}

/// An egress without a connection.
pub fn egress() -> EgressEntry {
    let name = "lon.example.net:4433".to_owned();
    EgressEntry::of(EgressState { name, is_proxy: false, is_up: false, rtt: None, flows: 3 })
}

/// A ground that has never spoken.
pub fn ground() -> GroundEntry {
    let standing = GroundStanding {
        key: [7; 32],
        is_connected: false,
        through: None,
        age: None,
        is_hub: false,
        is_egress: false,
        is_leaving: false,
        load: None,
    };
    GroundEntry::of(&standing, Some("lon.example.net:4433"))
}

#[test]
fn egresses_are_in_the_file_and_the_metrics() {
    let mut document = Document::empty(Gateway::Ground);
    let text = |document: &Document| String::from_utf8(document.to_json()).unwrap();
    assert!(!text(&document).contains("egresses"));
    assert!(!exposition::of(&document).contains("bentpipe_egress"));
    let up = EgressEntry {
        name: "nyc.example.net:4433".into(),
        is_proxy: true,
        is_up: true,
        round_trip_us: Some(62_000),
        flows_now: 12,
    };
    document.egresses = vec![egress(), up];
    let read: Document = serde_json::from_str(&text(&document)).unwrap();
    assert_eq!(read, document);
    let metrics = exposition::of(&document);
    let egress = |name: &str| format!("{{egress=\"{name}.example.net:4433\"}}");
    for (metric, name, value) in [
        ("egress_up", "lon", "0"),
        ("egress_up", "nyc", "1"),
        ("egress_flows", "lon", "3"),
        ("egress_rtt_seconds", "nyc", "0.062"),
    ] {
        let line = format!("\nbentpipe_{metric}{} {value}\n", egress(name));
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    let unknown = format!("bentpipe_egress_rtt_seconds{}", egress("lon"));
    assert!(!metrics.contains(&unknown), "nobody knows it without a connection");
}

#[test]
fn other_grounds_are_in_the_file_and_the_metrics() {
    let mut document = Document::empty(Gateway::Ground);
    let text = |document: &Document| String::from_utf8(document.to_json()).unwrap();
    assert!(!text(&document).contains("grounds"), "a ground alone writes what it always wrote");
    assert!(!exposition::of(&document).contains("bentpipe_grounds"));
    document.grounds = vec![ground()];
    let read: Document = serde_json::from_str(&text(&document)).unwrap();
    assert_eq!(read, document);
    let metrics = exposition::of(&document);
    assert!(metrics.contains("bentpipe_grounds{state=\"silent\"} 1"), "{metrics}");
    assert!(metrics.contains("bentpipe_grounds{state=\"speaking\"} 0"), "{metrics}");
}
