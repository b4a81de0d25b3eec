//! DNS over TLS and HTTPS, and its discovery by devices.

use base64::Engine as _;
use hickory_proto::rr::rdata::svcb::SvcParamValue;
use http_body_util::BodyExt;
use tokio_rustls::client::TlsStream;

use super::*;

/// Writes a certificate for `dns.example` to `folder`; returns a client that trusts it.
fn certificate(folder: &std::path::Path) -> rustls::ClientConfig {
    certificate_for(&["dns.example"], folder)
}

fn certificate_for(names: &[&str], folder: &std::path::Path) -> rustls::ClientConfig {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.join("chain.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    client.with_root_certificates(roots).with_no_client_auth()
}

/// Configurations of both gateways, with the certificate in `folder`.
fn encrypted_configs(folder: &std::path::Path) -> Configs {
    encrypted_configs_of("dns.example", folder)
}

fn encrypted_configs_of(name: &str, folder: &std::path::Path) -> Configs {
    let at = folder.display();
    let dns = format!(
        "dns = {{ {LISTEN}, encrypted = {{ name = \"{name}\", tls = [\"127.0.0.1:0\"], \
         https = [\"127.0.0.1:0\"], certificate = \"{at}/chain.pem\", key = \"{at}/key.pem\" }} }}"
    );
    configs_with(&dns, "")
}

/// A gateway with a certificate.
struct Encrypted {
    /// Addresses of DNS over TLS and over HTTPS.
    addresses: [SocketAddr; 2],
    plain: SocketAddr,
    /// Client configuration that trusts the certificate.
    client: rustls::ClientConfig,
    live: bentpipe_gateway::air::Live,
    folder: tempfile::TempDir,
}

async fn encrypted() -> Encrypted {
    let folder = tempfile::tempdir().unwrap();
    let client = certificate(folder.path());
    let mut configs = encrypted_configs(folder.path());
    configs.ground.dns.servers = vec![name_server().await.0.to_string().parse().unwrap()];
    let (connector, acceptor) = over_link(&configs);
    start_ground(&configs, acceptor);
    let gateway = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let addresses = gateway.encrypted_dns_addrs().map(|addresses| addresses[0]);
    let (plain, live) = (gateway.dns_addrs()[0], gateway.live());
    tokio::spawn(gateway.serve(std::future::pending()));
    // After this, the link is up.
    ask(plain, &query("up.test.", RecordType::A)).await;
    Encrypted { addresses, plain, client, live, folder }
}

async fn tls(to: SocketAddr, mut client: rustls::ClientConfig, alpn: &str) -> TlsStream<TcpStream> {
    client.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let tcp = TcpStream::connect(to).await.unwrap();
    let name = "dns.example".try_into().unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, tcp).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    tls
}

#[tokio::test]
async fn names_come_over_tls() {
    let Encrypted { addresses: [dot, _], client, .. } = encrypted().await;
    let mut tls = tls(dot, client, "dot").await;
    // All at once: known answers need not wait for unknown ones.
    let questions = ["new.test.", "up.test.", "other.test."].map(|name| {
        let message = query(name, RecordType::A).to_vec().unwrap();
        [&(message.len() as u16).to_be_bytes()[..], &message].concat()
    });
    tls.write_all(&questions.concat()).await.unwrap();
    let mut names = Vec::new();
    for _ in 0..3 {
        let length = soon("an answer", tls.read_u16()).await.unwrap();
        let mut message = vec![0; length.into()];
        tls.read_exact(&mut message).await.unwrap();
        let answer = Message::from_vec(&message).unwrap();
        assert_eq!(answer.answers.len(), 1);
        names.push(answer.queries[0].name().to_ascii());
    }
    assert_eq!(names[0], "up.test.");
    names.sort();
    assert_eq!(names, ["new.test.", "other.test.", "up.test."]);
}

