//! The gateway's end of DLEP and the simulated modem, over real sockets on loopback.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dlep::{MacAddress, Rates, RouterSettings};
use bentpipe_gateway::config::ModemDiscovery;
use bentpipe_gateway::rate::dlep::Settings as Router;
use bentpipe_gateway::rate::segment;
use bentpipe_gateway::rate::{MIN_RATE, ModemRates, RateSource};
use bentpipe_lab::modem::{Settings, SimulatedModem};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// A timeout longer than any wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn rates(transmit_bps: u64) -> Rates {
    Rates { transmit_bps, receive_bps: 20_000_000, latency: Duration::from_millis(300) }
}

fn start(listen: SocketAddr, transmit_bps: u64) -> std::io::Result<SimulatedModem> {
    let (heartbeat, rates) = (Duration::from_secs(1), rates(transmit_bps));
    SimulatedModem::start(&Settings { listen, discovery: None, heartbeat, rates })
}

fn modem(listen: SocketAddr, transmit_bps: u64) -> SimulatedModem {
    start(listen, transmit_bps).unwrap()
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn source(modem: SocketAddr) -> RateSource {
    RateSource::dlep(Router::new(ModemDiscovery::At(modem)), 18)
}

/// Transmit rate in the next report.
async fn next(said: &mut watch::Receiver<Option<ModemRates>>) -> Option<u64> {
    timeout(PATIENCE, said.changed()).await.expect("nothing was said").expect("the source runs");
    said.borrow_and_update().map(|rates| rates.transmit.bps())
}

#[tokio::test]
async fn rates_are_followed_down_and_up() {
    let modem = modem(loopback(), 4_000_000);
    let source = source(modem.address());
    let mut said = source.rates();
    assert_eq!(next(&mut said).await, Some(4_000_000));
    let first = said.borrow().unwrap();
    assert_eq!(first.receive.map(|rate| rate.bps()), Some(20_000_000));
    assert_eq!((first.latency, first.per_packet_overhead), (Some(Duration::from_millis(300)), 18));
    for bps in [1_000_000, 4_000_000] {
        modem.set(rates(bps));
        assert_eq!(next(&mut said).await, Some(bps));
    }
    let mac = MacAddress::new_eui48([2, 0, 0, 0, 0, 1]);
    modem.set_destination(mac, Some(rates(2_000_000)));
    assert_eq!(next(&mut said).await, Some(2_000_000));
    modem.set_destination(mac, Some(rates(0)));
    assert_eq!(next(&mut said).await, Some(MIN_RATE.bps()), "probes must still leave");
    assert!(said.borrow().is_some_and(|rates| rates.is_down));
    modem.set_destination(mac, None);
    assert_eq!(next(&mut said).await, Some(4_000_000));
    assert!(said.borrow().is_some_and(|rates| !rates.is_down));
    source.close().await;
    modem.close().await;
}

#[tokio::test]
async fn a_profile_is_followed() {
    let steps = r#"steps = [["0 s", "4 Mbit/s"], ["1 s", "1 Mbit/s"]], repeat = "2 s""#;
    let text = format!("forward = {{}}\nreturn = {{ rate = {{ series = {{ {steps} }} }} }}");
    let link: bentpipe_channel::LinkSpec = toml::from_str(&text).unwrap();
    let modem = modem(loopback(), 4_000_000);
    let source = source(modem.address());
    let mut said = source.rates();
    let seen = async {
        let mut wanted = [4_000_000, 1_000_000, 4_000_000, 1_000_000].into_iter().peekable();
        while let Some(bps) = wanted.peek() {
            let is_it = next(&mut said).await == Some(*bps);
            wanted.next_if(|_| is_it);
        }
    };
    tokio::select! {
        () = seen => {}
        () = modem.follow(&link) => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn a_modem_is_discovered_on_the_loopback() {
    // An unprivileged port outside the system's ephemeral range, which no other process uses.
    let port = 10_000 + (std::process::id() % 20_000) as u16;
    let settings = Settings {
        listen: loopback(),
        discovery: Some(("lo".into(), port)),
        heartbeat: Duration::from_secs(1),
        rates: rates(4_000_000),
    };
    let router = RouterSettings::default();
    let finding = ModemDiscovery::On("lo".into());
    let source = RateSource::dlep(Router { finding, router, discovery_port: port }, 0);
    let mut said = source.rates();
    // The router searches first, and finds the modem when it appears.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let modem = SimulatedModem::start(&settings).unwrap();
    assert_eq!(next(&mut said).await, Some(4_000_000));
    source.close().await;
    modem.close().await;
}

#[tokio::test]
async fn a_modem_without_heartbeats_is_noticed_and_found_again() {
    let modem = modem(loopback(), 4_000_000);
    let source = source(modem.address());
    let mut said = source.rates();
    assert_eq!(next(&mut said).await, Some(4_000_000));
    modem.mute(true);
    assert_eq!(next(&mut said).await, None);
    modem.mute(false);
    assert_eq!(next(&mut said).await, Some(4_000_000));
}

#[tokio::test]
async fn a_modem_may_be_restarted_or_lose_its_power() {
    let first = modem(loopback(), 4_000_000);
    let address = first.address();
    let source = source(address);
    let mut said = source.rates();
    assert_eq!(next(&mut said).await, Some(4_000_000));
    first.close().await;
    assert_eq!(next(&mut said).await, None);
    let second = modem(address, 3_000_000);
    assert_eq!(next(&mut said).await, Some(3_000_000));
    drop(second);
    assert_eq!(next(&mut said).await, None);
    // The modem releases its address when its task is dropped, a moment later.
    let _third = timeout(PATIENCE, async {
        loop {
            match start(address, 2_000_000) {
                Ok(modem) => return modem,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    let _third = _third.await.expect("the address is free again");
    assert_eq!(next(&mut said).await, Some(2_000_000));
}

#[tokio::test]
async fn the_router_says_goodbye() {
    let modem = modem(loopback(), 4_000_000);
    let (said, log) = logged();
    let source = source(modem.address());
    assert_eq!(next(&mut source.rates()).await, Some(4_000_000));
    timeout(PATIENCE, source.close()).await.expect("a goodbye takes seconds at most");
    let goodbye = "the peer terminated the session (status 255, shutting down)";
    said.wait_for(goodbye).await;
    drop(log);
}

/// A modem that responds to the first message with `answer`.
async fn answering(listener: TcpListener, answer: &'static [u8]) {
    let (mut tcp, _) = listener.accept().await.unwrap();
    let mut header = [0; 4];
    tcp.read_exact(&mut header).await.unwrap();
    assert_eq!(header[..2], [0, 1], "Session Initialization");
    tcp.write_all(answer).await.unwrap();
    // Read until the router closes the connection.
    while tcp.read(&mut [0; 1024]).await.is_ok_and(|bytes| bytes > 0) {}
}

fn listener(on_segment: bool) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    if on_segment {
        segment::keep_to_segment(&socket, true).unwrap();
    }
    socket.bind(loopback()).unwrap();
    socket.listen(1).unwrap()
}

#[tokio::test]
async fn a_malformed_modem_is_refused_and_the_log_says_why() {
    let cases: [(&[u8], &str); 3] = [
        (
            &[0, 2, 0, 8, 0, 16, 0, 4, 0, 0, 0, 1],
            "a message cannot be read: invalid data item length",
        ),
        (&[0, 2, 0, 5, 0, 1, 0, 1, 0], "a Session Initialization Response message lacks, repeats"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n                                ", ""),
    ];
    for (answer, why) in cases {
        let (said, log) = logged();
        let listener = listener(true);
        let source = source(listener.local_addr().unwrap());
        let refused = async {
            said.wait_for("the modem's session has ended").await;
            said.wait_for(why).await;
        };
        if why.is_empty() {
            // 20,527 bytes were announced but never arrive, so the first response is overdue.
            tokio::select! {
                () = answering(listener, answer) => {}
                () = refused => {}
            }
            said.wait_for("the peer did not answer in time").await;
        } else {
            tokio::join!(answering(listener, answer), refused);
        }
        assert_eq!(*source.rates().borrow(), None);
        drop(log);
    }
}

#[tokio::test]
async fn a_modem_off_the_segment_is_not_heard() {
    let (said, _log) = logged();
    // Its packets have a TTL of 64, as if they had been forwarded.
    let listener = listener(false);
    let source = source(listener.local_addr().unwrap());
    tokio::select! {
        () = said.wait_for("must be on the same segment and send with TTL 255") => {}
        _ = listener.accept() => panic!("it was spoken to"),
    }
    assert_eq!(*source.rates().borrow(), None);
}

/// Log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

/// Follows the log of this thread. If there is only one subscriber, and another test's thread logs a line
/// first, tracing never asks for that line again. So there are two.
fn logged() -> (Log, (DefaultGuard, Dispatch)) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let second = Dispatch::new(tracing_subscriber::fmt().finish());
    (log, (tracing::subscriber::set_default(subscriber), second))
}

impl Log {
    async fn wait_for(&self, text: &str) {
        let wait = async {
            while !self.text().contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{text:?} not in {}", self.text()));
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
