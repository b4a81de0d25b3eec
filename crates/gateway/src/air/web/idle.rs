//! Flows to origins that are kept for the next request.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_link::Target;
use hyper::client::conn::http1::SendRequest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::Outbound;
use super::nameless::Nameless;
use crate::air::first::Ending;
use crate::classify::Name;
use crate::single::AskedPacked;

/// Flows kept open for a next request, of all passengers: each costs some 40 KiB at either end.
const MOST_IDLE: usize = 128;

/// Lifetime of an idle flow. Many servers close after 5 s or more.
const IDLE: Duration = Duration::from_secs(20);

/// Owner of a flow, and its destination: it is never used for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub target: Target,
    /// A site's flows serve everybody: they are asked by this gateway alone.
    pub whose: Whose,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// By address: a number may be another's by now.
    Passenger(IpAddr),
    Site(Name),
    /// The preload's, which are of its class; of a site, if it is one's: each is believed for what its
    /// own certificates say.
    Preload(Option<Name>),
}

/// Stream on which HTTP is spoken.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Flows without a request at the moment, and what else is known of origins.
#[derive(Default)]
pub struct Origins {
    idle: Mutex<VecDeque<Idle>>,
    next: AtomicU64,
    closed: AtomicBool,
    /// Names by which nobody is reached.
    pub nameless: Nameless,
}

struct Idle {
    number: u64,
    place: Place,
    connection: Connection,
}

/// A flow on which HTTP is spoken.
pub struct Connection {
    pub sender: SendRequest<Outbound>,
    pub ending: Ending,
    /// Packed form of its requests' heads, if they cross the link packed.
    pub packed: Option<AskedPacked>,
}

impl Origins {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        // Nothing panics while it is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is idle, and keeps nothing any more.
    pub fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Relaxed);
        idle.clear();
    }

    /// A flow to there that waits, if there is one.
    pub fn take(&self, place: &Place) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|one| !one.connection.sender.is_closed());
        let at = idle.iter().rposition(|one| one.place == *place)?;
        idle.remove(at).map(|one| one.connection)
    }

    /// Keeps the connection for a while, once its answer has been read.
    pub fn keep(self: &Arc<Self>, place: Place, mut connection: Connection) {
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
                if idle.len() >= MOST_IDLE {
                    idle.pop_front();
                }
                idle.push_back(Idle { number, place, connection });
            }
            sleep(IDLE).await;
            origins.idle().retain(|one| one.number != number);
        });
    }
}