async fn ask_over_tls(tls: &mut TlsStream<TcpStream>, message: &Message) -> Vec<u8> {
    let message = message.to_vec().unwrap();
    let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    tls.write_all(&framed).await.unwrap();
    let length = soon("an answer", tls.read_u16()).await.unwrap();
    let mut answer = vec![0; length.into()];
    tls.read_exact(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn padded_queries_over_tls_get_padded_answers() {
    let Encrypted { addresses: [dot, _], plain, client, .. } = encrypted().await;
    let mut message = query("up.test.", RecordType::A);
    message.set_edns(Edns::new());
    let mut tls = tls(dot, client, "dot").await;
    assert!(ask_over_tls(&mut tls, &message).await.len() < 468);
    let mut edns = Edns::new();
    edns.options_mut().insert(EdnsOption::Unknown(12, vec![0; 77]));
    message.set_edns(edns);
    // A cached answer, an uncached one, and a refusal (RFC 8467 section 4.1).
    for name_of in ["up.test.", "new.test.", "resolver.arpa."] {
        message.queries[0].set_name(name(name_of));
        let answer = ask_over_tls(&mut tls, &message).await;
        assert_eq!(answer.len(), 468, "{name_of}");
        assert_eq!(Message::from_vec(&answer).unwrap().queries, message.queries);
    }
    // Without encryption, padding would be useless.
    let answer = ask(plain, &message).await;
    assert!(answer.to_vec().unwrap().len() < 100);
}

#[tokio::test]
async fn devices_find_the_encrypted_resolver() {
    let Encrypted { addresses, plain, .. } = encrypted().await;
    let answer = ask(plain, &query("_dns.resolver.arpa.", RecordType::SVCB)).await;
    let ports = answer.answers.iter().map(|record| {
        let RData::SVCB(svcb) = &record.data else { panic!("{record}") };
        assert_eq!(svcb.target_name, name("dns.example."));
        let port = svcb.svc_params.iter().find_map(|(_, value)| match value {
            SvcParamValue::Port(port) => Some(*port),
            _ => None,
        });
        port.unwrap()
    });
    assert_eq!(ports.collect::<Vec<_>>(), addresses.map(|address| address.port()));
    assert_eq!(answer.additionals[0].name, name("dns.example."));
    // Without an encrypted resolver, nothing is announced, and the ground's resolver is not queried
    // for its own.
    let cabin = start(LISTEN, "", over_link).await;
    let answer = ask(cabin.resolver, &query("_dns.resolver.arpa.", RecordType::SVCB)).await;
    assert_eq!((answer.answers.len(), cabin.asked.load(SeqCst)), (0, 0));
}

#[tokio::test]
async fn a_new_certificate_is_shown_after_a_reload() {
    let Encrypted { addresses: [dot, doh], client: old, live, folder, .. } = encrypted().await;
    let mut open = tls(dot, old, "dot").await;
    let new = certificate(folder.path());
    live.apply(&encrypted_configs(folder.path()).air).unwrap();
    // Each client trusts only one certificate.
    let mut again = tls(dot, new.clone(), "dot").await;
    tls(doh, new, "h2").await;
    let message = query("up.test.", RecordType::A);
    for tls in [&mut open, &mut again] {
        let answer = Message::from_vec(&ask_over_tls(tls, &message).await).unwrap();
        assert_eq!(answer.answers.len(), 1);
    }
}

/// Announcement for devices: names and addresses.
async fn designated(plain: SocketAddr) -> (Vec<String>, Vec<IpAddr>) {
    let answer = ask(plain, &query("_dns.resolver.arpa.", RecordType::SVCB)).await;
    let names = answer.answers.iter().map(|record| {
        let RData::SVCB(svcb) = &record.data else { panic!("{record}") };
        svcb.target_name.to_ascii()
    });
    let addresses = answer.additionals.iter().filter_map(|record| record.data.ip_addr());
    (names.collect(), addresses.collect())
}

#[tokio::test]
async fn the_name_that_devices_are_told_is_that_of_the_certificate_after_a_reload_too() {
    let Encrypted { addresses: [dot, _], plain, live, folder, .. } = encrypted().await;
    assert_eq!(designated(plain).await.0, ["dns.example."; 2]);
    // The new certificate's file no longer has the old name.
    let new = certificate_for(&["names.example"], folder.path());
    live.apply(&encrypted_configs_of("names.example", folder.path()).air).unwrap();
    assert_eq!(designated(plain).await.0, ["names.example."; 2]);
    let tcp = TcpStream::connect(dot).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(new));
    connector.connect("names.example".try_into().unwrap(), tcp).await.unwrap();
}

#[tokio::test]
async fn devices_are_told_only_of_addresses_that_are_served() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let at = folder.path().display();
    for (wildcard, expected) in [("0.0.0.0", &["127.0.0.1"][..]), ("[::]", &["127.0.0.1", "::1"])] {
        let dns = format!(
            "dns = {{ listen = [\"127.0.0.1:0\", \"[::1]:0\"], encrypted = {{ name = \"dns.example\", \
             tls = [\"{wildcard}:0\"], certificate = \"{at}/chain.pem\", key = \"{at}/key.pem\" }} }}"
        );
        let configs = configs_with(&dns, "");
        let (connector, acceptor) = over_link(&configs);
        start_ground(&configs, acceptor);
        let gateway = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
        let [dot, _] = gateway.encrypted_dns_addrs();
        let plain = gateway.dns_addrs()[0];
        tokio::spawn(gateway.serve(std::future::pending()));
        let (_, told) = designated(plain).await;
        assert_eq!(told, expected.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>());
        for ip in told {
            TcpStream::connect((ip, dot[0].port())).await.expect("it is served there");
        }
    }
}

