//! Status files of both gateways about passengers' traffic.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bentpipe_gateway::config::StatusConfig;
use bentpipe_gateway::status::{Document, Moved, Session, read};
use bentpipe_gateway::transport::{Acceptor, Connector};
use bentpipe_gateway::{air, ground};
use bentpipe_net::Inherited;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{echo, free_address, socks_client, soon, until};
use crate::transports::{Configs, configs_with, over_link};
use crate::udp;

/// Bytes that each TCP client sends and receives.
const TCP_BYTES: usize = 300_000;

/// Configurations of gateways that write their status into a folder.
struct Pair {
    configs: Configs,
    _folder: tempfile::TempDir,
    socks: std::net::SocketAddr,
}

fn start(detail: &str) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let top = |name: &str| {
        let file = folder.path().join(name);
        let listen = free_address();
        format!(
            "status = {{ file = {file:?}, interval = \"1 s\", detail = {detail:?}, \
             listen = \"{listen}\" }}"
        )
    };
    let rule = "rule = [{ name = \"here\", prefix = [\"127.0.0.0/8\"], class = \"best-effort\" }]";
    let configs = configs_with(&format!("{}\n{rule}", top("air.json")), &top("ground.json"));
    let (connector, acceptor): (Arc<dyn Connector>, Arc<dyn Acceptor>) = over_link(&configs);
    let gateway = air::Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let socks = gateway.socks5_addr().unwrap();
    tokio::spawn(gateway.tell_status(configs.air.status.as_ref()));
    tokio::spawn(gateway.serve(std::future::pending()));
    let gateway = ground::Ground::new(&configs.ground).unwrap();
    let config = configs.ground.clone();
    tokio::spawn(async move {
        let acceptor = vec![acceptor];
        tokio::join!(
            gateway.tell_status(&config, &acceptor),
            gateway.serve(acceptor.clone(), std::future::pending()),
        )
    });
    Pair { configs, _folder: folder, socks }
}

impl Pair {
    fn path(&self, status: Option<&StatusConfig>) -> PathBuf {
        status.unwrap().file.clone()
    }

    /// The air's session and the ground's, once `is_there` accepts both.
    async fn sessions(&self, is_there: impl Fn(&Session) -> bool) -> [(Document, Session); 2] {
        let paths = [
            self.path(self.configs.air.status.as_ref()),
            self.path(self.configs.ground.status.as_ref()),
        ];
        let seen = |path: &Path| {
            let document = read(path).ok()?;
            let session = document.sessions.first().filter(|it| is_there(it))?.clone();
            Some((document, session))
        };
        until("the status", || paths.iter().all(|path| seen(path).is_some())).await;
        paths.map(|path| seen(&path).unwrap())
    }
}

/// Keeps the connection open, so that its flow is visible.
async fn exchange(pair: &Pair, origin: std::net::SocketAddr) -> tokio::net::TcpStream {
    let mut tcp = socks_client(pair.socks, origin).await;
    let text = vec![7; TCP_BYTES];
    let (mut from, mut to) = tcp.split();
    let mut back = vec![0; TCP_BYTES];
    let (sent, came) =
        tokio::join!(to.write_all(&text), soon("the echo", from.read_exact(&mut back)));
    sent.unwrap();
    came.unwrap();
    tcp
}

fn carried(moved: &Moved) -> u64 {
    moved.sent_bytes + moved.received_bytes
}

