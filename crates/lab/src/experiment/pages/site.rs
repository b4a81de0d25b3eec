//! The pages of Rural-PAWS at an origin next to the ground: a document, and pictures of one length.

use std::convert::Infallible;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::pages::{Connection, Origins};
use bentpipe_prefetch::address::Origin;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::sleep;

use crate::workload::content::Object;

/// Name of the host.
pub const HOST: &str = "paws.test";
/// Round trip between the ground and the origin. The value is ours.
const RTT: Duration = Duration::from_millis(20);
/// Buffer of a connection, larger than what the link carries in a round trip of it.
const PIPE_BYTES: usize = 256 << 10;

/// A page, identified by its total size and that of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Size of all objects together, in KB.
    pub total_kb: u64,
    /// Size of each object.
    pub object_bytes: u64,
}

impl Page {
    /// A page of 175 objects.
    pub const LARGE: Self = Self { total_kb: 2500, object_bytes: 14_286 };

    /// All nine pages of the paper (section VIII).
    pub fn all() -> impl Iterator<Item = Self> {
        let sizes = [500, 1500, 2500].into_iter();
        sizes.flat_map(|total_kb| {
            [5, 20, 100].map(|object_kb| Self { total_kb, object_bytes: 1000 * object_kb })
        })
    }

    /// Paths of its objects. Their lengths differ by a few bytes.
    pub fn paths(self) -> Vec<String> {
        let count = (1000 * self.total_kb + self.object_bytes / 2) / self.object_bytes;
        let lengths = (0..count).map(|n| self.object_bytes + n % 100);
        lengths.enumerate().map(|(n, length)| format!("/object/{length}?{n}")).collect()
    }

    /// HTML of the document.
    pub fn document(self) -> String {
        let images =
            self.paths().into_iter().map(|path| format!("<img src=\"{path}\" alt=\"\">\n"));
        format!("<!DOCTYPE html><title>Rural-PAWS</title>\n{}", images.collect::<String>())
    }

    /// Total bytes of its document and all its objects.
    pub fn bytes(self) -> u64 {
        let objects = self.paths().into_iter().filter_map(|path| Object::at(&path));
        self.document().len() as u64 + objects.map(|object| object.bytes()).sum::<u64>()
    }

    /// Path of its document.
    pub fn path(self) -> String {
        format!("/{}/{}", self.total_kb, self.object_kb())
    }

    fn at(path: &str) -> Option<Self> {
        Self::all().chain([Self::LARGE]).find(|page| page.path() == path)
    }

    /// Name in rows.
    pub fn name(self) -> String {
        format!("page-{}k-{}k", self.total_kb, self.object_kb())
    }

    fn object_kb(self) -> u64 {
        self.object_bytes / 1000
    }
}

/// Body, type and `Cache-Control` at `path`.
pub fn body(path: &str) -> Option<(Bytes, &'static str, &'static str)> {
    if let Some(page) = Page::at(path) {
        return Some((page.document().into(), "text/html", "no-cache"));
    }
    let object = Object::at(path)?;
    let mut bytes = vec![0; object.bytes() as usize];
    // Each object has its own noise, because otherwise compression would find one in the other.
    let step = |seed: u64, byte: u8| seed.wrapping_mul(257).wrapping_add(byte.into());
    ChaCha8Rng::seed_from_u64(path.bytes().fold(0, step)).fill_bytes(&mut bytes);
    Some((bytes.into(), "image/bmp", "max-age=600"))
}

/// The origin server.
pub struct Site;

impl Origins for Site {
    fn connect(&self, _: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>> {
        Box::pin(async {
            sleep(RTT).await;
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            tokio::spawn(async move {
                let serve = service_fn(answer);
                let server = hyper::server::conn::http1::Builder::new();
                // It is not an error if the ground disconnects.
                let _ = server.serve_connection(TokioIo::new(theirs), serve).await;
            });
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    sleep(RTT).await;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let Some((bytes, kind, keep)) = body(path) else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        return Ok(response);
    };
    let mut response = Response::new(Full::new(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static(keep));
    Ok(response)
}
