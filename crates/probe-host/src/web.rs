//! One HTTP request in the clear, with its times. Redirects are not followed, and nothing is stored.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bentpipe_probe::target::Family;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use url::{Host, Url};

use crate::{clock, network, resolver};

/// Wait for the connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Largest response header.
const MAX_HEADER: usize = 16 * 1024;

/// Maximum number of header fields of a response.
const MAX_FIELDS: usize = 64;

/// Bounds of a request.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest time from the end of the handshake to the end of the response.
    pub patience: Duration,
    /// Bytes of the body after which reading stops; with 0 the body is not awaited.
    pub read: u64,
    /// Bytes of the body that are returned.
    pub keep: usize,
}

/// A response.
#[derive(Debug)]
pub struct Fetched {
    /// Server.
    pub address: SocketAddr,
    /// Time of the handshake.
    pub connected: Duration,
    /// Time from the request to the response header.
    pub first_byte: Duration,
    /// Time from the request to the end of the body.
    pub complete: Duration,
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub fields: HeaderMap,
    /// Length of the body.
    pub bytes: u64,
    /// Begin of the body.
    pub body: Vec<u8>,
    /// The body was longer than is read.
    pub cut: bool,
}

/// Fetches `url` with the machine's own `resolvers`. The lookup is not part of the times.
pub fn fetch(url: &Url, resolvers: &[IpAddr], bounds: Bounds) -> io::Result<Fetched> {
    fetch_from(address(url, resolvers)?, url, bounds)
}

/// Fetches `url` from a server's address.
pub fn fetch_from(server: IpAddr, url: &Url, bounds: Bounds) -> io::Result<Fetched> {
    let address = SocketAddr::new(server, url.port_or_known_default().unwrap_or(80));
    let began = clock::boot();
    let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
    let connected = clock::boot().saturating_sub(began);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let request = request(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let exchange = exchange(stream, request, address, connected, bounds);
        match tokio::time::timeout(bounds.patience, exchange).await {
            Ok(result) => result,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    })
}

fn request(url: &Url) -> io::Result<Request<Empty<Bytes>>> {
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let request = Request::get(path)
        .header("host", authority)
        .header("user-agent", "bentpipe-probe")
        .header("accept", "*/*")
        .header("connection", "close");
    request.body(Empty::new()).map_err(io::Error::other)
}

async fn exchange(
    stream: TcpStream,
    request: Request<Empty<Bytes>>,
    address: SocketAddr,
    connected: Duration,
    bounds: Bounds,
) -> io::Result<Fetched> {
    let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream)?);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEADER).max_headers(MAX_FIELDS);
    let (mut sender, connection) = builder.handshake(stream).await.map_err(fault)?;
    // It ends with the runtime, which lives as long as this request.
    let connection = tokio::spawn(connection);
    let began = clock::boot();
    let response = sender.send_request(request).await.map_err(fault)?;
    let first_byte = clock::boot().saturating_sub(began);
    let (head, mut incoming) = response.into_parts();
    let (mut bytes, mut body, mut cut) = (0, Vec::new(), false);
    // A caller that reads nothing does not wait for the body either.
    while bounds.read > 0
        && let Some(frame) = incoming.frame().await
    {
        let Ok(data) = frame.map_err(fault)?.into_data() else { continue };
        bytes += data.len() as u64;
        let room = bounds.keep.saturating_sub(body.len()).min(data.len());
        body.extend(&data[..room]);
        if bytes > bounds.read {
            cut = true;
            break;
        }
    }
    let complete = clock::boot().saturating_sub(began);
    connection.abort();
    let (status, fields) = (head.status, head.headers);
    Ok(Fetched { address, connected, first_byte, complete, status, fields, bytes, body, cut })
}

/// The system's error within one of HTTP, if there is one, so that it gets its name.
pub fn fault(error: hyper::Error) -> io::Error {
    let inner = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
    match inner.and_then(io::Error::raw_os_error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error),
    }
}

/// Address of a URL's host: literal, or the first that a resolver knows. IPv4 is preferred if it has a route.
pub fn address(url: &Url, resolvers: &[IpAddr]) -> io::Result<IpAddr> {
    address_until(url, resolvers, Duration::MAX)
}

/// Address of a URL's host. Lookups end at the boot time `end`.
pub fn address_until(url: &Url, resolvers: &[IpAddr], end: Duration) -> io::Result<IpAddr> {
    let host = url.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
    address_of_until(&host, network::main_family(), resolvers, end)
}

/// Address of a host: literal, or the first of a family that a resolver knows.
pub fn address_of(
    host: &Host<impl AsRef<str>>,
    family: Family,
    resolvers: &[IpAddr],
) -> io::Result<IpAddr> {
    address_of_until(host, family, resolvers, Duration::MAX)
}

fn address_of_until(
    host: &Host<impl AsRef<str>>,
    family: Family,
    resolvers: &[IpAddr],
    end: Duration,
) -> io::Result<IpAddr> {
    match host {
        Host::Ipv4(v4) => Ok((*v4).into()),
        Host::Ipv6(v6) => Ok((*v6).into()),
        Host::Domain(name) => lookup(name.as_ref(), family, resolvers, end),
    }
}

fn lookup(host: &str, family: Family, resolvers: &[IpAddr], end: Duration) -> io::Result<IpAddr> {
    let mut last = io::Error::other("the machine has no resolver");
    for resolver in resolvers {
        match resolver::addresses(*resolver, host, family, end) {
            Ok(found) => match found.first() {
                Some(address) => return Ok(*address),
                None => last = io::Error::other("dns_no_answer"),
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const BOUNDS: Bounds = Bounds { patience: Duration::from_secs(5), read: 1000, keep: 4 };

    /// Serves one response on loopback. Returns its URL, and the request that came.
    pub fn serve(response: &'static [u8]) -> (Url, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/generate_204", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(response).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (Url::parse(&url).unwrap(), server)
    }

    fn served(response: &'static [u8]) -> io::Result<Fetched> {
        let (url, server) = serve(response);
        let fetched = fetch(&url, &[], BOUNDS);
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /generate_204 HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("host: 127.0.0.1:"), "{request}");
        fetched
    }

    #[test]
    fn a_response_with_its_times() {
        let fetched =
            served(b"HTTP/1.1 200 OK\r\nVia: 1.1 x\r\nContent-Length: 6\r\n\r\nabcdef").unwrap();
        assert_eq!((fetched.status.as_u16(), fetched.bytes, fetched.cut), (200, 6, false));
        assert_eq!(
            (&fetched.body[..], fetched.fields["via"].as_bytes()),
            (&b"abcd"[..], &b"1.1 x"[..])
        );
        assert!(fetched.first_byte <= fetched.complete);
        let chunked =
            served(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
        assert_eq!(chunked.unwrap().bytes, 2);
    }

    #[test]
    fn bad_responses_are_errors() {
        assert!(served(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").is_err(), "cut");
        assert!(served(b"nonsense\r\n\r\n").is_err());
        let endless: &[u8] =
            Box::leak([b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![7; 9000]].concat().into());
        let fetched = served(endless).unwrap();
        assert!(fetched.cut && fetched.body.len() == 4);
        let fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(100));
        assert!(served(Box::leak(fields.into_bytes().into_boxed_slice())).is_err(), "100 fields");
    }
}
