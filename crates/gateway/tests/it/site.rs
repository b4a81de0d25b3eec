//! Names whose certificate the operator has, in HTTP/1.1 and HTTP/2; all other TLS is untouched.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bentpipe_flow::{Host, Service};
use bentpipe_gateway::air::Live;
use bentpipe_gateway::config::{AirConfig, ConfigError};
use bentpipe_gateway::refusals::Limit;
use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::bench::{
    Bench, LOOPBACK, config_of_air, echo, read_exactly, settled, socks_client, soon, start,
    start_with, until,
};
use crate::web::{head, whole};

pub const NAME: &str = "portal.test";

/// Writes a self-signed certificate for `name` to files in `folder`.
pub fn certificate(folder: &Path, name: &str) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// `air.toml` with a site whose files are in `folder`.
pub fn config(folder: &Path, more: &str) -> String {
    let folder = folder.display();
    format!(
        "[http-cache]\ncache-status = true\n[[site]]\nname = \"{NAME}\"\ncertificate = \"{folder}/{NAME}.pem\"\n\
         key = \"{folder}/{NAME}.key\"\n{more}"
    )
}

/// Opens TLS to `name` through the HTTP proxy, offering `alpn`.
pub async fn connect(
    bench: &Bench,
    root: &CertificateDer<'static>,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_from("127.0.0.1", bench, root, name, alpn).await
}

/// Opens TLS for a passenger at the address `from`.
async fn connect_from(
    from: &str,
    bench: &Bench,
    root: &CertificateDer<'static>,
    name: &str,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0))?;
    let mut tcp = socket.connect(bench.http).await?;
    let request = format!("CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n");
    tcp.write_all(request.as_bytes()).await?;
    assert!(head(&mut tcp).await.unwrap().starts_with("HTTP/1.1 200 OK"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// Requests `path` on its own connection in HTTP/1.1; returns the whole response.
pub async fn get(bench: &Bench, root: &CertificateDer<'static>, host: &str, path: &str) -> String {
    get_from("127.0.0.1", bench, root, (host, path)).await
}

/// Requests a path for a passenger at the address `from`.
pub async fn get_from(
    from: &str,
    bench: &Bench,
    root: &CertificateDer<'static>,
    (host, path): (&str, &str),
) -> String {
    let mut tls = connect_from(from, bench, root, NAME, &["http/1.1"]).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer).await;
    answer
}

/// An origin with or without TLS that answers "hello", and the requests it received.
async fn origin(tls: Option<TlsAcceptor>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    origin_of(tls, |_| whole("Cache-Control: max-age=60\r\n", "hello")).await
}

/// An origin that answers each path with `answer`.
pub async fn origin_of(
    tls: Option<TlsAcceptor>,
    answer: fn(&str) -> String,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let heard = asked.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (tls, heard) = (tls.clone(), heard.clone());
            tokio::spawn(async move {
                let mut io: Box<dyn Io> = match tls {
                    Some(tls) => Box::new(tls.accept(tcp).await.unwrap()),
                    None => Box::new(tcp),
                };
                let mut said = Vec::new();
                while let Ok(byte) = io.read_u8().await {
                    said.push(byte);
                    if said.ends_with(b"\r\n\r\n") {
                        let request = String::from_utf8(std::mem::take(&mut said)).unwrap();
                        let answer = answer(request.split(' ').nth(1).unwrap());
                        heard.lock().push(request);
                        io.write_all(answer.as_bytes()).await.unwrap();
                        io.flush().await.unwrap();
                    }
                }
            });
        }
    });
    (address, asked)
}

trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

