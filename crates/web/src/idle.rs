//! Idle flows to origins, kept for further requests.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_classify::Name;
use bentpipe_flow::Target;
use hyper::client::conn::http1::SendRequest;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::nameless::Nameless;
use crate::lazy_flow::CloseWatch;
use crate::message::respond::Outbound;

/// Maximum number of idle flows of all passengers; each takes about 40 KiB at either end.
const MAX_IDLE: usize = 128;

/// Lifetime of an idle flow. Many servers close after 5 s or more.
const IDLE: Duration = Duration::from_secs(20);

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
#[derive(Default)]
pub struct Origins {
    idle: Mutex<VecDeque<Idle>>,
    next: AtomicU64,
    closed: AtomicBool,
    /// Names that cannot be reached.
    pub nameless: Nameless,
}

struct Idle {
    number: u64,
    place: PoolKey,
    connection: Connection,
}

/// A flow that carries HTTP.
pub struct Connection {
    pub sender: SendRequest<Outbound>,
    pub ending: CloseWatch,
}

impl Origins {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock()
    }

    /// Closes all idle flows, and keeps no further ones.
    pub fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Relaxed);
        idle.clear();
    }

    /// Takes an idle flow to this place, if there is one.
    pub fn take(&self, place: &PoolKey) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|one| !one.connection.sender.is_closed());
        let at = idle.iter().rposition(|one| one.place == *place)?;
        idle.remove(at).map(|one| one.connection)
    }

    /// Keeps the connection for a while after its response has been read.
    pub fn keep(self: &Arc<Self>, place: PoolKey, mut connection: Connection) {
        let origins = self.clone();
        tokio::spawn(async move {
            if connection.sender.ready().await.is_err() {
                return;
            }
            let number = origins.next.fetch_add(1, Relaxed);
            {
                let mut idle = origins.idle();
                if origins.closed.load(Relaxed) {
                    return;
                }
                if idle.len() >= MAX_IDLE {
                    idle.pop_front();
                }
                idle.push_back(Idle { number, place, connection });
            }
            sleep(IDLE).await;
            origins.idle().retain(|one| one.number != number);
        });
    }
}
