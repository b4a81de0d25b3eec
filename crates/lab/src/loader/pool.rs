//! State shared by the connections to one domain.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::connect::Dialer;

/// State shared by the connections to one domain, or to the proxy.
pub(super) struct Pool {
    pub dialer: Arc<Dialer>,
    pub domain: usize,
    /// Receives each resource that is complete or has failed.
    pub done: mpsc::UnboundedSender<usize>,
}
