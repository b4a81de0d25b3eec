use std::net::{IpAddr, Ipv4Addr};

use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;
use crate::loader::{self, Load, Protocol, Tickets};
use crate::site::{Authority, Ports, ServerSettings, Shape, SiteServer};

const PORTS: Ports = Ports { http: 18080, https: 18443, proxy: 18843 };
const DEADLINE: Duration = Duration::from_secs(60);

/// Moves a site to addresses of this process, below 127.`net`.0.0.
fn here(mut site: Site, net: u32) -> Site {
    for (number, domain) in (0..).zip(&mut site.domains) {
        let host = ((std::process::id() & 0xfff) << 4) + number + 1;
        domain.address = IpAddr::V4(Ipv4Addr::from_bits(0x7f00_0000 | net << 16 | host));
    }
    site
}

fn model() -> Site {
    let shape = Shape { connections: 9, kilobytes: 90.0, requests: 20.0, domains: 3.0 };
    Site::model("three", &shape, 7, 1).unwrap()
}

/// Requests resource `number` on a connection to its site or to the proxy, with a `Referer` as a
/// browser sends it.
async fn get<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: T,
    site: &Site,
    number: usize,
    scheme: &str,
) -> Response<Bytes> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(io)).await.unwrap();
    let driver = tokio::spawn(connection);
    let uri = match scheme {
        "http" => site.url(scheme, number),
        _ => site.path(number),
    };
    let host = &site.domains[site.resources[number].domain].name;
    let mut request = Request::get(uri).header("host", host).header("if-none-match", "\"any\"");
    if let Some(after) = site.resources[number].after {
        request = request.header("referer", site.url(scheme, after));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    driver.abort();
    Response::from_parts(head, body)
}

/// Requests resource `number` through the proxy.
async fn through(recorder: &Recorder, lab: &Authority, site: &Site, number: usize, scheme: &str) {
    let mut tcp = TcpStream::connect(recorder.address()).await.unwrap();
    let answer = if scheme == "http" {
        get(tcp, site, number, scheme).await
    } else {
        let name = site.domains[site.resources[number].domain].name.clone();
        let connect = format!("CONNECT {name}:443 HTTP/1.1\r\nhost: {name}:443\r\n\r\n");
        tcp.write_all(connect.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\n") {
            said.push(tcp.read_u8().await.unwrap());
        }
        assert!(said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(lab.certificate().clone()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(crate::site::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name).unwrap();
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        get(tls, site, number, scheme).await
    };
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(site.content(number).matches(0, answer.body()));
    assert_eq!(answer.body().len() as u64, site.resources[number].bytes);
}

/// A proxy in front of the servers of `site`, whose certificates another authority signed.
fn recorder(site: &Site) -> (Recorder, Authority, SiteServer) {
    let [theirs, lab] = [Authority::new().unwrap(), Authority::new().unwrap()];
    let settings = ServerSettings { ports: PORTS, ..ServerSettings::new(theirs.clone()) };
    let server = SiteServer::start_here(site, &settings).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(theirs.certificate().clone()).unwrap();
    let settings = RecorderSettings {
        authority: lab.clone(),
        roots: Arc::new(roots),
        hosts: site.hosts(),
        ports: PORTS,
    };
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    (Recorder::start_here(any, settings).unwrap(), lab, server)
}

#[tokio::test]
async fn a_recorded_site_is_replayed_as_it_was() {
    for (net, scheme) in [(101, "http"), (103, "https")] {
        let site = here(model(), net);
        let (recorder, lab, _server) = recorder(&site);
        for number in 0..site.resources.len() {
            through(&recorder, &lab, &site, number, scheme).await;
        }
        // A second request stores nothing.
        through(&recorder, &lab, &site, 3, scheme).await;

        let folder = tempfile::tempdir().unwrap();
        let recorded = here(recorder.site("recorded").unwrap(), net + 1);
        recorded.write(folder.path()).unwrap();
        let read = Site::read(folder.path()).unwrap();
        assert_eq!(read, recorded);
        assert_eq!(recorder.left_out(), 0);
        for (number, (was, is)) in site.resources.iter().zip(&read.resources).enumerate() {
            assert_eq!((was.bytes, was.kind, was.after), (is.bytes, is.kind, is.after));
            assert_eq!(site.path(number), read.path(number));
        }

        let authority = Authority::new().unwrap();
        let settings = ServerSettings { ports: PORTS, ..ServerSettings::new(authority.clone()) };
        let _replay = SiteServer::start_here(&read, &settings).unwrap();
        for protocol in Protocol::ALL {
            let load = Load { ports: PORTS, ..Load::new(&read, protocol, DEADLINE) };
            let visit = loader::load(&load, &mut Tickets::new(&authority).unwrap()).await;
            assert!(!visit.failed(), "{protocol}: {:?}", visit.entries);
            assert_eq!(visit.bytes(), site.bytes());
        }
    }
}

#[tokio::test]
async fn responses_that_are_not_pages_are_not_stored() {
    let site = here(model(), 105);
    let (recorder, lab, _server) = recorder(&site);
    let error = recorder.site("nothing").unwrap_err().to_string();
    assert!(error.contains("of 0 requests"), "{error}");
    // A picture alone is not a site.
    through(&recorder, &lab, &site, 5, "http").await;
    let error = recorder.site("nothing").unwrap_err().to_string();
    assert!(error.contains("of 1 requests"), "{error}");

    let ask = async |text: &str| {
        let mut tcp = TcpStream::connect(recorder.address()).await.unwrap();
        tcp.write_all(text.as_bytes()).await.unwrap();
        let mut said = String::new();
        tcp.read_to_string(&mut said).await.unwrap();
        said.lines().next().unwrap_or_default().to_owned()
    };
    let close = "connection: close\r\n\r\n";
    let www = "http://www.three.test";
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{close}"), "400"),
        (format!("GET https://www.three.test/ HTTP/1.1\r\nhost: x\r\n{close}"), "400"),
        (format!("GET {www}/missing HTTP/1.1\r\nhost: www.three.test\r\n{close}"), "404"),
        (format!("GET {www}:1/ HTTP/1.1\r\nhost: www.three.test\r\n{close}"), "502"),
        (format!("POST {www}/1/ HTTP/1.1\r\nhost: www.three.test\r\n{close}"), "405"),
    ] {
        let said = ask(&request).await;
        assert!(said.contains(status), "{request}: {said}");
    }
    let site = recorder.site("nothing").unwrap_err().to_string();
    assert!(site.contains("no HTML was recorded"), "{site}");
}
