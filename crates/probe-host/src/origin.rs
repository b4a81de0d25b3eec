//! An own origin in the clear: objects of any size with a serial number in each response, a page that answers 204, ndt7
//! tests, and trains of packets. It runs on a server on the ground.
//!
//! | module | contents |
//! |---|---|
//! | `ndt7` | ndt7 tests |
//! | `uploads` | records of probes |
//! | `trains` | trains of packets over UDP |

mod ndt7;
mod trains;
mod uploads;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_flow::places::Places;
use bentpipe_probe::objects::LARGE;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, LAST_MODIFIED};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UdpSocket};
use tokio_rustls::TlsAcceptor;

use crate::channel::{self, Channel};
use crate::error::Error;
use uploads::Uploads;

pub use ndt7::bounds as ndt7_bounds;
pub use trains::headers;

/// Field with the serial number of a response.
pub const SERIAL: &str = "x-bentpipe-serial";

/// Maximum number of connections at a time, of which a single host may have a fifth. With 1 MB each in
/// the kernel's buffers they take 64 MB.
const MAX_CONNECTIONS: usize = 64;

/// Longest time of a connection, and of a request header or a TLS handshake.
const MAX_CONNECTION: Duration = Duration::from_secs(120);
const HEADER_PATIENCE: Duration = Duration::from_secs(10);

/// Largest request header.
const MAX_HEADER: usize = 8192;

/// Path of a file that a client sends, of at most 1 MB.
pub const UPLOAD: &str = "/upload";

/// Path of an object of so many bytes. The nonce makes it one that no cache has.
pub fn path(bytes: u64, nonce: u64) -> String {
    format!("/object/{bytes}/{nonce:016x}")
}

/// A second place to listen at, under TLS.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    /// Address and port.
    pub listen: SocketAddr,
    /// PEM file of certificates.
    pub certificate: &'a Path,
    /// PEM file of the key.
    pub key: &'a Path,
}

/// Serves until the process ends.
///
/// `uploads` are the folder for uploads and the file with their token.
pub fn serve(
    listen: SocketAddr,
    tls: Option<Tls<'_>>,
    uploads: Option<(&Path, &Path)>,
) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    let uploads = uploads.map(|(folder, token)| Uploads::open(folder, token)).transpose()?;
    let tls = match tls {
        Some(Tls { listen, certificate, key }) => {
            Some((listen, channel::acceptor(certificate, key).map_err(Error::Arguments)?))
        }
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("starting the server"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(system("listening"))?;
        let local = listener.local_addr().map_err(system("listening"))?;
        let socket = UdpSocket::bind(local).await.map_err(system("listening to UDP"))?;
        tokio::spawn(trains::serve(socket));
        println!("bentpipe probe: serving objects at http://{local}/ until it is interrupted");
        let (origin, places) = (Origin::new(uploads), Places::new(MAX_CONNECTIONS));
        if let Some((listen, acceptor)) = tls {
            let listener = TcpListener::bind(listen).await.map_err(system("listening for TLS"))?;
            tokio::spawn(accept(listener, Some(acceptor), places.clone(), Arc::clone(&origin)));
        }
        accept(listener, None, places, origin).await
    })
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    places: Places,
    origin: Arc<Origin>,
) -> ! {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // A host that has its share is refused, so that others find a place.
                let Some(place) = places.admit(from.ip()) else { continue };
                let (origin, acceptor) = (Arc::clone(&origin), acceptor.clone());
                tokio::spawn(async move {
                    let accepted = channel::accept(stream, acceptor.as_ref());
                    let Ok(Ok(channel)) = tokio::time::timeout(HEADER_PATIENCE, accepted).await
                    else {
                        return;
                    };
                    // A client that goes away is not an error.
                    let served = connection(channel, from, origin);
                    let _ = tokio::time::timeout(MAX_CONNECTION, served).await;
                    drop(place);
                });
            }
            // Out of descriptors, for example.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn connection(channel: Channel, client: SocketAddr, origin: Arc<Origin>) -> io::Result<()> {
    // The secret and the records are for nobody on the way.
    let is_private =
        matches!(channel, Channel::Right(_)) || client.ip().to_canonical().is_loopback();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let uploads = origin.uploads.clone().filter(|_| uploads::is_ours(request.uri().path()));
        let response = match ndt7::direction(request.uri().path()) {
            Some(direction) => {
                let place = origin.tests.admit(client.ip());
                ndt7::upgrade(&mut request, direction, client, place, &origin.content)
            }
            None => origin.respond(request.method(), request.uri().path()),
        };
        async move {
            let is_upload = *request.method() == Method::POST && request.uri().path() == UPLOAD;
            let response = match uploads {
                Some(uploads) => uploads.respond(request, is_private).await,
                None if is_upload => receive(request).await,
                None => response,
            };
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(channel), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)
}

