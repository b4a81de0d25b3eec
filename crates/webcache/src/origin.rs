//! Interface to origins.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;

use crate::error::OriginError;
use crate::flight::Waiters;

/// Body of an origin's response.
pub type OriginBody = UnsyncBoxBody<Bytes, OriginError>;

/// Sends requests to origins.
pub trait Origin: Send + Sync + 'static {
    /// Sends a request. Resolves when the header of the response has arrived.
    fn send(&self, request: OriginRequest) -> BoxFuture<'static, Result<Answer, OriginError>>;

    /// Total length of all outages of the path to origins so far. The cache does not count outages
    /// as silence of an origin.
    fn outage_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// A request to an origin, and the cache's reasons for it.
#[derive(Debug, Clone)]
pub struct OriginRequest {
    /// The request: a GET or HEAD without a body.
    pub request: Request<()>,
    /// `true` if a stale stored response can be used while the origin is offline. The origin should
    /// then fail at once instead of waiting for the path to return.
    pub stale_ok: bool,
    /// `true` if the conditional fields are the cache's own. They are about its stored response,
    /// not about one that the client has.
    pub revalidating: bool,
    /// Other clients that wait for the same response, if any.
    pub others: Option<Waiters>,
}

impl From<Request<()>> for OriginRequest {
    /// Forwards a client's request as it is, for this client alone.
    fn from(request: Request<()>) -> Self {
        Self { request, stale_ok: false, revalidating: false, others: None }
    }
}

/// Response of an origin.
#[derive(Debug)]
pub struct Answer {
    /// The response.
    pub response: Response<OriginBody>,
    /// `true` if the response certainly comes from the origin of the key, and an early end of its
    /// body is detected. Only such a response may be stored.
    pub trusted: bool,
    /// `true` if the response was on its way before the request: no request crossed the link.
    pub pushed: bool,
}
