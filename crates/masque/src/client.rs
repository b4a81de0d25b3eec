//! The client: a connection to a server that reconnects, and flows on it.

mod config;
pub(crate) mod connection;
mod datagrams;
mod opening;
mod reconnector;

use std::{sync::Arc, time::Duration};

use bentpipe_flow::{Claim, Reach, ResetCode};
use bytes::Bytes;
use h3::error::Code;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::timeout,
};

use crate::{
    Behalf, StartError, connection_watch::ConnectionWatch, datagrams::queue::QueueBudget,
    denials::Denials, flow::Flow, socket::Socket, stream::var_int, task::Task, tls, trust::Trust,
};
pub use config::ClientConfig;
pub use connection::ConnectError;
use connection::State;
use opening::{Destination, begin, run};
use reconnector::Reconnector;

/// Maximum number of flows that wait for a connection or a stream. With a packet of first bytes and a
/// task each they take 64 MiB.
const MAX_OPENING: usize = 16_384;

/// A connection to a server that reconnects. Clones share it.
///
/// A lost connection resets every flow, because HTTP/3 cannot resume requests on another
/// connection. The client then reconnects in the background, with growing pauses. Dropping the last
/// clone closes the connection.
#[derive(Clone)]
pub struct Client {
    pub(crate) state: watch::Receiver<State>,
    reach: watch::Receiver<Reach>,
    opening: Arc<Semaphore>,
    open_timeout: Duration,
    budget: Arc<QueueBudget>,
    denials: Arc<Denials>,
    endpoint: quinn::Endpoint,
    /// The task that reconnects.
    task: Task,
    /// The client reconnects while a sender exists.
    _alive: mpsc::Sender<()>,
}

impl Client {
    /// Starts to connect in the background, and retries until the server is up. Must be called within a
    /// tokio runtime.
    pub fn connect(config: ClientConfig, socket: Socket) -> Result<Client, StartError> {
        let mut quic = tls::client(&config.trust)?;
        quic.transport_config(config.transport.client()?);
        let endpoint = socket.endpoint(None)?;
        let (alive, dropped) = mpsc::channel(1);
        let (state, states) = watch::channel(State::Down(ConnectError::Connecting));
        let (reach, reaches) = watch::channel(Reach::Down);
        let open_timeout = config.open_timeout;
        let budget = Arc::new(QueueBudget::default());
        let denials = Arc::new(match &config.trust {
            Trust::Keys { .. } => Denials::default(),
            Trust::Certificate(proxy) => Denials::of_proxy(proxy.name()),
        });
        let reconnector = Reconnector {
            config,
            quic,
            endpoint: endpoint.clone(),
            state,
            reach,
            budget: budget.clone(),
            denials: denials.clone(),
        };
        let task = Task::spawn(reconnector.run(dropped));
        let opening = Arc::new(Semaphore::new(MAX_OPENING));
        Ok(Client {
            state: states,
            reach: reaches,
            opening,
            open_timeout,
            budget,
            denials,
            endpoint,
            task,
            _alive: alive,
        })
    }

    /// Opens a flow to `authority` (`host:port`) and returns at once.
    ///
    /// The CONNECT and `first` are sent together as soon as there is a connection. A refusal resets the
    /// flow. `class` and `passenger` are for the peer's scheduler.
    pub fn open(&self, authority: &str, class: u8, passenger: u32, first: Bytes) -> Flow {
        self.open_claiming(authority, class, passenger, None, first)
    }

    /// Opens a flow with a class claim. [`Flow::class`] has the server's answer.
    pub fn open_claiming(
        &self,
        authority: &str,
        class: u8,
        passenger: u32,
        claim: Option<&Claim>,
        first: Bytes,
    ) -> Flow {
        self.open_to(Destination::new(authority, class, passenger, claim, None), first)
    }

    /// Opens a flow like [`open_claiming`](Self::open_claiming) for an aircraft, of which this client
    /// is the hub. If the server is dead, the flow ends with [`ResetCode::Unreachable`]: the aircraft
    /// need not ask again.
    pub fn forward(
        &self,
        authority: &str,
        (class, passenger): (u8, u32),
        claim: Option<&Claim>,
        behalf: &Behalf,
        first: Bytes,
    ) -> Flow {
        let connection = self.watch_connection();
        let to = Destination::new(authority, class, passenger, claim, Some(behalf));
        self.open_to(to, first).on(connection)
    }

    fn open_to(&self, to: Option<Destination>, first: Bytes) -> Flow {
        let (flow, task) = Flow::opening();
        match (to, self.opening.clone().try_acquire_owned()) {
            (Some(to), Ok(permit)) => {
                let (state, limit) = (self.state.clone(), self.open_timeout);
                tokio::spawn(async move {
                    let begun = timeout(limit, begin(state, to, first));
                    run(task, begun, permit).await;
                });
            }
            (None, _) => task.fail(ResetCode::Internal),
            (_, Err(_)) => task.fail(ResetCode::Limit),
        }
        flow
    }

    /// Returns the state of the connection, with the reason if there is none.
    pub fn status(&self) -> Result<(), ConnectError> {
        match &*self.state.borrow() {
            State::Up(_) => Ok(()),
            State::Down(why) => Err(why.clone()),
        }
    }

    /// Returns `true` if the proxy has refused the authorization a short time ago, and accepted nothing
    /// since.
    pub fn is_unauthorized(&self) -> bool {
        self.denials.is_unauthorized()
    }

    /// Reachability of the server: [`Reach::Up`] if there is a connection.
    pub fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
    }

    /// Number of the connection, or `None` if there is none. It increases with every connection.
    pub fn session(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.number),
            State::Down(_) => None,
        }
    }

    /// Returns an observer of the present connection.
    pub fn watch_connection(&self) -> Option<ConnectionWatch> {
        match &*self.state.borrow() {
            State::Up(live) => Some(ConnectionWatch(live.conn.clone())),
            State::Down(_) => None,
        }
    }

    /// Waits until there is a connection.
    pub async fn connected(&self) {
        let mut state = self.state.clone();
        // Fails only if the client is closed.
        let _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Waits until the background task has ended by a fault; waits for ever otherwise.
    pub async fn failed(&self) {
        self.task.failed().await;
    }

    /// Number of turns of the background task. The call requests another turn, so that the next call
    /// returns more unless the task hangs.
    pub fn pulse(&self) -> u64 {
        self.task.pulse()
    }

    /// Closes the connection for good, resets all flows, and waits until the server was notified.
    pub async fn close(&self) {
        self.task.close();
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
        self.endpoint.wait_idle().await;
    }

    /// QUIC counters of the current connection.
    pub fn stats(&self) -> Option<quinn::ConnectionStats> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.conn.stats()),
            State::Down(_) => None,
        }
    }
}
