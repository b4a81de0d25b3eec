//! An own origin in the clear: objects of any size with a serial number in each response, and a page that answers
//! 204. It runs on a server on the ground.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_probe::objects::LARGE;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, LAST_MODIFIED};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::error::Error;

/// Field with the serial number of a response.
pub const SERIAL: &str = "x-bentpipe-serial";

/// Most connections at a time. With 1 MB each in the kernel's buffers they take 64 MB.
const MAX_CONNECTIONS: usize = 64;

/// Longest time of a connection, and of a request header.
const MAX_CONNECTION: Duration = Duration::from_secs(120);
const HEADER_PATIENCE: Duration = Duration::from_secs(10);

/// Largest request header.
const MAX_HEADER: usize = 8192;

/// Path of an object of so many bytes. The nonce makes it one that no cache has.
pub fn path(bytes: u64, nonce: u64) -> String {
    format!("/object/{bytes}/{nonce:016x}")
}

/// Serves until the process ends.
pub fn serve(listen: SocketAddr) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("starting the server"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(system("listening"))?;
        let local = listener.local_addr().map_err(system("listening"))?;
        println!("bentpipe probe: serving objects at http://{local}/ until it is interrupted");
        accept(listener, Origin::new()).await
    })
}

async fn accept(listener: TcpListener, origin: Arc<Origin>) -> ! {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Never closed, so there is always a permit to wait for.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
        match listener.accept().await {
            Ok((stream, _)) => {
                let origin = Arc::clone(&origin);
                tokio::spawn(async move {
                    // A client that goes away is not an error.
                    let _ = tokio::time::timeout(MAX_CONNECTION, connection(stream, origin)).await;
                    drop(place);
                });
            }
            // Out of descriptors, for example.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn connection(stream: TcpStream, origin: Arc<Origin>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(move |request: Request<Incoming>| {
        let response = origin.respond(request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAX_HEADER)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

/// The content and the counter.
struct Origin {
    serial: AtomicU64,
    content: Bytes,
}

impl Origin {
    fn new() -> Arc<Self> {
        // Numbers of a later run are larger, so that no cache has one of them.
        let start =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() << 20;
        // Bytes that no proxy can compress.
        let mut random = bentpipe_probe::random::Random::new(1);
        let words = (0..LARGE.div_ceil(8)).flat_map(|_| random.next_u64().to_be_bytes());
        let content: Vec<u8> = words.take(LARGE as usize).collect();
        Arc::new(Self { serial: AtomicU64::new(start), content: content.into() })
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
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                accept(TcpListener::from_std(listener).unwrap(), Origin::new()).await
            });
        });
        url
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
