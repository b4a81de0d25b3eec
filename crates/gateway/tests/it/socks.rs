use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::transport::{MAX_FIRST_BYTES, Reach};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bench::{
    Bench, LOOPBACK, echo, echoes, expect_reset, free_address, read_all, read_exactly, start,
    through_socks, until,
};

async fn client(bench: &Bench, hello: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(bench.socks).await.unwrap();
    tcp.write_all(hello).await.unwrap();
    tcp
}

const NO_AUTH: [u8; 3] = [5, 1, 0];

#[tokio::test]
async fn connects_by_address_and_by_name() {
    let bench = start("", LOOPBACK);
    let four = echo("127.0.0.1:0").await;
    let six = echo("[::1]:0").await;

    let mut v4 = vec![5, 1, 0, 1, 127, 0, 0, 1];
    v4.extend(four.port().to_be_bytes());
    let mut v6 = vec![5, 1, 0, 4];
    v6.extend(std::net::Ipv6Addr::LOCALHOST.octets());
    v6.extend(six.port().to_be_bytes());
    let mut name = b"\x05\x01\x00\x03\x0borigin.test".to_vec();
    name.extend(four.port().to_be_bytes());
    for request in [v4, v6, name] {
        let mut tcp = client(&bench, &NO_AUTH).await;
        assert_eq!(read_exactly(&mut tcp, 2).await, [5, 0]);
        tcp.write_all(&request).await.unwrap();
        assert_eq!(read_exactly(&mut tcp, 10).await[..2], [5, 0]);
        echoes(tcp, b"hello from the aircraft").await;
    }
    assert_eq!(bench.up.opened()[2].target.to_string(), format!("origin.test:{}", four.port()));
    assert!(bench.up.opened().iter().all(|open| open.passenger == 1));
}

#[tokio::test]
async fn a_client_may_send_everything_at_once() {
    let bench = start("", LOOPBACK);
    let mut hello = NO_AUTH.to_vec();
    hello.extend(b"\x05\x01\x00\x03\x0borigin.test");
    hello.extend(echo("127.0.0.1:0").await.port().to_be_bytes());
    hello.extend([b'x'; 10_000]);
    let mut tcp = client(&bench, &hello).await;
    tcp.shutdown().await.unwrap();
    let all = read_all(&mut tcp).await.unwrap();
    assert_eq!((all.len(), &all[12..16]), (10_012, &b"xxxx"[..]));
    let first = bench.up.opened()[0].first.clone();
    assert!(first.starts_with(b"xxx") && first.len() <= MAX_FIRST_BYTES, "{first:?}");
}

#[tokio::test]
async fn a_link_that_is_down_is_told() {
    let bench = start("", LOOPBACK);
    bench.up.set_reach(Reach::Down);
    let mut tcp = client(&bench, &NO_AUTH).await;
    assert_eq!(read_exactly(&mut tcp, 2).await, [5, 0]);
    tokio::time::pause();
    tcp.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
    let mut answer = Vec::new();
    // The paused clock skips the wait for a link.
    tcp.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[..2], [5, 3], "network unreachable");
    assert!(bench.up.opened().is_empty());
}

#[tokio::test]
async fn passwords_are_checked() {
    let bench = start("auth = { username = \"crew\", password = \"w\" }", LOOPBACK);
    let mut tcp = client(&bench, &[5, 2, 0, 2]).await;
    assert_eq!(read_exactly(&mut tcp, 2).await, [5, 2]);
    tcp.write_all(b"\x01\x04crew\x01w").await.unwrap();
    assert_eq!(read_exactly(&mut tcp, 2).await, [1, 0]);
    let mut request = vec![5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(echo("127.0.0.1:0").await.port().to_be_bytes());
    tcp.write_all(&request).await.unwrap();
    assert_eq!(read_exactly(&mut tcp, 10).await[..2], [5, 0]);
    echoes(tcp, b"let in").await;

    let mut wrong = client(&bench, b"\x05\x01\x02\x01\x04crew\x01x").await;
    assert_eq!(read_all(&mut wrong).await.unwrap(), [5, 2, 1, 1]);
    let mut none = client(&bench, &NO_AUTH).await;
    assert_eq!(read_all(&mut none).await.unwrap(), [5, 0xff]);
    assert_eq!(bench.air.unauthorized.get(), 2);
}

#[tokio::test]
async fn unsupported_commands_are_refused_with_their_code() {
    let bench = start("", LOOPBACK);
    let bind = [5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80];
    let mut tcp = client(&bench, &bind).await;
    assert_eq!(read_all(&mut tcp).await.unwrap()[..4], [5, 0, 5, 7]);
}

#[tokio::test]
async fn garbage_is_refused_quickly() {
    let bench = start("", LOOPBACK);
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01", b"\x04\x01\x00\x50", &[0; 4096]]
    {
        let mut tcp = client(&bench, garbage).await;
        let answer = read_all(&mut tcp).await;
        assert!(answer.is_err() || answer.is_ok_and(|bytes| bytes.is_empty()));
    }
    assert_eq!(bench.air.garbage.get(), 4);
}

#[tokio::test]
async fn half_open_clients_are_given_up() {
    let bench = start("limits = { handshake-timeout = \"10 s\" }", LOOPBACK);
    let mut silent = client(&bench, b"").await;
    let mut slow = client(&bench, &NO_AUTH).await;
    assert_eq!(read_exactly(&mut slow, 2).await, [5, 0]);
    until("both were accepted", || bench.air.accepted.get() == 2).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(read_all(&mut silent).await.unwrap(), b"");
    assert_eq!(read_all(&mut slow).await.unwrap(), b"");
    assert_eq!(bench.air.garbage.get(), 2);
}

#[tokio::test]
async fn a_failed_dial_is_a_reset() {
    let bench = start("", LOOPBACK);
    let mut tcp = through_socks(&bench, free_address()).await;
    expect_reset(&mut tcp).await;
    assert_eq!(bench.air.resets(ResetCode::Refused), 1);
    let shut = start("", "");
    let mut tcp = through_socks(&shut, echo("127.0.0.1:0").await).await;
    expect_reset(&mut tcp).await;
    assert_eq!(shut.air.resets(ResetCode::Forbidden), 1);
}