#[tokio::test]
async fn a_new_certificate_is_shown_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let old = certificate(folder.path(), NAME);
    let (address, _) = origin(None).await;
    let config = config(folder.path(), &format!("origin = \"http://{address}\""));
    let mut live: Option<Live> = None;
    let bench = start_with(&config, LOOPBACK, |air| live = Some(air.live()));
    let mut open = connect(&bench, &old, NAME, &["http/1.1"]).await.unwrap();
    let new = certificate(folder.path(), NAME);
    live.unwrap().apply(&config_of_air(&config)).unwrap();
    // Each client trusts only one certificate, and open connections continue.
    assert!(get(&bench, &new, NAME, "/a").await.ends_with("hello"));
    assert!(connect(&bench, &old, NAME, &["http/1.1"]).await.is_err());
    let request = format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    open.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = open.read_to_string(&mut answer).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_site_is_served_from_the_cache_in_either_version() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let (address, asked) = origin(None).await;
    let bench = start(&config(folder.path(), &format!("origin = \"http://{address}\"")), LOOPBACK);
    let first = get(&bench, &root, NAME, "/a").await;
    assert!(first.starts_with("HTTP/1.1 200 OK") && first.ends_with("hello"), "{first}");
    assert!(first.contains("fwd=uri-miss"), "{first}");
    let second = get(&bench, &root, "Portal.TEST:443", "/a").await;
    assert!(second.contains("; hit") && second.ends_with("hello"), "{second}");

    let tls = connect(&bench, &root, NAME, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let ask =
        |url: &str| Request::get(url).version(Version::HTTP_2).body(Empty::<Bytes>::new()).unwrap();
    let third = sender.send_request(ask(&format!("https://{NAME}/a"))).await.unwrap();
    assert_eq!(third.version(), Version::HTTP_2);
    assert!(third.headers()["cache-status"].to_str().unwrap().contains("; hit"));
    assert_eq!(third.into_body().collect().await.unwrap().to_bytes(), "hello");
    let other = sender.send_request(ask("https://other.test/a")).await.unwrap();
    assert_eq!(other.status(), StatusCode::MISDIRECTED_REQUEST);
    // Every field that names the server must name the site, in any spelling.
    for (authority, host, status) in [
        (NAME, Some("other.test"), 421),
        ("user@portal.test", None, 421),
        ("portal.test:80", None, 421),
        ("portal.test.", None, 200),
        ("PORTAL.test:443", Some("portal.test"), 200),
    ] {
        let mut request = ask(&format!("https://{authority}/a"));
        if let Some(host) = host {
            request.headers_mut().insert("host", host.parse().unwrap());
        }
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status, "{authority} {host:?}");
    }
    let other = get(&bench, &root, "other.test", "/a").await;
    assert!(other.starts_with("HTTP/1.1 421 "), "{other}");

    let asked = asked.lock();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("host: portal.test\r\n"), "{}", asked[0]);
    assert_eq!(bench.air.sites.get(), 4);
}

/// Requests on one HTTP/2 connection, each of which needs a flow to an origin that never answers.
#[tokio::test]
async fn each_flow_of_a_stream_counts_as_one_of_its_passenger() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!("origin = \"http://{}\"", silent.local_addr().unwrap());
    let limits = "\n[limits]\nmax-flows-per-passenger = 4\n";
    let bench = start(&(config(folder.path(), &site) + limits), LOOPBACK);
    let tls = connect(&bench, &root, NAME, &["h2"]).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..8 {
        let (mut sender, answered) = (sender.clone(), answered.clone());
        let request = Request::get(format!("https://{NAME}/x?{n}")).version(Version::HTTP_2);
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        tokio::spawn(async move {
            if let Ok(answer) = sender.send_request(request).await {
                let _ = answered.send((answer.status(), answer.headers().clone()));
            }
        });
    }
    // The connection itself is the fourth flow.
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(soon("a request", silent.accept()).await.unwrap());
    }
    until("all have asked", || bench.air.http_requests.get() == 8).await;
    settled().await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    tokio::time::resume();
    for _ in 0..5 {
        let (status, headers) = soon("an answer", answers.recv()).await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(headers["retry-after"], "5");
    }
    let refusals = &bench.air.refusals;
    assert_eq!(refusals.count_refused(Limit::TcpFlows), 5);
    assert_eq!(refusals.count_evicted(Limit::TcpFlows), 0, "none of its own ended for another");
    assert!(answers.try_recv().is_err(), "three are under way");
}

