//! One request of the ground's to an origin.

use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::ask::{CONDITIONS, OF_PAGES};
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

/// The longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Time within which an origin must send the head of an answer, or the next bytes of it. A
/// requested page waits longer than an unrequested object, and a download as long as a flow.
const PAGE_PATIENCE: Duration = Duration::from_secs(60);
const OBJECT_PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an origin, over TLS where the origin is.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Connects to origins, where that is allowed.
pub trait Origins: Send + Sync {
    /// A new connection to `origin`.
    fn connect(&self, origin: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>>;
}

/// Description of a fetch.
pub struct Ask {
    /// Address.
    pub address: Address,
    /// Headers of the cabin's request for the page.
    pub headers: HeaderMap,
    /// Purpose; `None` is a page.
    pub object: Option<ForPage>,
}

/// Purpose of an object's request.
pub struct ForPage {
    /// Referrer that its origin sees.
    pub referer: Option<String>,
    /// As what.
    pub kind: Kind,
    /// Urgency.
    pub urgency: Urgency,
}

/// An answer whose body is still to come.
pub struct Coming {
    body: Incoming,
    kept: Option<(Origin, Sender)>,
    patience: Duration,
}

/// The origin gave no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the origin gave no whole answer")]
pub struct Failed;

/// Sends the request, on a connection from `pool` if there is one.
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
            // It was closed meanwhile, and nothing of the request has left: a new one is tried. What has left
            // the origin may have taken, and what it gives once it then has given.
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
        // How it ended shows in the request that it broke.
        let _ = connection.await;
    });
    Ok(sender)
}

impl Coming {
    /// From now on its origin may take so long for the next bytes.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The next bytes; `None` at the end, and then the connection is kept.
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

/// The request as the origin gets it: plain bytes are asked for, because the link packs them better.
fn request(ask: &Ask) -> Option<Request<Empty<Bytes>>> {
    let address = &ask.address;
    let mut request = Request::get(address.path_and_query()).body(Empty::new()).ok()?;
    let headers = request.headers_mut();
    headers.extend(ask.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    headers.insert(header::HOST, HeaderValue::from_str(address.authority()).ok()?);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::VIA, HeaderValue::from_static("1.1 bentpipe"));
    if let Some(ForPage { referer, kind, urgency }) = &ask.object {
        OF_PAGES.iter().chain(&CONDITIONS).for_each(|name| drop(headers.remove(name)));
        headers.insert(header::ACCEPT, accept(*kind, &ask.headers));
        let priority = HeaderValue::from_str(&format!("u={}", urgency.level())).ok()?;
        headers.insert(HeaderName::from_static("priority"), priority);
        if let Some(referer) = referer {
            headers.insert(header::REFERER, HeaderValue::from_str(referer).ok()?);
        }
    }
    Some(request)
}

/// `Accept` header of browsers for an object of this kind; for pictures, that of the page's
/// request.
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
