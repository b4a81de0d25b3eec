//! Idle flows to origins, kept for further requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_classify::Name;
use bentpipe_flow::Target;
use bentpipe_origin::idle_pool::{IdlePool, PoolLimits};
use hyper::client::conn::http1::SendRequest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::nameless::Nameless;
use crate::message::respond::Outbound;
use bentpipe_uplink::lazy_flow::CloseWatch;

/// Maximum number of idle flows of all passengers; each takes about 40 KiB at either end.
const MAX_IDLE: usize = 128;

/// Limits of idle flows. Many servers close theirs after 5 s or more.
const LIMITS: PoolLimits =
    PoolLimits { max: MAX_IDLE, max_per_key: MAX_IDLE, lifetime: Duration::from_secs(20) };

/// Owner and destination of a flow, which is never reused for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    pub target: Target,
    /// Flows of a site are shared by all passengers, because only this gateway sends on them.
    pub whose: PoolOwner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolOwner {
    /// Identified by address, because a passenger's number may have been reassigned.
    Passenger(IpAddr),
    Site(Name),
    /// Flows of the preload, which have its class. Flows to a site are kept apart, because each is
    /// trusted only for its certificate's names.
    Preload(Option<Name>),
}

/// Stream that carries HTTP.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Idle flows, and other knowledge about origins.
pub struct Origins {
    idle: IdlePool<PoolKey, Connection>,
    /// Names that cannot be reached.
    pub nameless: Nameless,
}

/// A flow that carries HTTP.
pub struct Connection {
    pub sender: SendRequest<Outbound>,
    pub ending: CloseWatch,
}

impl Default for Origins {
    fn default() -> Self {
        let is_closed = |connection: &Connection| connection.sender.is_closed();
        Self { idle: IdlePool::new(LIMITS, is_closed), nameless: Nameless::default() }
    }
}

impl Origins {
    /// Closes all idle flows, and keeps no further ones.
    pub fn close(&self) {
        self.idle.close();
    }

    /// Takes an idle flow to this place, if there is one.
    pub fn take(&self, place: &PoolKey) -> Option<Connection> {
        self.idle.take(place)
    }

    /// Keeps the connection for a while after its response has been read.
    pub fn keep(self: &Arc<Self>, place: PoolKey, mut connection: Connection) {
        let origins = self.clone();
        tokio::spawn(async move {
            if connection.sender.ready().await.is_err() {
                return;
            }
            origins.idle.put(place, connection);
            sleep(LIMITS.lifetime).await;
            origins.idle.expire();
        });
    }
}