/// A TLS acceptor for `name`, with its own certificate in `folder`.
pub fn acceptor(folder: &Path, name: &str) -> TlsAcceptor {
    let chain = vec![certificate(folder, name)];
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(server))
}

#[tokio::test]
async fn misses_travel_over_tls_that_the_ground_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let (address, asked) = origin(Some(acceptor(folder.path(), "origin.test"))).await;
    let trusting = |ca: &str| {
        let more = format!(
            "origin = \"https://origin.test:{}\"\norigin-ca = \"{}/{ca}.pem\"",
            address.port(),
            folder.path().display()
        );
        start(&config(folder.path(), &more), LOOPBACK)
    };
    let bench = trusting("origin.test");
    for path in ["/a", "/b", "/a"] {
        let answer = get(&bench, &root, NAME, path).await;
        assert!(answer.ends_with("hello"), "{answer}");
        settled().await;
    }
    assert_eq!(asked.lock().len(), 2);
    let opened = bench.up.opened();
    assert_eq!(opened.len(), 1, "one flow serves both");
    assert_eq!(opened[0].first[0], 22, "it begins with TLS");

    // A certificate for another name is not trusted.
    let bench = trusting(NAME);
    let answer = get(&bench, &root, NAME, "/a").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn pages_of_a_site_come_whole_where_both_ends_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let tls = acceptor(folder.path(), "origin.test");
    let (address, asked) = origin_of(Some(tls), |path| match path {
        "/" => whole("Content-Type: text/html\r\nCache-Control: no-cache\r\n", "<img src=a.png>"),
        _ => whole("Cache-Control: max-age=60\r\n", "picture"),
    })
    .await;
    let files = folder.path().display();
    let origin = |ca: &str| {
        let port = address.port();
        format!("origin = \"https://origin.test:{port}\"\norigin-ca = \"{files}/{ca}.pem\"\n")
    };
    let air = |split: bool| {
        let more = format!("{}split-http = {split}\n[split-http]\n", origin("origin.test"));
        config(folder.path(), &more)
    };
    let ground =
        |ca: &str| format!("{LOOPBACK}\n[split-http]\n[[site]]\nname = \"{NAME}\"\n{}", origin(ca));
    let page = async |bench: &Bench| {
        let mut tls = connect(bench, &root, NAME, &["http/1.1"]).await.unwrap();
        let mut all = String::new();
        for (path, accept) in [("/", "text/html"), ("/a.png", "*/*")] {
            let last = if path == "/" { "" } else { "Connection: close\r\n" };
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\nAccept: {accept}\r\n{last}\r\n");
            tls.write_all(request.as_bytes()).await.unwrap();
            // The page has arrived before its objects are requested.
            while path == "/" && !all.ends_with("<img src=a.png>") {
                let mut byte = [0];
                assert_eq!(tls.read(&mut byte).await.unwrap(), 1, "{all}");
                all.push(char::from(byte[0]));
            }
        }
        let _ = tls.read_to_string(&mut all).await;
        assert!(all.ends_with("picture"), "{all}");
        let flows: Vec<Host> = bench.up.opened().iter().map(|it| it.target.host.clone()).collect();
        (flows, std::mem::take(&mut *asked.lock()))
    };
    let (service, direct) = (Host::Service(Service::Pages), Host::Name("origin.test".to_owned()));
    let bench = start(&air(true), &ground("origin.test"));
    let (flows, heard) = page(&bench).await;
    assert_eq!(flows, std::slice::from_ref(&service), "all by one stream");
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard.iter().all(|head| head.contains("host: portal.test\r\n")), "{heard:?}");
    assert!(heard.iter().all(|head| head.contains("accept-encoding: identity")), "{heard:?}");
    assert_eq!(bench.ground.objects_promised.get(), 1);

    // If the ground does not know the site, the page is requested across the link after its
    // refusal.
    let (flows, heard) = page(&start(&air(true), &format!("{LOOPBACK}\n[split-http]\n"))).await;
    assert_eq!(flows[..2], [service, direct.clone()]);
    assert_eq!(heard.len(), 2);
    // A site without split-http is carried unread.
    let (flows, _) = page(&start(&air(false), &ground("origin.test"))).await;
    assert_eq!(flows, [direct]);
}