/// Receives a file and forgets it.
async fn receive(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (mut body, mut bytes) = (request.into_body(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return plain(StatusCode::BAD_REQUEST) };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if bytes > LARGE {
            return plain(StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
    plain(StatusCode::NO_CONTENT)
}

/// The content, the counter, and the places of tests.
struct Origin {
    serial: AtomicU64,
    content: Bytes,
    /// Places of ndt7 tests.
    tests: Places,
    uploads: Option<Arc<Uploads>>,
}

impl Origin {
    fn new(uploads: Option<Arc<Uploads>>) -> Arc<Self> {
        // Numbers of a later run are larger, so that no cache has one of them.
        let start =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() << 20;
        // Bytes that no proxy can compress.
        let mut random = bentpipe_probe::random::Random::new(1);
        let words = (0..LARGE.div_ceil(8)).flat_map(|_| random.next_u64().to_be_bytes());
        let content: Vec<u8> = words.take(LARGE as usize).collect();
        let tests = Places::new(ndt7::MAX_TESTS);
        Arc::new(Self { serial: AtomicU64::new(start), content: content.into(), tests, uploads })
    }

    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED);
            refusal.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a valid value"));
            return refusal;
        }
        if path == "/generate_204" {
            return plain(StatusCode::NO_CONTENT);
        }
        let Some(bytes) = size(path) else { return plain(StatusCode::NOT_FOUND) };
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let mut response = Response::new(Full::new(self.content.slice(..bytes as usize)));
        let fields = [
            (CACHE_CONTROL, "public, max-age=86400".to_owned()),
            (CONTENT_TYPE, "application/octet-stream".to_owned()),
            (LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
            (HeaderName::from_static(SERIAL), serial.to_string()),
        ];
        for (name, value) in fields {
            response.headers_mut().insert(name, value.parse().expect("a valid value"));
        }
        response
    }
}

/// Size in the path of an object.
fn size(path: &str) -> Option<u64> {
    let (bytes, _) = path.strip_prefix("/object/")?.split_once('/')?;
    bytes.parse().ok().filter(|bytes| (1..=LARGE).contains(bytes))
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, "no-store".parse().expect("a valid value"));
    response
}

#[cfg(test)]
pub(crate) mod tests {
    use url::Url;

    use super::*;
    use crate::web::{Bounds, fetch};

    const BOUNDS: Bounds = Bounds { patience: Duration::from_secs(20), read: LARGE, keep: 16 };

    /// An origin on loopback, which lives as long as the test's process.
    pub fn start() -> Url {
        start_with(None)
    }

    /// An origin on loopback under TLS, or in the clear.
    pub fn start_with(acceptor: Option<TlsAcceptor>) -> Url {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let socket = std::net::UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::spawn(trains::serve(UdpSocket::from_std(socket).unwrap()));
                let listener = TcpListener::from_std(listener).unwrap();
                accept(listener, acceptor, Places::new(MAX_CONNECTIONS), Origin::new(None)).await
            });
        });
        url
    }

    /// A connection from a loopback address, as of another host.
    fn from(host: u8, origin: &Url) -> std::net::TcpStream {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
        let origin = SocketAddr::from(([127, 0, 0, 1], origin.port().unwrap()));
        socket.connect(&origin.into()).unwrap();
        socket.into()
    }

    /// Returns `true` if the server answers on the connection.
    fn answers(mut connection: &std::net::TcpStream) -> bool {
        use std::io::{Read, Write};
        let request = b"GET /generate_204 HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut answer = [0; 12];
        connection.write_all(request).is_ok()
            && connection.read_exact(&mut answer).is_ok()
            && &answer == b"HTTP/1.1 204"
    }

    #[test]
    fn a_host_leaves_places_for_others() {
        let origin = start();
        let stranger: Vec<_> = (0..40).map(|_| from(2, &origin)).collect();
        let served = stranger.iter().filter(|connection| answers(connection)).count();
        assert_eq!(served, 13);
        assert!(answers(&from(3, &origin)), "another host finds a place");
    }

    #[test]
    fn objects_have_their_sizes_and_serial_numbers() {
        let origin = start();
        let mut last = 0;
        for bytes in [1, 1000, LARGE] {
            let url = origin.join(&path(bytes, 7)).unwrap();
            let fetched = fetch(&url, &[], BOUNDS).unwrap();
            assert_eq!((fetched.status.as_u16(), fetched.bytes, fetched.cut), (200, bytes, false));
            assert!(fetched.connected > Duration::ZERO && fetched.first_byte <= fetched.complete);
            let serial: u64 = fetched.fields[SERIAL].to_str().unwrap().parse().unwrap();
            assert!(serial > last, "each response has a number of its own");
            last = serial;
        }
        for (path, status) in
            [("/object/0/7", 404), ("/object/1000001/7", 404), ("/", 404), ("/generate_204", 204)]
        {
            let fetched = fetch(&origin.join(path).unwrap(), &[], BOUNDS).unwrap();
            assert_eq!(fetched.status.as_u16(), status, "{path}");
        }
    }
}
