//! Tests on loopback.

use std::net::TcpListener;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

fn loopback() -> Url {
    let origin = crate::origin::tests::start();
    Url::parse(&format!("ws://127.0.0.1:{}/", origin.port().unwrap())).unwrap()
}

fn nobody() -> Trust {
    Trust::new(RootCertStore::empty())
}

#[test]
fn servers_and_their_mistakes() {
    assert_eq!("m-lab".parse(), Ok(Server::Public));
    let url = Url::parse("wss://ndt.example/").unwrap();
    assert_eq!("wss://ndt.example/".parse(), Ok(Server::Own(url.clone())));
    assert_eq!(own(&url)[1].as_str(), "wss://ndt.example/ndt/v7/upload");
    for text in ["", "ndt.example", "http://ndt.example/", "ws:"] {
        assert!(text.parse::<Server>().unwrap_err().contains("m-lab"), "{text}");
    }
}

#[test]
fn both_directions_give_a_goodput() {
    let mut found = Vec::new();
    measure(&Server::Own(loopback()), &[], &mut |test| found.push(test));
    assert_eq!(found.len(), 2);
    for test in found {
        assert_eq!(test.failure, None, "{test:?}");
        assert!(test.goodput_bps().is_some_and(|bps| bps > 1_000_000), "{test:?}");
        let app = test.server_app.expect("the server's measurement");
        assert!(app.num_bytes > 0 && app.elapsed_time > 9_000_000, "{app:?}");
        assert!(test.server_tcp.is_some() && test.own_tcp.is_some());
        assert!(test.samples.len() > 20 && test.samples.len() <= MAX_SAMPLES);
        let (own, reported) = (test.samples.last().unwrap().1, app.num_bytes as u64);
        // Messages on their way and in buffers are the difference.
        assert!(own.abs_diff(reported) < own / 4 + 16_000_000, "{own} {reported}");
    }
}

#[test]
fn a_host_has_one_test_at_a_time() {
    let url = &own(&loopback())[0];
    let address = SocketAddr::from(([127, 0, 0, 1], url.port().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime.block_on(async {
        let (mut web, _) = handshake(url, address, &nobody()).await.unwrap();
        web.next().await.unwrap().unwrap();
        web
    });
    // The first test waits for its client, which reads no further.
    let second = run(url, &nobody());
    assert!(second.failure.as_deref().is_some_and(|why| why.contains("503")), "{second:?}");
    drop(first);
    let again = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        runtime.block_on(async { handshake(url, address, &nobody()).await.is_ok() })
    });
    assert!(again, "the place is free when the first test has ended");
}

/// A download.
fn run(url: &Url, trust: &Trust) -> Ndt7 {
    let mut test = Ndt7::new("s".into(), Direction::Down);
    let result = attempt(&mut test, url, trust, &[], clock::boot() + MAX_TEST);
    test.failure = result.err().map(|error| failure::name(&error));
    test
}

#[test]
fn a_server_that_breaks_off_is_a_failure_with_samples() {
    use std::io::{Read, Write};
    use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ndt/v7/download", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let key = request.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.to_owned())
        });
        let accept = derive_accept_key(key.unwrap().as_bytes());
        write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )
        .unwrap();
        // One binary message of 8 kB, and the begin of another.
        stream.write_all(&[0x82, 126, 0x20, 0]).unwrap();
        stream.write_all(&[7; 8192]).unwrap();
        stream.write_all(&[0x82, 126, 0x20]).unwrap();
        request
    });
    let url = Url::parse(&url).unwrap();
    let test = run(&url, &nobody());
    let request = server.join().unwrap();
    assert!(request.starts_with("GET /ndt/v7/download HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("user-agent: bentpipe-probe/"), "{request}");
    assert!(test.failure.is_some() && test.samples.len() == 1, "{test:?}");
    assert_eq!((test.samples[0].1, test.goodput_bps()), (8192, None));
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let mut failures = Vec::new();
    measure(&Server::Own(url), &[], &mut |test| failures.extend(test.failure));
    assert_eq!(failures, ["connection_refused"; 2]);
}

#[test]
fn certificates_are_checked() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let acceptor = channel::server(vec![certificate.clone()], key).unwrap();
    let origin = crate::origin::tests::start_with(Some(acceptor));
    let url = format!("wss://127.0.0.1:{}/ndt/v7/download", origin.port().unwrap());
    let url = Url::parse(&url).unwrap();
    let stranger = run(&url, &nobody());
    assert!(stranger.failure.is_some_and(|why| why.contains("certificate")));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let friend = run(&url, &Trust::new(roots));
    assert_eq!(friend.failure, None);
    assert!(friend.goodput_bps().is_some_and(|bps| bps > 1_000_000));
}