#[tokio::test]
async fn tls_for_other_names_is_untouched_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let (address, _) = origin(None).await;
    let bench = start(&config(folder.path(), &format!("origin = \"http://{address}\"")), LOOPBACK);
    // The first bytes of a client for another name, in pieces; and a name that only has the same
    // ending.
    for name in ["other.test", "x.portal.test", "portal.test.evil.test"] {
        let hello = hello(&root, name).await;
        let Some(to) = echo_at_443().await else { return };
        let mut tcp = socks_client(bench.socks, to).await;
        for piece in hello.chunks(100) {
            tcp.write_all(piece).await.unwrap();
        }
        assert_eq!(read_exactly(&mut tcp, hello.len()).await, hello, "{name}");
        tcp.write_all(b"anything").await.unwrap();
        assert_eq!(read_exactly(&mut tcp, 8).await, b"anything");
    }
    assert_eq!(bench.air.sites.get(), 0);
}

/// An echo on port 443 of a loopback address; `None` if this user may not bind it.
async fn echo_at_443() -> Option<SocketAddr> {
    static SERVED: tokio::sync::OnceCell<Option<SocketAddr>> = tokio::sync::OnceCell::const_new();
    *SERVED
        .get_or_init(|| async {
            match TcpListener::bind("127.0.9.9:443").await {
                Ok(probe) => {
                    drop(probe);
                    Some(echo("127.0.9.9:443").await)
                }
                Err(error) => {
                    crate::tproxy::skipped(&format!("port 443 of loopback: {error}"));
                    None
                }
            }
        })
        .await
}

/// The first bytes of a TLS client for `name`.
async fn hello(root: &CertificateDer<'static>, name: &str) -> Vec<u8> {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let connecting = tokio::spawn(async move { drop(connector.connect(name, client).await) });
    let mut hello = vec![0; 4096];
    let length = server.read(&mut hello).await.unwrap();
    connecting.abort();
    hello.truncate(length);
    hello
}

fn parse(folder: &Path, text: &str) -> Result<AirConfig, ConfigError> {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.join("a.key"), key).unwrap();
    let text = format!(
        "{text}\n[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\n"
    );
    AirConfig::parse(&folder.join("air.toml"), &text)
}

#[test]
fn faults_of_a_site_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificate(folder, NAME);
    certificate(folder, "other.test");
    std::fs::write(folder.join("empty.pem"), "").unwrap();
    let site = |name: &str, certificate: &str, key: &str, more: &str| {
        format!(
            "[http-cache]\n[[site]]\nname = \"{name}\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n\
             origin = \"http://127.0.0.1\"\n{more}"
        )
    };
    let good = site(NAME, "portal.test.pem", "portal.test.key", "");
    parse(folder, &good).unwrap();
    for (text, why) in [
        (site(NAME, "none.pem", "portal.test.key", ""), "cannot be read"),
        (site(NAME, "empty.pem", "portal.test.key", ""), "there is no certificate in it"),
        (site(NAME, "portal.test.pem", "empty.pem", ""), "empty.pem: "),
        (site(NAME, "portal.test.pem", "other.test.key", ""), "other.test.key: "),
        (site(NAME, "other.test.pem", "other.test.key", ""), "is not for portal.test"),
        (site("not a name", "portal.test.pem", "portal.test.key", ""), "is not a domain"),
        (good.replace("http://127.0.0.1", "ftp://a"), "is not where an origin is"),
        (good.replace("http://127.0.0.1", "http://a/path"), "is not where an origin is"),
        (good.replace("[http-cache]\n", ""), "no cache to answer for it"),
        (format!("{good}split-http = true\n"), "there is no such table"),
        (format!("{good}\n{}", good.replace("[http-cache]\n", "")), "is written twice"),
    ] {
        let error = parse(folder, &text).unwrap_err().to_string();
        assert!(error.contains(why), "{why:?} is not in: {error}");
    }
}
