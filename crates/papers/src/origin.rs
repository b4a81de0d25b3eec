//! The server of transfers: objects down, objects up, and what of an upload has come.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bentpipe_lab::emu::{EmuError, Host, SERVER};
use bentpipe_lab::workload::content::Object;
use bentpipe_lab::workload::origin::ObjectBody;
use bentpipe_lab::workload::service::Service;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Port: not one on which gateways read HTTP.
const PORT: u16 = 8000;

/// Progress of a transfer, with its times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Payload, from the beginning and without gaps.
    pub bytes: u64,
    /// Time of its first byte.
    pub first: Option<Instant>,
    /// Time of its last byte.
    pub last: Option<Instant>,
}

/// The uploads that the server has seen, by their number: as many as a world has runs.
#[derive(Debug, Clone, Default)]
pub struct Uploads(Arc<Mutex<HashMap<u64, Upload>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Upload {
    arrival: Arrival,
    /// Offset of its first wrong byte.
    damaged_at: Option<u64>,
}

/// A running server; dropping it ends it.
pub struct Origin {
    /// Uploads received.
    pub uploads: Uploads,
    _service: Service,
}

impl Arrival {
    /// More of it is here.
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

    /// Behind which byte an upload was damaged, if it was. The server knows it before its client can
    /// see anything of it, and the client may see no more than a connection that breaks: whoever
    /// answers while the other end still sends has its answer thrown away by the kernel.
    pub fn damage(&self, number: u64) -> Option<u64> {
        self.lock().get(&number)?.damaged_at
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Upload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of an upload at `offset`; `false` where they are not what should be there. What was
    /// there before counts once; what leaves a gap does not count.
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

    /// Starts it on `host`, whose kernel sends as it is set.
    pub fn start(host: &Host) -> Result<Self, EmuError> {
        let uploads = Uploads::default();
        let seen = uploads.clone();
        let listener = host.tcp_listener(Self::address())?;
        let service = Service::start(host, move || serve(listener, seen))?;
        Ok(Self { uploads, _service: service })
    }
}

pub(crate) async fn serve(listener: std::net::TcpListener, uploads: Uploads) {
    let set = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let Ok(listener) = set else { return };
    while let Ok((tcp, _)) = listener.accept().await {
        // A lost Nagle switch only delays.
        let _ = tcp.set_nodelay(true);
        let uploads = uploads.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, uploads.clone()));
            // The client's going away is no event for a server.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), answer)
                .await;
        });
    }
}

type Answer = Response<Either<ObjectBody, String>>;

async fn answer(request: Request<Incoming>, uploads: Uploads) -> Result<Answer, Infallible> {
    let (path, query) = (request.uri().path().to_owned(), Query::of(request.uri().query()));
    let words = |status, words: String| {
        let mut response = Response::new(Either::Right(words));
        *response.status_mut() = status;
        Ok(response)
    };
    if let Some(number) = path.strip_prefix("/up/").and_then(|number| number.parse().ok()) {
        return words(StatusCode::OK, uploads.of(number).bytes.to_string());
    }
    let Some(object) = Object::at(&path) else {
        return words(StatusCode::NOT_FOUND, "here are /object/BYTES and /up/NUMBER\n".into());
    };
    if request.method() == Method::GET {
        return Ok(Response::new(Either::Left(ObjectBody::new(object, query.from))));
    }
    let mut offset = query.from;
    let mut body = request.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        if !uploads.take(query.number, &object, offset, &data) {
            return words(StatusCode::BAD_REQUEST, format!("damaged behind byte {offset}\n"));
        }
        offset += data.len() as u64;
    }
    words(StatusCode::OK, offset.to_string())
}

/// Query of a request: `from=OFFSET&number=NUMBER`, each 0 if it is absent.
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
