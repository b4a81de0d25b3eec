use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::relay::{Outcome, Relay, RelayLimits, SCRATCH_BYTES};
use bentpipe_link::Class;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{
    LOOPBACK, expect_reset, read_all, read_exactly, soon, start, through_socks, until,
};
use crate::wire;

const HOUR: Duration = Duration::from_secs(3600);

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A connected pair of sockets.
async fn sockets() -> (TcpStream, TcpStream) {
    let listener = listener().await;
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// A relay between a client's socket and an in-memory stream.
async fn relayed() -> (TcpStream, wire::Stream, tokio::task::JoinHandle<Outcome>) {
    let (client, tcp) = sockets().await;
    let (near, connector) = wire::pair();
    let limits = RelayLimits { idle: 2 * HOUR, stall: HOUR, answer: Some(HOUR / 2) };
    let relay = Relay::new(tcp, Box::new(near), Vec::new(), limits, Arc::<Counters>::default());
    (client, connector, tokio::spawn(relay))
}

/// Returns `true` if the socket with these addresses, its peer's and its own, has received the
/// peer's end: CLOSE_WAIT, according to proc_net_tcp(5).
fn has_heard_the_end([other, own]: [std::net::SocketAddr; 2]) -> bool {
    const CLOSE_WAIT: &str = "08";
    let [own, other] = [own, other].map(|at| format!("0100007F:{:04X}", at.port()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.any(|row| row[1..4] == [&own, &other, CLOSE_WAIT])
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn half_close_stays_half_close() {
    let bench = start("", LOOPBACK);
    let origin = listener().await;
    let mut client = through_socks(&bench, origin.local_addr().unwrap()).await;
    let (mut server, _) = soon("the dial", origin.accept()).await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await.unwrap(), b"question");
    server.write_all(&[7; 300_000]).await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await.unwrap().len(), 300_000);
    until("both ended cleanly", || bench.air.finished.get() + bench.ground.finished.get() == 2)
        .await;
}

#[tokio::test]
async fn resets_travel_both_ways() {
    let bench = start("", LOOPBACK);
    let origin = listener().await;
    for from_client in [true, false] {
        let mut client = through_socks(&bench, origin.local_addr().unwrap()).await;
        let (mut server, _) = soon("the dial", origin.accept()).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(read_exactly(&mut server, 1).await, b"x");
        let (breaks, mut sees) = if from_client { (client, server) } else { (server, client) };
        breaks.set_zero_linger().unwrap();
        drop(breaks);
        expect_reset(&mut sees).await;
    }
}

#[tokio::test]
async fn a_peer_that_stops_reading_still_answers() {
    let (mut client, mut connector, relay) = relayed().await;
    client.write_all(b"upload").await.unwrap();
    let mut upload = [0; 6];
    connector.read_exact(&mut upload).await.unwrap();
    bentpipe_gateway::transport::FlowStream::stop_reading(&mut connector, ResetCode::Aborted);
    client.write_all(b"more, which nobody wants").await.unwrap();
    connector.write_all(b"too large").await.unwrap();
    connector.shutdown().await.unwrap();
    let mut answer = [0; 9];
    soon("the answer", client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"too large");
    assert_eq!(relay.await.unwrap(), Outcome::Reset(ResetCode::Aborted));
}

#[tokio::test]
async fn a_client_gone_after_its_last_word_is_still_heard() {
    let (mut client, mut connector, relay) = relayed().await;
    // The peer accepts nothing yet: some words wait in the link, some in the gateway, and the last
    // words and the end in its socket.
    const WORDS: usize = wire::CREDIT_BYTES + SCRATCH_BYTES + 20_000;
    client.write_all(&[1; WORDS]).await.unwrap();
    let ends = [client.local_addr().unwrap(), client.peer_addr().unwrap()];
    drop(client);
    // Before that, TCP breaks the connection when an answer reaches the closed client.
    until("the end is in the gateway's socket", || has_heard_the_end(ends)).await;
    connector.write_all(b"answer nobody reads").await.unwrap();
    let mut heard = Vec::new();
    soon("everything", connector.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard.len(), WORDS);
    connector.shutdown().await.unwrap();
    soon("the end", relay).await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_reads_is_bounded_and_given_up() {
    let (mut client, mut connector, relay) = relayed().await;
    let mut taken = 0;
    let chunk = [9; 64 * 1024];
    // The kernel's socket buffers, the link's credit, and one scratch buffer. A slow machine must
    // not look like a client that has stopped.
    let least = wire::CREDIT_BYTES + SCRATCH_BYTES;
    soon("it has enough", async {
        loop {
            match tokio::time::timeout(Duration::from_secs(3), connector.write(&chunk)).await {
                Ok(written) => taken += written.unwrap(),
                Err(_) if taken > least => break,
                Err(_) => {}
            }
            assert!(taken < 16 << 20, "{taken} bytes went where nobody reads");
        }
    })
    .await;
    pass(HOUR + Duration::from_secs(1)).await;
    assert_eq!(soon("the end", relay).await.unwrap(), Outcome::Reset(ResetCode::Idle));
    assert_eq!(connector.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    expect_reset(&mut client).await;
}

#[tokio::test]
async fn a_far_end_that_is_slow_is_not_given_up_while_it_moves() {
    let (mut client, mut connector, relay) = relayed().await;
    connector.write_all(b"!").await.unwrap();
    assert_eq!(read_exactly(&mut client, 1).await, b"!");
    for _ in 0..4 {
        client.write_all(b"x").await.unwrap();
        assert_eq!(soon("a byte", connector.read_u8()).await.unwrap(), b'x');
        pass(2 * HOUR - Duration::from_secs(60)).await;
    }
    assert!(!relay.is_finished());
    pass(Duration::from_secs(61)).await;
    assert_eq!(soon("the end", relay).await.unwrap(), Outcome::Reset(ResetCode::Idle));
    expect_reset(&mut client).await;
}

#[tokio::test]
async fn a_far_end_that_never_answers_is_given_up_sooner() {
    let (mut client, mut connector, relay) = relayed().await;
    client.write_all(b"anybody there?").await.unwrap();
    let mut said = [0; 14];
    soon("what it says", connector.read_exact(&mut said)).await.unwrap();
    pass(HOUR / 2 + Duration::from_secs(1)).await;
    assert_eq!(soon("the end", relay).await.unwrap(), Outcome::Reset(ResetCode::Timeout));
    expect_reset(&mut client).await;
}

#[tokio::test]
async fn dropping_a_relay_never_looks_like_an_end() {
    let (mut client, mut connector, relay) = relayed().await;
    tokio::task::yield_now().await;
    relay.abort();
    expect_reset(&mut client).await;
    assert_eq!(connector.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn an_idle_flow_is_small() {
    assert!(size_of::<Relay>() <= 512, "{} bytes", size_of::<Relay>());
}

/// An urgent stream above its limit continues in another class.
#[tokio::test]
async fn a_stream_beyond_its_passenger_s_bound_is_demoted() {
    let top = "classes = { network = { passenger-ceil = '8 kbit/s' } }\n\
               rule = [{ passenger = '127.0.0.1', class = 'network' }]";
    let bench = start(top, LOOPBACK);
    let origin = listener().await;
    let mut client = through_socks(&bench, origin.local_addr().unwrap()).await;
    client.write_all(b"hello").await.unwrap();
    let (mut server, _) = soon("the dial", origin.accept()).await.unwrap();
    assert_eq!(read_exactly(&mut server, 5).await, b"hello");
    for (bytes, demoted) in [(1_000, 0), (100_000, 1), (100_000, 1)] {
        client.write_all(&vec![7; bytes]).await.unwrap();
        assert_eq!(read_exactly(&mut server, bytes).await.len(), bytes);
        assert_eq!(bench.air.streams_demoted.get(), demoted, "{bytes} bytes");
    }
    assert_eq!(bench.air.flows_in(Class::Network), 1);
}