/// Checks that flows do not exceed their passengers, and passengers do not exceed their class.
fn adds_up(session: &Session) {
    for class in &session.classes {
        let seats = session.passengers.iter().filter(|seat| seat.class == class.class);
        let of_seats: u64 = seats.clone().map(|seat| carried(&seat.total)).sum();
        assert!(of_seats <= carried(&class.total), "{session:?}");
        for seat in seats {
            let flows = session
                .flows
                .iter()
                .filter(|flow| (&flow.class, flow.passenger) == (&seat.class, seat.passenger));
            let of_flows: u64 = flows.map(|flow| carried(&flow.total)).sum();
            assert!(of_flows <= carried(&seat.total), "{session:?}");
        }
        assert_eq!(class.total_delay_histogram.iter().sum::<u64>(), class.total.sent_packets);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_those_that_clients_carried() {
    let pair = start("flows");
    let origin = echo("127.0.0.1:0").await;
    let (one, two) = (exchange(&pair, origin).await, exchange(&pair, origin).await);
    let datagrams = udp::Client::of(pair.socks).await;
    let to = udp::echo("127.0.0.1:0").await;
    datagrams.echoes(&udp::head(to), &[7; 1000]).await;
    drop(two);
    // The first byte of each datagram is its type.
    let all = 2 * (2 * TCP_BYTES as u64) + 2 * 1001;
    let is_there = |session: &Session| {
        let carried: u64 = session.classes.iter().map(|class| carried(&class.total)).sum();
        carried == all && session.all_flows == 2
    };
    let sessions = pair.sessions(is_there).await;
    for (document, session) in &sessions {
        adds_up(session);
        assert_eq!((document.schema, session.passengers.len(), session.flows.len()), (1, 1, 2));
        let passenger = &session.passengers[0];
        assert_eq!((carried(&passenger.total), passenger.open_flows), (all, 2));
        let flow =
            |protocol: &str| session.flows.iter().find(|it| it.protocol == protocol).unwrap();
        assert_eq!(flow("tcp").target, origin.to_string());
        assert_eq!(flow("udp").target, to.to_string());
        for (flow, bytes) in [(flow("tcp"), TCP_BYTES as u64), (flow("udp"), 1001)] {
            assert_eq!((flow.total.sent_bytes, flow.total.received_bytes), (bytes, bytes));
            assert!(flow.total.frame_bytes > bytes && flow.total.sent_packets > 0);
        }
        assert!(document.counters["accepted"] > 0);
    }
    let [(_, air), (_, ground)] = sessions;
    let names = |session: &Session| session.passengers[0].name.clone();
    assert_eq!((names(&air).as_deref(), names(&ground)), (Some("127.0.0.1"), None));
    assert_eq!((air.aircraft, ground.aircraft.as_deref()), (None, Some("D-ABCD")));
    drop(one);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_named_where_only_classes_are_asked_for() {
    for (detail, names_somebody) in [("classes", false), ("passengers", true)] {
        let pair = start(detail);
        let _tcp = exchange(&pair, echo("127.0.0.1:0").await).await;
        let is_there = |session: &Session| {
            session.classes.iter().any(|class| carried(&class.total) == 2 * TCP_BYTES as u64)
        };
        let sessions = pair.sessions(is_there).await;
        for (_, session) in &sessions {
            assert!(session.flows.is_empty());
            assert_eq!(session.passengers.is_empty(), !names_somebody);
            assert_eq!((session.all_passengers, session.all_flows), (1, 1));
        }
        let file = pair.path(pair.configs.air.status.as_ref());
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text.contains("127.0.0.1"), names_somebody, "{text}");
    }
}

/// Metrics at this address; empty if nothing listens there yet.
async fn metrics(listen: std::net::SocketAddr) -> String {
    get(listen, "/metrics").await
}

/// Answer of this address; empty if nothing listens there yet.
async fn get(listen: std::net::SocketAddr, path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut tcp) = tokio::net::TcpStream::connect(listen).await {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        tcp.read_to_string(&mut text).await.unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_of_clients_are_counted_by_class_and_rule() {
    let pair = start("classes");
    let mut tcp = socks_client(pair.socks, echo("127.0.0.1:0").await).await;
    for _ in 0..3 {
        tcp.write_all(b"question").await.unwrap();
        let mut answer = [0; 8];
        tcp.read_exact(&mut answer).await.unwrap();
    }
    drop(tcp);
    // A server that ends the connection instead of answering.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut tcp = socks_client(pair.socks, listener.local_addr().unwrap()).await;
    tcp.write_all(b"question").await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.read_exact(&mut [0; 8]).await.unwrap();
    drop(server);
    assert_eq!(tcp.read(&mut [0; 8]).await.unwrap(), 0);
    drop(tcp);
    let read = |status: &Option<StatusConfig>| read(&pair.path(status.as_ref())).ok();
    let waits = || read(&pair.configs.air.status)?.experience.first().cloned();
    until("four exchanges", || waits().is_some_and(|it| it.exchanges() == 4)).await;
    let waits = waits().unwrap();
    assert_eq!((&*waits.class, &*waits.rule, waits.failed), ("best-effort", "here", 1));
    assert_eq!(waits.first_byte_histogram.iter().sum::<u64>(), 3);
    assert!(waits.first_byte_sum_us > 0 && waits.completion_sum_us >= waits.first_byte_sum_us);
    assert_eq!(read(&pair.configs.ground.status).unwrap().experience, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_the_link_and_its_classes() {
    let pair = start("flows");
    let _tcp = exchange(&pair, echo("127.0.0.1:0").await).await;
    let of = |status: &Option<StatusConfig>| status.as_ref().unwrap().listen.unwrap();
    let gateways =
        [(of(&pair.configs.air.status), ""), (of(&pair.configs.ground.status), "D-ABCD")];
    for (listen, aircraft) in gateways {
        let sent = format!(
            "bentpipe_class_sent_bytes_total{{aircraft=\"{aircraft}\",class=\"best-effort\"}} \
             {TCP_BYTES}\n"
        );
        let text = soon("the metrics", async {
            loop {
                let text = metrics(listen).await;
                if text.contains(&sent) {
                    break text;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        let text = text.await;
        for line in ["link_up", "link_rtt_seconds", "link_sent_bytes_total", "link_mtu_bytes"] {
            let start = format!("bentpipe_{line}{{aircraft=\"{aircraft}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&*start));
            assert!(
                line.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0),
                "{start}: {text}"
            );
        }
        assert!(!text.contains("127.0.0.1"), "no passenger and no destination is named");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_page_has_the_link_and_names_passengers_only_if_configured() {
    for (detail, has_users) in [("classes", false), ("passengers", true)] {
        let pair = start(detail);
        let _tcp = exchange(&pair, echo("127.0.0.1:0").await).await;
        let of = |status: &Option<StatusConfig>| status.as_ref().unwrap().listen.unwrap();
        for listen in [of(&pair.configs.air.status), of(&pair.configs.ground.status)] {
            let data = soon("the page's data", async {
                loop {
                    let text = get(listen, "/operator.json").await;
                    let body = text.split_once("\r\n\r\n").map_or("null", |(_, body)| body);
                    let data: serde_json::Value = serde_json::from_str(body).unwrap();
                    let cell = &data["history"][0];
                    if cell["sent_bytes"].as_u64() >= Some(TCP_BYTES as u64) {
                        break data;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            });
            let data = data.await;
            let link = if data["gateway"] == "air" { &data["link"] } else { &data["fleet"][0] };
            assert!(link["round_trip_us"].as_u64() > Some(0), "{data}");
            assert!(link["mtu_bytes"].as_u64() >= Some(1_280), "{data}");
            assert_eq!(data["classes"].as_array().unwrap().len(), 5);
            assert_eq!(data["users"].is_array(), has_users, "{data}");
            assert!(!data.to_string().contains("127.0.0.1"), "only shortened: {data}");
        }
    }
}
