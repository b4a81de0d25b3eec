//! Interim responses (RFC 9110 §15.2) of an origin, and `Expect: 100-continue` of clients.
//!
//! Only HTTP/1.1 clients receive them. hyper's server cannot send interim responses over HTTP/2
//! (hyperium/hyper#4114).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::head;
use super::respond::{BoxError, Outbound};
use bentpipe_origin::via::add_via;

/// Time for which a body is held until the origin requests it: a round trip over a satellite,
/// another to the origin, and its processing time. Many origins never request it (RFC 9110
/// §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(3);

/// Maximum number of interim responses to one request that wait for a client. Further ones are
/// dropped.
const MAX_WAITING: usize = 8;

/// Forwards the interim responses to one request.
#[derive(Clone, Default)]
pub struct Interims {
    to: Option<mpsc::Sender<Bytes>>,
    proceed: Option<Arc<Notify>>,
}

/// Receiver of interim responses for the client.
pub type Interim = mpsc::Receiver<Bytes>;

impl Interims {
    /// Creates a forwarder for a client that speaks `version`, and its receiver.
    pub fn to_client(version: Version) -> (Self, Interim) {
        let (to, inbox) = mpsc::channel(MAX_WAITING);
        // HTTP/1.0 clients do not support them (RFC 9110 §15.2).
        let to = (version == Version::HTTP_11).then_some(to);
        (Self { to, proceed: None }, inbox)
    }

    /// Holds the body of `request` until the origin requests it, if the client expects that.
    pub fn hold(&mut self, request: Request<Outbound>) -> Request<Outbound> {
        let expects = |headers: &HeaderMap| {
            let values = headers.get_all(header::EXPECT).iter();
            values.into_iter().any(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"))
        };
        if !expects(request.headers()) || request.body().is_end_stream() {
            return request;
        }
        let proceed = Arc::<Notify>::default();
        self.proceed = Some(proceed.clone());
        let asked = async move { drop(timeout(CONTINUE_PATIENCE, proceed.notified()).await) };
        request.map(|body| Held { held: Some(Box::pin(asked)), body }.boxed_unsync())
    }

    /// Forwards the interim responses to `request`.
    pub fn follow<B>(&self, request: &mut Request<B>) {
        if self.to.is_none() && self.proceed.is_none() {
            return;
        }
        let Self { to, proceed } = self.clone();
        hyper::ext::on_informational(request, move |response| match response.status() {
            // The client's server sends 100 itself when the body is read.
            StatusCode::CONTINUE => {
                if let Some(proceed) = &proceed {
                    proceed.notify_one();
                }
            }
            status => {
                if let Some(to) = &to {
                    // Excess responses are dropped; they contain nothing that the final response
                    // lacks.
                    let _ = to.try_send(written(status, response.headers()));
                }
            }
        });
    }
}

/// Encodes an interim response for the client.
fn written(status: StatusCode, headers: &HeaderMap) -> Bytes {
    let mut headers = headers.clone();
    head::strip(&mut headers);
    // It has no body (RFC 9110 §8.6, RFC 9112 §6.1).
    headers.remove(header::CONTENT_LENGTH);
    add_via(&mut headers, Version::HTTP_11);
    let reason = status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.into()
}

/// A body that is not read before the origin requests it.
struct Held {
    held: Option<BoxFuture<'static, ()>>,
    body: Outbound,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(held) = &mut self.held {
            ready!(held.as_mut().poll(cx));
            self.held = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    fn request(fields: &[(&'static str, &'static str)]) -> Request<Outbound> {
        let body = Full::from("body").map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::new(body);
        for (name, value) in fields {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    }

    async fn frame(body: &mut Outbound, within: Duration) -> Option<Bytes> {
        let frame = timeout(within, body.frame()).await.ok()??;
        frame.unwrap().into_data().ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_expected_waits_for_the_origin_and_not_for_ever() {
        let moment = Duration::from_millis(10);
        let mut interims = Interims::default();
        let mut plain = interims.hold(request(&[]));
        assert_eq!(frame(plain.body_mut(), moment).await.unwrap(), "body");
        let mut held = interims.hold(request(&[("expect", "100-Continue")]));
        assert!(frame(held.body_mut(), moment).await.is_none());
        interims.proceed.as_ref().unwrap().notify_one();
        assert_eq!(frame(held.body_mut(), moment).await.unwrap(), "body");
        let mut unasked = interims.hold(request(&[("expect", "100-continue")]));
        assert!(frame(unasked.body_mut(), CONTINUE_PATIENCE - moment).await.is_none());
        assert_eq!(frame(unasked.body_mut(), moment * 2).await.unwrap(), "body");
    }

    #[test]
    fn an_interim_response_loses_what_is_of_one_connection() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "</a.css>; rel=preload"),
            ("connection", "close, x"),
            ("x", "1"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let hints = written(StatusCode::EARLY_HINTS, &headers);
        let expected =
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nvia: 1.1 bentpipe\r\n\r\n";
        assert_eq!(hints, expected);
    }
}
