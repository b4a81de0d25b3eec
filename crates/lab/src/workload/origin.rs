//! The origin server: HTTP/1.1 with persistent connections. It serves objects and pages, receives
//! uploads, and reports the progress of an upload.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;

use super::content::Object;
use crate::emu::{EmuError, Host, SERVER, Service, listen_here};

/// Port of the origin. Gateways do not read HTTP on it.
const PORT: u16 = 8000;

/// Progress of a transfer, with its times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Payload bytes from the beginning on, without gaps.
    pub bytes: u64,
    /// Time of its first byte.
    pub first: Option<Instant>,
    /// Time of its last byte.
    pub last: Option<Instant>,
}

/// Uploads that the server has seen, by number. There are as many as a testbed has runs.
#[derive(Debug, Clone, Default)]
pub struct Uploads(Arc<Mutex<HashMap<u64, Upload>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Upload {
    arrival: Arrival,
    /// Offset of its first wrong byte.
    damaged_at: Option<u64>,
}

/// A running server. Dropping it ends the server.
pub struct Origin {
    /// Uploads received.
    pub uploads: Uploads,
    _service: Service,
}

impl Arrival {
    /// Adds bytes that have just arrived.
    pub fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.bytes += bytes as u64;
    }
}

impl Uploads {
    /// Progress of an upload.
    pub fn of(&self, number: u64) -> Arrival {
        self.lock().get(&number).map(|upload| upload.arrival).unwrap_or_default()
    }

    /// Offset of the first damaged byte of an upload, if any. The server knows it before its client
    /// does. The client may see only a broken connection, because the kernel discards a response to
    /// an end that is still sending.
    pub fn damage(&self, number: u64) -> Option<u64> {
        self.lock().get(&number)?.damaged_at
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Upload>> {
        self.0.lock()
    }

    /// Takes bytes of an upload at `offset`. Returns `false` if they are damaged. Repeated bytes
    /// count once; bytes after a gap do not count.
    fn take(&self, number: u64, object: &Object, offset: u64, data: &[u8]) -> bool {
        let mut all = self.lock();
        let Upload { arrival, damaged_at } = all.entry(number).or_default();
        if !object.matches(offset, data) {
            damaged_at.get_or_insert(offset);
            return false;
        }
        let new = (offset + data.len() as u64).saturating_sub(arrival.bytes);
        if offset <= arrival.bytes && new > 0 {
            arrival.add(new as usize);
        }
        true
    }
}

impl Origin {
    /// Address of the origin.
    pub fn address() -> SocketAddr {
        SocketAddr::new(SERVER.v4.into(), PORT)
    }

    /// Starts the server on `host`, with the congestion control of its kernel.
    pub fn start(host: &Host) -> Result<Self, EmuError> {
        let uploads = Uploads::default();
        let (seen, address) = (uploads.clone(), Self::address());
        let listener = host.run(|| listen_here(address, None))?;
        let listener = listener.map_err(|source| EmuError::Configure {
            host: host.name(),
            doing: format!("listen on TCP {address}"),
            source: source.into(),
        })?;
        let service = Service::start(host, move || serve(listener, seen))?;
        Ok(Self { uploads, _service: service })
    }
}

/// Serves every connection of `listener`, which must be non-blocking.
pub async fn serve(listener: std::net::TcpListener, uploads: Uploads) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    // This fails only if there are no descriptors left, and then nothing can be served.
    while let Ok((tcp, _)) = listener.accept().await {
        // A failure to disable Nagle's algorithm only adds delay.
        let _ = tcp.set_nodelay(true);
        let uploads = uploads.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, uploads.clone()));
            // It is not an error if the client disconnects.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), answer)
                .await;
        });
    }
}

type Answer = Response<Either<ObjectBody, String>>;

async fn answer(request: Request<Incoming>, uploads: Uploads) -> Result<Answer, Infallible> {
    let (path, query) = (request.uri().path(), Query::of(request.uri().query()));
    if let Some(number) = path.strip_prefix("/up/").and_then(|number| number.parse().ok()) {
        return Ok(words(StatusCode::OK, uploads.of(number).bytes.to_string()));
    }
    let object = Object::at(path).filter(|_| request.method() == Method::POST);
    let Some(object) = object else { return Ok(give(&request)) };
    let mut offset = query.from;
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        if !uploads.take(query.number, &object, offset, &data) {
            let why = format!("damaged behind byte {offset}\n");
            return Ok(words(StatusCode::BAD_REQUEST, why));
        }
        offset += data.len() as u64;
    }
    Ok(words(StatusCode::OK, offset.to_string()))
}

/// Response to a request for an object.
pub(super) fn give<B>(request: &Request<B>) -> Answer {
    let uri = request.uri();
    let mut response = match Object::at(uri.path()) {
        Some(object) if request.method() == Method::GET => {
            let kind = header::HeaderValue::from_static(object.kind);
            let body = ObjectBody::new(object, Query::of(uri.query()).from);
            let mut response = Response::new(Either::Left(body));
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Some(_) => words(StatusCode::METHOD_NOT_ALLOWED, "GET, POST\n".into()),
        None => words(
            StatusCode::NOT_FOUND,
            "here are /page/N, /object/BYTES, /image/N.bmp and /up/NUMBER\n".into(),
        ),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn words(status: StatusCode, words: String) -> Answer {
    let mut response = Response::new(Either::Right(words));
    *response.status_mut() = status;
    response
}

/// Query of a request: `from=OFFSET&number=NUMBER`, each 0 if absent.
struct Query {
    from: u64,
    number: u64,
}

impl Query {
    fn of(query: Option<&str>) -> Self {
        let value = |key: &str| {
            let pairs = query.unwrap_or_default().split('&').filter_map(|one| one.split_once('='));
            let found = pairs.into_iter().find(|(name, _)| *name == key);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        Self { from: value("from"), number: value("number") }
    }
}

/// An object that is being sent or uploaded.
pub struct ObjectBody {
    object: Object,
    offset: u64,
}

impl ObjectBody {
    /// Rest of `object` from `offset` on.
    pub fn new(object: Object, offset: u64) -> Self {
        Self { object, offset }
    }
}

impl Body for ObjectBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let slice = self.object.slice(self.offset);
        self.offset += slice.len() as u64;
        Poll::Ready((!slice.is_empty()).then(|| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.offset >= self.object.bytes()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.object.bytes().saturating_sub(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_counts_every_byte_once_and_no_gap() {
        let (uploads, object) = (Uploads::default(), Object::at("/object/1000").unwrap());
        let part = |from: u64, to: usize| object.slice(from)[..to - from as usize].to_vec();
        assert!(uploads.take(7, &object, 0, &part(0, 400)));
        assert!(uploads.take(7, &object, 200, &part(200, 600)), "a part comes again");
        assert_eq!(uploads.of(7).bytes, 600);
        assert!(uploads.take(7, &object, 800, &part(800, 1000)), "a gap");
        assert_eq!(uploads.of(7).bytes, 600);
        assert_eq!(uploads.damage(7), None);
        assert!(!uploads.take(7, &object, 600, &part(0, 100)), "other bytes");
        assert!(!uploads.take(7, &object, 700, &part(0, 100)), "and again");
        assert_eq!((uploads.of(7).bytes, uploads.damage(7)), (600, Some(600)));
        assert_eq!((uploads.of(8), uploads.damage(8)), (Arrival::default(), None));
    }
}
