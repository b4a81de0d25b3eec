//! Errors of origins.

use std::error::Error;
use std::sync::Arc;

/// Reason why an origin's response is missing or incomplete.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OriginError {
    /// The path to all origins is down. A stored response may be used stale for longer then.
    #[error("no origin can be reached")]
    Offline,
    /// The response stopped before its end.
    #[error("the origin stopped in the middle of its answer")]
    Stalled,
    /// The request failed for a reason that only the [`Origin`](crate::Origin) understands.
    #[error("the origin gave no whole answer: {0}")]
    Failed(#[source] Arc<dyn Error + Send + Sync>),
}

impl OriginError {
    /// Wraps an error of the [`Origin`](crate::Origin)'s own.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(error))
    }

    /// Returns `true` if the path to all origins is down.
    pub fn is_offline(&self) -> bool {
        matches!(self, Self::Offline)
    }

    /// Returns the [`Origin`](crate::Origin)'s own error, if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Failed(error) => error.downcast_ref(),
            Self::Offline | Self::Stalled => None,
        }
    }
}
