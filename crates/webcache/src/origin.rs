//! Source of answers that are not stored here.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::watch;

use crate::flight::Progress;

/// The body of an origin's answer.
pub type OriginBody = UnsyncBoxBody<Bytes, Failure>;

/// Asks origins.
pub trait Origin: Send + Sync + 'static {
    /// Sends `request`, which is a GET or a HEAD without a body, and gives the head of the answer.
    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>>;

    /// Total length of all outages of the way to origins until now: while one lasts, no origin is silent.
    fn unheard(&self) -> Duration {
        Duration::ZERO
    }
}

/// In the extensions of a request that an [`Origin`] is asked: something stale can stand in if the ground
/// cannot be reached, so that waiting for the ground is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandIn;

/// In the extensions of a request that an [`Origin`] is asked: its conditions are the cache's own, about what
/// is stored, and none of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirming;

/// In the extensions of a request that an [`Origin`] is asked for others too, who wait for its answer: by
/// this it says that what comes from now on, be it a failure, is for the one who asked alone.
///
/// It keeps nothing alive: a request may be kept for longer than its answer.
#[derive(Clone)]
pub struct ForOthers(pub(crate) Weak<watch::Sender<Progress>>);

impl ForOthers {
    /// Lets the others go, each of whom asks for oneself.
    pub fn release(&self) {
        if let Some(progress) = self.0.upgrade() {
            progress.send_replace(Progress::Alone);
        }
    }
}

/// Answer of an origin.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub response: Response<OriginBody>,
    /// `true` if this certainly is what the address in the key means, and an early end of the body
    /// will be noticed. Only then it may be stored.
    pub trusted: bool,
    /// `true` if it was in flight before the request: nothing went further because of the request.
    pub pushed: bool,
}

/// Reason for which there is no answer, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the origin gave no whole answer (code {code})")]
pub struct Failure {
    /// `true` if the ground cannot be reached.
    pub offline: bool,
    /// The [`Origin`]'s own word for the reason.
    pub code: u8,
}

/// [`Failure::code`] for an origin that stopped in the middle of an answer.
pub const STALLED: u8 = 255;
