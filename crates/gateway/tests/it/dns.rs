//! The resolver on board and the ground's, over the transports themselves, and a name server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use base64::Engine as _;
use bentpipe_gateway::air::{Air, Resolver};
use bentpipe_gateway::net::{Inherited, listen_tcp};
use bentpipe_link::ResetCode;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::svcb::SvcParamValue;
use hickory_proto::rr::rdata::{A, NULL, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::client::TlsStream;

use crate::bench::{echo, echoes, expect_reset, socks_client, soon, until};
use crate::tproxy::{as_root, new_network};
use crate::transports::{
    Configs, Ends, configs_with, over_aerotcp, over_http3, over_link, start_ground,
};

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub fn query(text: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0x4242, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    message
}

/// What the name server says.
fn answer(asked: &Message, over_tcp: bool) -> Message {
    let mut answer = Message::response(asked.metadata.id, OpCode::Query);
    answer.add_queries(asked.queries.clone());
    answer.metadata.recursion_available = true;
    let (owner, kind) = (asked.queries[0].name().clone(), asked.queries[0].query_type());
    let record = |data| Record::from_rdata(owner.clone(), 300, data);
    let mut edns = Edns::new();
    if owner == name("failing.test.") {
        answer.metadata.response_code = ResponseCode::ServFail;
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, 0]));
        answer.set_edns(edns);
        return answer;
    }
    match kind {
        RecordType::A => answer.add_answer(record(RData::A(A([127, 0, 0, 1].into())))),
        RecordType::TXT if !over_tcp => {
            answer.metadata.truncation = true;
            &mut answer
        }
        RecordType::TXT => {
            let texts = (0..30).map(|n| format!("{n:0100}")).collect();
            answer.add_answer(record(RData::TXT(TXT::new(texts))))
        }
        code => {
            let rdata = NULL::with(vec![0xc0, 0x0c, 1, 2, 3]);
            answer.add_answer(record(RData::Unknown { code, rdata }))
        }
    };
    answer.set_edns(edns);
    answer
}

/// A name server on loopback, and how many questions it got. Before it answers about `liar.test.` it
/// sends what a forger would, and about `slow.test.` it says nothing for a while.
async fn name_server() -> (SocketAddr, Arc<AtomicUsize>) {
    // The port that UDP is given may be taken for TCP.
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        match TcpListener::bind(udp.local_addr().unwrap()).await {
            Ok(tcp) => break (udp, tcp),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    };
    let address = udp.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..length]).unwrap();
            let is_first = count.fetch_add(1, SeqCst) == 0;
            if is_first && asked.queries[0].name() == &name("slow.test.") {
                // Longer than a server is asked alone.
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            let answer = answer(&asked, false);
            if asked.queries[0].name() == &name("liar.test.") {
                let mut forged = answer.clone();
                forged.answers[0].data = RData::A(A([127, 6, 6, 6].into()));
                let mut other = forged.clone();
                forged.metadata.id ^= 1;
                other.queries[0].set_name(name("lier.test."));
                for forged in [forged.to_vec().unwrap(), other.to_vec().unwrap(), b"?".to_vec()] {
                    udp.send_to(&forged, from).await.unwrap();
                }
            }
            udp.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = tcp.accept().await {
            tokio::spawn(async move {
                while let Some(asked) = read(&mut tcp).await {
                    write(&mut tcp, &answer(&asked, true)).await;
                }
            });
        }
    });
    (address, asked)
}

pub async fn read(tcp: &mut TcpStream) -> Option<Message> {
    let length = tcp.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    tcp.read_exact(&mut message).await.unwrap();
    Some(Message::from_vec(&message).unwrap())
}

