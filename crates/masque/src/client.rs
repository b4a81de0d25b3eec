//! The client: one connection to a server, kept up, and flows through it.

mod keeper;
mod opening;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use h3::error::Code;
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    time::timeout,
};

use crate::{
    Claim, StartError,
    auth::{PublicKey, SecretKey},
    datagrams::{
        queue::Ledger,
        router::{Peer, Router},
    },
    flow::Flow,
    quic::{Handed, Opener, Request},
    refusal::Refusal,
    settings::Transport,
    socket::Socket,
    stream::var_int,
    tls,
};
use keeper::Keeper;
use opening::{Destination, Opening, begin};
pub(crate) use opening::{final_response, live, start};

/// Time within which an attempt must connect and prove both keys: some 40 round trips, so that 40 %
/// of loss does not end it early.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Flows that may wait for a connection or a stream at once: with a packet's worth of first bytes
/// and a task each, 64 MiB.
const MAX_OPENING: usize = 16_384;

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Address of the server.
    pub server: SocketAddr,
    /// Further addresses of the server: each is tried in turn if the one before does not answer.
    pub others: Vec<SocketAddr>,
    /// The server's public key.
    pub server_key: PublicKey,
    /// Our own key, which the server must know.
    pub secret: SecretKey,
    /// Transport settings of QUIC.
    pub transport: Transport,
    /// Time for which a flow waits for a connection before it is reset as unreachable.
    pub open_timeout: Duration,
    /// The pause before the first reconnection; it doubles with each failure.
    pub reconnect_min: Duration,
    /// The longest pause between two attempts.
    pub reconnect_max: Duration,
}

impl ClientConfig {
    /// A configuration with the default settings.
    pub fn new(server: SocketAddr, server_key: PublicKey, secret: SecretKey) -> ClientConfig {
        ClientConfig {
            server,
            others: Vec::new(),
            server_key,
            secret,
            transport: Transport::default(),
            open_timeout: Duration::from_secs(30),
            reconnect_min: Duration::from_secs(1),
            reconnect_max: Duration::from_secs(30),
        }
    }
}

/// Reason for which there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No attempt has ended yet.
    #[error("connecting to the ground gateway")]
    Connecting,
    /// QUIC could not connect, or the connection was lost.
    #[error("no connection to the ground gateway: {0}; check its address and that it runs")]
    Quic(String),
    /// The server refused our key, or proved nothing.
    #[error(
        "the ground gateway refused our key, or holds another key than the one configured: \
         check its public key here and that it knows ours"
    )]
    Refused,
    /// The server's proof does not match the key we have for it.
    #[error("whoever answers at the ground gateway's address does not hold its key")]
    Impostor,
    /// A low-order point is not a key.
    #[error(
        "the ground gateway's configured public key is not usable: copy it again from `bentpipe keys`"
    )]
    UnusableKey,
    /// [`Client::close`] was called.
    #[error("the connection to the ground gateway was closed here")]
    Closed,
    /// The attempt took too long.
    #[error("the ground gateway did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
}

/// A connection to a server that is kept up; clones share it.
///
/// When the connection is lost, every live flow ends with a reset (HTTP/3 cannot resume requests on
/// another connection) and a new one is made in the background, with growing pauses. Dropping the
/// last clone closes it.
#[derive(Clone)]
pub struct Client {
    pub(crate) state: watch::Receiver<State>,
    pub(crate) opening: Arc<Semaphore>,
    pub(crate) open_timeout: Duration,
    pub(crate) ledger: Arc<Ledger>,
    endpoint: quinn::Endpoint,
    /// The connection is kept up while one of these is held.
    _alive: mpsc::Sender<()>,
}

#[derive(Clone)]
pub(crate) enum State {
    Down(ConnectError),
    Up(Live),
}

/// A proven connection.
#[derive(Clone)]
pub(crate) struct Live {
    /// Number of the client's connection.
    number: u64,
    pub(crate) conn: quinn::Connection,
    pub(crate) peer: watch::Receiver<Peer>,
    pub(crate) router: Router,
    requests: Requests,
    handed: Handed,
}

type Requests = h3::client::SendRequest<Opener, Bytes>;
pub(crate) type Response = h3::client::RequestStream<Request, Bytes>;

impl Client {
    /// Starts connecting and returns at once: a server that is down now is found when it comes up.
    /// Must be called within a tokio runtime.
    pub fn connect(config: ClientConfig, socket: Socket) -> Result<Client, StartError> {
        let mut quic = tls::client()?;
        quic.transport_config(config.transport.client()?);
        let endpoint = socket.endpoint(None)?;
        let (alive, dropped) = mpsc::channel(1);
        let (publish, state) = watch::channel(State::Down(ConnectError::Connecting));
        let open_timeout = config.open_timeout;
        let ledger = Arc::new(Ledger::default());
        let keeper =
            Keeper { config, quic, endpoint: endpoint.clone(), publish, ledger: ledger.clone() };
        tokio::spawn(keeper.run(dropped));
        let opening = Arc::new(Semaphore::new(MAX_OPENING));
        Ok(Client { state, opening, open_timeout, ledger, endpoint, _alive: alive })
    }

    /// Opens a flow to `authority` (`host:port`) and returns at once.
    ///
    /// The CONNECT and `first` leave together as soon as there is a connection; a refusal shows as
    /// a reset of the flow. `class` and `passenger` are for the far end's scheduler.
    pub fn open(&self, authority: &str, class: u8, passenger: u32, first: Bytes) -> Flow {
        self.open_claiming(authority, class, passenger, None, first)
    }

    /// The same, with what the flow would be if its name were true. [`Flow::class`] has the answer.
    pub fn open_claiming(
        &self,
        authority: &str,
        class: u8,
        passenger: u32,
        claim: Option<&Claim>,
        first: Bytes,
    ) -> Flow {
        let (send, send_opened) = oneshot::channel();
        let (recv, recv_opened) = oneshot::channel();
        let task = Opening { send, recv };
        match (
            Destination::new(authority, class, passenger, claim),
            self.opening.clone().try_acquire_owned(),
        ) {
            (Some(to), Ok(permit)) => {
                let (state, limit) = (self.state.clone(), self.open_timeout);
                tokio::spawn(async move {
                    let begun = timeout(limit, begin(state, to, first));
                    task.run(begun, permit).await;
                });
            }
            (None, _) => task.fail(Refusal::Internal),
            (_, Err(_)) => task.fail(Refusal::Limit),
        }
        Flow::opening(send_opened, recv_opened)
    }

    /// Returns the state of the connection, with the reason if there is none.
    pub fn status(&self) -> Result<(), ConnectError> {
        match &*self.state.borrow() {
            State::Up(_) => Ok(()),
            State::Down(why) => Err(why.clone()),
        }
    }

    /// The number of the connection: of two the later has the larger. `None` while there is none.
    pub fn session(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.number),
            State::Down(_) => None,
        }
    }

    /// Waits until there is a connection.
    pub async fn connected(&self) {
        let mut state = self.state.clone();
        // Ends early only when the client is closed.
        let _ = state.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Closes the connection, waits until the server has been told, and connects no more; live flows
    /// are reset.
    pub async fn close(&self) {
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
        self.endpoint.wait_idle().await;
    }

    /// QUIC's counters of the current connection.
    pub fn stats(&self) -> Option<quinn::ConnectionStats> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.conn.stats()),
            State::Down(_) => None,
        }
    }
}
