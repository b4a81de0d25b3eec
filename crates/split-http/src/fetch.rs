//! One request from the ground gateway to an origin.

use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::eligible::{CONDITIONS, FORWARDED_WITH_PAGES};
use bentpipe_prefetch::scan::{Kind, Urgency};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::pool::{Pool, Sender};

/// Maximum size of a response header.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Time within which an origin must send the response header, or the next bytes of the body. A
/// requested page waits longer than a pushed object. A download waits as long as a flow.
const PAGE_PATIENCE: Duration = Duration::from_secs(60);
const OBJECT_PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an origin, over TLS if the origin uses it.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Connects to origins that the rules permit.
pub trait Origins: Send + Sync {
    /// Opens a new connection to `origin`.
    fn connect(&self, origin: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>>;
}

/// Description of a request.
pub struct Ask {
    /// Address to fetch.
    pub address: Address,
    /// Headers of the browser's request for the page.
    pub headers: HeaderMap,
    /// Set for an object of a page; `None` for the page itself.
    pub object: Option<ForPage>,
}

/// Properties of an object's request.
pub struct ForPage {
    /// Referrer sent to the origin.
    pub referer: Option<String>,
    /// Kind of the object.
    pub kind: Kind,
    /// Urgency of the object.
    pub urgency: Urgency,
}

/// A response whose body is still arriving.
pub struct Coming {
    body: Incoming,
    kept: Option<(Origin, Sender)>,
    patience: Duration,
}

/// The origin gave no complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the origin gave no whole answer")]
pub struct Failed;

/// Sends the request, on a pooled connection if there is one.
pub async fn fetch(
    origins: &dyn Origins,
    pool: &Pool,
    ask: Ask,
) -> Result<(response::Parts, Coming), Failed> {
    let patience = if ask.object.is_some() { OBJECT_PATIENCE } else { PAGE_PATIENCE };
    timeout(patience, send(origins, pool, &ask, patience)).await.unwrap_or(Err(Failed))
}

async fn send(
    origins: &dyn Origins,
    pool: &Pool,
    ask: &Ask,
    patience: Duration,
) -> Result<(response::Parts, Coming), Failed> {
    let origin = ask.address.origin();
    let mut request = request(ask).ok_or(Failed)?;
    let coming = |response: Response<Incoming>, sender| {
        let (parts, body) = response.into_parts();
        (parts, Coming { body, kept: Some((ask.address.origin(), sender)), patience })
    };
    if let Some(mut sender) = pool.take(&origin) {
        match sender.try_send_request(request).await {
            Ok(response) => return Ok(coming(response, sender)),
            // The connection was closed before the request was sent, so a new one is tried. A
            // request that was sent is not repeated, because the origin may have processed it.
            Err(mut error) => request = error.take_message().ok_or(Failed)?,
        }
    }
    let mut sender = connect(origins, &origin).await?;
    let response = sender.send_request(request).await.map_err(|_| Failed)?;
    Ok(coming(response, sender))
}

async fn connect(origins: &dyn Origins, origin: &Origin) -> Result<Sender, Failed> {
    let io = origins.connect(origin).await.map_err(|code| {
        tracing::debug!(%origin, %code, "an origin of a page cannot be reached");
        Failed
    })?;
    let client = http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(io));
    let (sender, connection) = client.await.map_err(|_| Failed)?;
    tokio::spawn(async move {
        // A failure of the connection is reported by its request.
        let _ = connection.await;
    });
    Ok(sender)
}

impl Coming {
    /// Changes the time limit for the next bytes.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Returns the next bytes, or `None` at the end. The connection then returns to the pool.
    pub async fn next(&mut self, pool: &Pool) -> Result<Option<Bytes>, Failed> {
        loop {
            let frame = timeout(self.patience, self.body.frame()).await.map_err(|_| Failed)?;
            match frame {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.into_data().ok().filter(|bytes| !bytes.is_empty()) {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(_)) => return Err(Failed),
                None => {
                    if let Some((origin, sender)) = self.kept.take() {
                        pool.put(origin, sender);
                    }
                    return Ok(None);
                }
            }
        }
    }
}

/// Builds the request to the origin. It asks for uncompressed bytes, because the link compresses
/// them better.
fn request(ask: &Ask) -> Option<Request<Empty<Bytes>>> {
    let address = &ask.address;
    let mut request = Request::get(address.path_and_query()).body(Empty::new()).ok()?;
    let headers = request.headers_mut();
    headers.extend(ask.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    headers.insert(header::HOST, HeaderValue::from_str(address.authority()).ok()?);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::VIA, HeaderValue::from_static("1.1 bentpipe"));
    if let Some(ForPage { referer, kind, urgency }) = &ask.object {
        FORWARDED_WITH_PAGES.iter().chain(&CONDITIONS).for_each(|name| drop(headers.remove(name)));
        headers.insert(header::ACCEPT, accept(*kind, &ask.headers));
        let priority = HeaderValue::from_str(&format!("u={}", urgency.level())).ok()?;
        headers.insert(HeaderName::from_static("priority"), priority);
        if let Some(referer) = referer {
            headers.insert(header::REFERER, HeaderValue::from_str(referer).ok()?);
        }
    }
    Some(request)
}

/// `Accept` header that browsers send for an object of this kind. For images, it depends on the
/// page's request.
fn accept(kind: Kind, of_page: &HeaderMap) -> HeaderValue {
    let page =
        of_page.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    HeaderValue::from_static(match kind {
        Kind::Style => "text/css,*/*;q=0.1",
        Kind::Image | Kind::Icon => {
            match (page.contains("image/avif"), page.contains("image/webp")) {
                (true, true) => "image/avif,image/webp,image/*,*/*;q=0.8",
                (false, true) => "image/webp,image/*,*/*;q=0.8",
                (true, false) => "image/avif,image/*,*/*;q=0.8",
                (false, false) => "image/*,*/*;q=0.8",
            }
        }
        Kind::Font | Kind::Script | Kind::Module => "*/*",
    })
}