#[tokio::test]
async fn names_come_over_https() {
    let Encrypted { addresses: [_, doh], client, .. } = encrypted().await;
    let message = query("a.test.", RecordType::A).to_vec().unwrap();
    let dns = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&message);
    let request = |method: &str, path: String, kind: &str, body: Vec<u8>| {
        http::Request::builder()
            .method(method)
            .uri(format!("https://dns.example{path}"))
            .header("host", "dns.example")
            .header("content-type", kind)
            .body(http_body_util::Full::<bytes::Bytes>::from(body))
            .unwrap()
    };
    let media = "application/dns-message";
    for alpn in ["http/1.1", "h2"] {
        let io = hyper_util::rt::TokioIo::new(tls(doh, client.clone(), alpn).await);
        let requests = [
            (200, request("POST", "/dns-query".into(), media, message.clone())),
            (200, request("GET", format!("/dns-query?dns={dns}"), media, vec![])),
            (400, request("GET", "/dns-query?dns=!".into(), media, vec![])),
            (400, request("POST", "/dns-query".into(), media, b"no query".to_vec())),
            (415, request("POST", "/dns-query".into(), "text/plain", message.clone())),
            (405, request("PUT", "/dns-query".into(), media, message.clone())),
            (404, request("GET", "/".into(), media, vec![])),
        ];
        let mut send = Sender::new(alpn, io).await;
        for (status, request) in requests {
            let response = soon("a response", send.send(request)).await;
            assert_eq!(response.status(), status, "{alpn}");
            if status != 200 {
                let words = response.into_body().collect().await.unwrap().to_bytes();
                assert!(!words.is_empty(), "{status} says nothing");
                continue;
            }
            assert_eq!(response.headers()["content-type"], media);
            let age = response.headers()["cache-control"].to_str().unwrap().to_owned();
            let age: u32 = age.strip_prefix("max-age=").unwrap().parse().unwrap();
            assert!((200..=300).contains(&age), "{age}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(Message::from_vec(&body).unwrap().answers.len(), 1);
        }
    }
}

/// A client that is still sending may not read an early response, and would lose it if the
/// connection were closed after the response.
#[tokio::test]
async fn a_refused_request_over_https_is_read_first() {
    let Encrypted { addresses: [_, doh], client, .. } = encrypted().await;
    let mut tls = tls(doh, client, "http/1.1").await;
    let head = "POST /dns-query HTTP/1.1\r\nHost: dns.example\r\nContent-Type: text/plain\r\n\
                Content-Length: 60000\r\n\r\n";
    tls.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..60 {
        tls.write_all(&[b'x'; 1000]).await.unwrap();
        tls.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    let again = "GET /elsewhere HTTP/1.1\r\nHost: dns.example\r\nConnection: close\r\n\r\n";
    tls.write_all(again.as_bytes()).await.unwrap();
    let mut answers = String::new();
    // The closing message of TLS may be missing.
    let _ = soon("the answers", tls.read_to_string(&mut answers)).await;
    let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
    assert_eq!(statuses, ["415", "404"]);
}

/// A client for HTTP/1.1 or HTTP/2.
enum Sender {
    One(hyper::client::conn::http1::SendRequest<http_body_util::Full<bytes::Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<http_body_util::Full<bytes::Bytes>>),
}

impl Sender {
    async fn new(alpn: &str, io: hyper_util::rt::TokioIo<TlsStream<TcpStream>>) -> Self {
        if alpn == "h2" {
            let executor = hyper_util::rt::TokioExecutor::new();
            let (send, connection) =
                hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            return Self::Two(send);
        }
        let (send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self::One(send)
    }

    async fn send(
        &mut self,
        request: http::Request<http_body_util::Full<bytes::Bytes>>,
    ) -> http::Response<hyper::body::Incoming> {
        match self {
            Self::One(send) => {
                send.ready().await.unwrap();
                send.send_request(request).await.unwrap()
            }
            Self::Two(send) => send.send_request(request).await.unwrap(),
        }
    }
}

/// Many clients discard a response if their upload is reset.
#[tokio::test]
async fn a_message_too_large_over_http2_is_read_before_its_refusal_counts() {
    let Encrypted { addresses: [_, doh], client, .. } = encrypted().await;
    let io = hyper_util::rt::TokioIo::new(tls(doh, client, "h2").await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let (body, read) = crate::early::upload(5);
        let request = http::Request::post("https://dns.example/dns-query");
        let request = request.header("content-type", "application/dns-message");
        let answer = send.send_request(request.body(body).unwrap());
        let answer = soon("an answer", answer).await.unwrap();
        assert_eq!(answer.status(), http::StatusCode::PAYLOAD_TOO_LARGE);
        let words = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
        assert!(!words.to_bytes().is_empty());
        until("all 320 KiB are read", || read.load(SeqCst) == 5).await;
    }
}
