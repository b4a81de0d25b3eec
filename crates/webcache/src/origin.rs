//! Where answers come from that are not here.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;

/// The body of an origin's answer.
pub type OriginBody = UnsyncBoxBody<Bytes, Failure>;

/// Asks origins.
pub trait Origin: Send + Sync + 'static {
    /// Sends `request`, which is a GET or a HEAD without a body, and gives the head of the answer.
    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>>;
}

/// In the extensions of a request that an [`Origin`] is asked: something stale can stand in if the ground
/// cannot be reached, so that waiting for the ground is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandIn;

/// What an origin answers.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub response: Response<OriginBody>,
    /// Whether it is certain that this is what the address in the key means, and that a body that
    /// ends early will be seen to. Only then it may be stored.
    pub trusted: bool,
}

/// Why there is no answer, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the origin gave no whole answer (code {code})")]
pub struct Failure {
    /// Whether that is because the ground cannot be reached.
    pub offline: bool,
    /// The [`Origin`]'s own word for the reason.
    pub code: u8,
}

/// [`Failure::code`] for an origin that stopped in the middle of an answer.
pub const STALLED: u8 = 255;