pub async fn write(tcp: &mut TcpStream, message: &Message) {
    let bytes = message.to_vec().unwrap();
    tcp.write_all(&[&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat()).await.unwrap();
}

/// Both gateways and the name server.
struct Cabin {
    resolver: SocketAddr,
    socks: SocketAddr,
    counts: Resolver,
    asked: Arc<AtomicUsize>,
    air: Arc<bentpipe_gateway::counters::Counters>,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]";

async fn start(dns: &str, ground: &str, over: impl Fn(&Configs) -> Ends) -> Cabin {
    let mut configs = configs_with(&format!("dns = {{ {dns} }}"), ground);
    let (server, asked) = name_server().await;
    configs.ground.dns.servers = vec![server.to_string().parse().unwrap()];
    let (far, arrivals) = over(&configs);
    start_ground(&configs, arrivals);
    let gateway = Air::bind(&configs.air, &mut Inherited::default(), far).unwrap();
    let (resolver, socks) = (gateway.dns_addrs()[0], gateway.socks5_addr().unwrap());
    let (counts, air) = (gateway.resolver().unwrap(), gateway.counters());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(gateway.serve(async { drop(stopped.await) }));
    Cabin { resolver, socks, counts, asked, air, stop, task }
}

/// A client that asks until it is answered, as clients do.
async fn ask(resolver: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(resolver).await.unwrap();
    let bytes = question.to_vec().unwrap();
    let mut buffer = [0; 4096];
    soon("an answer", async {
        loop {
            socket.send(&bytes).await.unwrap();
            let wait = Duration::from_secs(2);
            let came = tokio::time::timeout(wait, socket.recv(&mut buffer)).await;
            let Ok(Ok(length)) = came else { continue };
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            assert_eq!(answer.metadata.id, question.metadata.id);
            // The link may have been on its way up.
            if answer.metadata.response_code != ResponseCode::ServFail {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

fn ips(message: &Message) -> Vec<IpAddr> {
    message.answers.iter().filter_map(|record| record.data.ip_addr()).collect()
}

async fn resolves(over: impl Fn(&Configs) -> Ends) {
    let cabin = start(LISTEN, "", over).await;
    let a = query("Www.A.test.", RecordType::A);
    let first = ask(cabin.resolver, &a).await;
    assert_eq!(ips(&first), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(first.queries[0].name().to_ascii(), "Www.A.test.");
    let asked = cabin.asked.load(SeqCst);
    assert_eq!(ips(&ask(cabin.resolver, &a).await), ips(&first));
    assert_eq!((cabin.asked.load(SeqCst), cabin.counts.counts().hits), (asked, 1));
    // An unknown type whose bytes look like a pointer passes as it is.
    let odd = query("odd.test.", RecordType::from(65_280));
    let answer = ask(cabin.resolver, &odd).await;
    let RData::Unknown { rdata, .. } = &answer.answers[0].data else { panic!("{answer}") };
    assert_eq!(rdata.anything[..], [0xc0, 0x0c, 1, 2, 3]);
    // What fits nowhere but a stream crosses by one, and the client has to come by one too.
    let big = query("big.test.", RecordType::TXT);
    let cut = ask(cabin.resolver, &big).await;
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut tcp = TcpStream::connect(cabin.resolver).await.unwrap();
    for question in [&big, &a, &query("new.test.", RecordType::A)] {
        write(&mut tcp, question).await;
        let whole = soon("an answer", read(&mut tcp)).await.unwrap();
        assert!(!whole.metadata.truncation && whole.answers.len() == 1);
        assert_eq!(whole.queries, question.queries);
    }
}

#[tokio::test]
async fn a_slow_name_server_is_waited_for() {
    let cabin = start(LISTEN, "", over_link).await;
    let answer = ask(cabin.resolver, &query("slow.test.", RecordType::A)).await;
    assert_eq!(answer.answers.len(), 1);
    // The client has come again and the aircraft too: it was one question all the same.
    let counts = cabin.counts.counts();
    assert_eq!((counts.missed, counts.unanswered), (1, 0), "{counts:?}");
}

#[tokio::test]
async fn names_cross_by_the_radio_transport() {
    resolves(over_link).await;
}

#[tokio::test]
async fn names_cross_by_http3() {
    resolves(over_http3).await;
}

#[tokio::test]
async fn names_cross_by_aerotcp() {
    resolves(over_aerotcp).await;
}

/// A certificate for `dns.example`, in files of `folder`; and who trusts it.
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

/// The configurations of both gateways, with the certificate in `folder`.
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
    /// Where it is: over TLS, and over HTTPS.
    addresses: [SocketAddr; 2],
    plain: SocketAddr,
    /// Trusts the certificate.
    client: rustls::ClientConfig,
    live: bentpipe_gateway::air::Live,
    folder: tempfile::TempDir,
}

async fn encrypted() -> Encrypted {
    let folder = tempfile::tempdir().unwrap();
    let client = certificate(folder.path());
    let mut configs = encrypted_configs(folder.path());
    configs.ground.dns.servers = vec![name_server().await.0.to_string().parse().unwrap()];
    let (far, arrivals) = over_link(&configs);
    start_ground(&configs, arrivals);
    let gateway = Air::bind(&configs.air, &mut Inherited::default(), far).unwrap();
    let addresses = gateway.encrypted_dns_addrs().map(|addresses| addresses[0]);
    let (plain, live) = (gateway.dns_addrs()[0], gateway.live());
    tokio::spawn(gateway.serve(std::future::pending()));
    // The link is up then.
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
    // All of them at once: what is known need not wait for what is not.
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
async fn who_pads_over_tls_is_answered_padded() {
    let Encrypted { addresses: [dot, _], plain, client, .. } = encrypted().await;
    let mut message = query("up.test.", RecordType::A);
    message.set_edns(Edns::new());
    let mut tls = tls(dot, client, "dot").await;
    assert!(ask_over_tls(&mut tls, &message).await.len() < 468);
    let mut edns = Edns::new();
    edns.options_mut().insert(EdnsOption::Unknown(12, vec![0; 77]));
    message.set_edns(edns);
    // What is known, what is not, and what is refused (RFC 8467 section 4.1).
    for name_of in ["up.test.", "new.test.", "resolver.arpa."] {
        message.queries[0].set_name(name(name_of));
        let answer = ask_over_tls(&mut tls, &message).await;
        assert_eq!(answer.len(), 468, "{name_of}");
        assert_eq!(Message::from_vec(&answer).unwrap().queries, message.queries);
    }
    // In clear it would be of no use.
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
    // Without one there is none, and the ground's resolver is not asked for its own.
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
    // Each trusts one certificate alone.
    let mut again = tls(dot, new.clone(), "dot").await;
    tls(doh, new, "h2").await;
    let message = query("up.test.", RecordType::A);
    for tls in [&mut open, &mut again] {
        let answer = Message::from_vec(&ask_over_tls(tls, &message).await).unwrap();
        assert_eq!(answer.answers.len(), 1);
    }
}

/// What devices are told of: the name and the addresses.
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
    // The old name is no more in the new certificate's file.
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
        let (far, arrivals) = over_link(&configs);
        start_ground(&configs, arrivals);
        let gateway = Air::bind(&configs.air, &mut Inherited::default(), far).unwrap();
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

#[test]
fn where_every_address_is_listened_at_both_families_are_taken_whatever_the_system_says() {
    as_root(
        "dns::where_every_address_is_listened_at_both_families_are_taken_whatever_the_system_says",
        || {
            new_network();
            std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").unwrap();
            let listener = listen_tcp("a test", "[::]:0".parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            std::net::TcpStream::connect(("127.0.0.1", port)).expect("IPv4 is taken");
            std::net::TcpStream::connect(("::1", port)).expect("IPv6 is taken");
        },
    );
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
                response.into_body().collect().await.unwrap();
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

/// A client of either version of HTTP.
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

#[tokio::test]
async fn forged_answers_do_not_count() {
    let cabin = start(LISTEN, "", over_link).await;
    let answer = ask(cabin.resolver, &query("liar.test.", RecordType::A)).await;
    assert_eq!(ips(&answer), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn a_failure_is_remembered_whatever_a_name_server_says_of_it() {
    let cabin = start(LISTEN, "", over_link).await;
    // The link is up then.
    ask(cabin.resolver, &query("up.test.", RecordType::A)).await;
    let mut tcp = TcpStream::connect(cabin.resolver).await.unwrap();
    let mut asked = Vec::new();
    for _ in 0..2 {
        write(&mut tcp, &query("failing.test.", RecordType::A)).await;
        let answer = soon("an answer", read(&mut tcp)).await.unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
        asked.push(cabin.asked.load(SeqCst));
    }
    assert_eq!((asked[0], cabin.counts.counts().failed), (asked[1], 1));
}

#[tokio::test]
async fn the_table_of_hosts_answers_too() {
    let ground = "hosts = { \"table.test\" = [\"192.0.2.7\", \"2001:db8::7\"] }";
    let cabin = start(LISTEN, ground, over_link).await;
    for (kind, ip) in [(RecordType::A, "192.0.2.7"), (RecordType::AAAA, "2001:db8::7")] {
        let answer = ask(cabin.resolver, &query("Table.Test.", kind)).await;
        assert_eq!(ips(&answer), [ip.parse::<IpAddr>().unwrap()]);
    }
    assert_eq!(cabin.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn no_passenger_reaches_the_resolver_itself() {
    for over in [over_link, over_http3, over_aerotcp] {
        let cabin = start(LISTEN, "", over).await;
        // It works for the gateway, so the link is up.
        ask(cabin.resolver, &query("a.test.", RecordType::A)).await;
        let mut tcp = TcpStream::connect(cabin.socks).await.unwrap();
        let host = b"resolver.bentpipe.invalid";
        let request = [&[5, 1, 0, 5, 1, 0, 3, host.len() as u8][..], host, &[0, 53]].concat();
        tcp.write_all(&request).await.unwrap();
        until("it was refused", || {
            [ResetCode::NameNotFound, ResetCode::Forbidden, ResetCode::Unreachable]
                .iter()
                .any(|code| cabin.air.resets(*code) == 1)
        })
        .await;
    }
}

#[tokio::test]
async fn a_restart_forgets_nothing_and_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dns.cache");
    let dns = format!("{LISTEN}, cache-file = \"{}\"", file.display());
    let cabin = start(&dns, "", over_link).await;
    let first = ask(cabin.resolver, &query("a.test.", RecordType::A)).await;
    cabin.stop.send(()).unwrap();
    soon("the end", cabin.task).await.unwrap();
    let again = start(&dns, "", over_link).await;
    assert_eq!(ips(&ask(again.resolver, &query("a.test.", RecordType::A)).await), ips(&first));
    assert_eq!((again.asked.load(SeqCst), again.counts.counts().hits), (0, 1));
    again.stop.send(()).unwrap();
    soon("the end", again.task).await.unwrap();
    // Whatever has become of the file, the gateway starts.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let third = start(&dns, "", over_link).await;
    assert_eq!(ips(&ask(third.resolver, &query("a.test.", RecordType::A)).await), ips(&first));
    assert_eq!(third.asked.load(SeqCst), 1);
}

#[tokio::test]
async fn instant_names_are_opened_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dns = format!(
        "{LISTEN}, cache-file = \"{}\", instant-names = {{ v4 = \"100.64.0.0/10\" }}",
        folder.path().join("dns.cache").display()
    );
    // Were an address of the pool dialled, the policy would let it.
    let ground = "hosts = { \"www.origin.example\" = \"127.0.0.1\" }";
    let cabin = start(&dns, ground, over_link).await;
    let answer = ask(cabin.resolver, &query("www.origin.example.", RecordType::A)).await;
    let [IpAddr::V4(ip)] = ips(&answer)[..] else { panic!("{answer}") };
    assert_eq!((ip.octets()[0], ip.octets()[1] & 0xc0), (100, 64));
    assert_eq!(cabin.counts.counts().instant, 1);
    let origin = echo("127.0.0.1:0").await;
    echoes(socks_client(cabin.socks, (ip, origin.port()).into()).await, b"by name").await;
    // What stands for no name leads nowhere.
    let other = (std::net::Ipv4Addr::from_bits(ip.to_bits() + 1), origin.port()).into();
    let mut nowhere = socks_client(cabin.socks, other).await;
    expect_reset(&mut nowhere).await;
    assert_eq!(
        cabin.air.resets(ResetCode::NameNotFound) + cabin.air.resets(ResetCode::Unreachable),
        1
    );
}

#[tokio::test]
async fn an_aircraft_that_begins_is_sent_what_it_used_to_ask_for() {
    let mut configs = configs_with(&format!("dns = {{ {LISTEN} }}"), "");
    let (server, asked) = name_server().await;
    configs.ground.dns.servers = vec![server.to_string().parse().unwrap()];
    configs.ground.dns.push_rate = Some("8 Mbit/s".parse().unwrap());
    let (far, arrivals) = over_link(&configs);
    start_ground(&configs, arrivals);
    let first = Air::bind(&configs.air, &mut Inherited::default(), far.clone()).unwrap();
    let resolver = first.dns_addrs()[0];
    let serving = tokio::spawn(first.serve(std::future::pending()));
    for name in ["a.test.", "b.test."] {
        ask(resolver, &query(name, RecordType::A)).await;
    }
    serving.abort();
    // The same aircraft, without anything in its cache.
    let again = configs_with(&format!("dns = {{ {LISTEN}, warm-start = \"64 KiB\" }}"), "");
    let second = Air::bind(&again.air, &mut Inherited::default(), far).unwrap();
    let (resolver, counts) = (second.dns_addrs()[0], second.resolver().unwrap());
    tokio::spawn(second.serve(std::future::pending()));
    until("both are here", || counts.counts().pushed == 2).await;
    let asked = (asked.load(SeqCst), asked);
    for name in ["a.test.", "b.test."] {
        let answer = ask(resolver, &query(name, RecordType::A)).await;
        assert_eq!(ips(&answer), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
    let counts = counts.counts();
    assert_eq!((counts.hits, counts.push_used, counts.missed), (2, 2, 0), "{counts:?}");
    assert_eq!(asked.1.load(SeqCst), asked.0, "nothing more was asked");
}
