//! The client: one connection to a server, kept up, and flows through it.

use std::{future::poll_fn, net::SocketAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use h3::error::{Code, StreamError};
use http::{Uri, header};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    CLAIM_HEADER, CLASS_HEADER, Claim, INFO_HEADER, PASSENGER_HEADER, SESSION_PATH, StartError,
    auth::{self, Proofs, PublicKey, SecretKey, Side},
    datagrams::{
        queue::Ledger,
        router::{Peer, Router},
    },
    flow::{Accepted, Flow},
    quic::{self, Handed, MAX_HEADERS_BYTES, Opener, Request},
    refusal::Refusal,
    settings::Transport,
    socket::Socket,
    stream::{RawSend, var_int},
    tls, wire,
};

/// How long an attempt to connect and to prove both keys may take: some 40 round trips, so that 40 %
/// of loss does not end it early.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest `authority` we send: a name of 253 bytes, a colon and a port, with room to spare.
const MAX_AUTHORITY_BYTES: usize = 300;

/// Flows that may wait for a connection or a stream at once: with a packet's worth of first bytes
/// and a task each, 64 MiB.
const MAX_OPENING: usize = 16_384;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where the server listens.
    pub server: SocketAddr,
    /// Where else it may be found: each is tried in turn where the one before does not answer.
    pub others: Vec<SocketAddr>,
    /// The server's public key.
    pub server_key: PublicKey,
    /// Our own key, which the server must know.
    pub secret: SecretKey,
    /// How QUIC is run.
    pub transport: Transport,
    /// How long a flow waits for a connection before it is reset as unreachable.
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

/// Why there is no connection.
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

    /// Whether there is a connection, and if not, why.
    pub fn status(&self) -> Result<(), ConnectError> {
        match &*self.state.borrow() {
            State::Up(_) => Ok(()),
            State::Down(why) => Err(why.clone()),
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

/// Makes the connection again and again.
struct Keeper {
    config: ClientConfig,
    quic: quinn::ClientConfig,
    endpoint: quinn::Endpoint,
    publish: watch::Sender<State>,
    ledger: Arc<Ledger>,
}

impl Keeper {
    async fn run(self, mut dropped: mpsc::Receiver<()>) {
        tokio::select! {
            biased;
            _ = dropped.recv() => {}
            () = self.keep() => {}
        }
        self.publish.send_replace(State::Down(ConnectError::Closed));
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
    }

    async fn keep(&self) {
        let mut pause = self.config.reconnect_min;
        let places: Vec<_> =
            [self.config.server].iter().chain(&self.config.others).copied().collect();
        let mut place = 0;
        loop {
            let server = places[place];
            let attempt = timeout(CONNECT_TIMEOUT, self.establish(server)).await;
            let why = match attempt.unwrap_or(Err(ConnectError::Timeout)) {
                Ok(live) => {
                    let since = Instant::now();
                    let conn = live.conn.clone();
                    self.publish.send_replace(State::Up(live));
                    tracing::info!(server = %self.config.server, "the link is up, over HTTP/3");
                    let lost = conn.closed().await;
                    if lost == quinn::ConnectionError::LocallyClosed {
                        return;
                    }
                    // One that is lost as soon as it is made does not count as a success.
                    if since.elapsed() > self.config.reconnect_max {
                        pause = self.config.reconnect_min;
                    }
                    ConnectError::Quic(lost.to_string())
                }
                Err(ConnectError::Closed) => return,
                Err(why) => {
                    place = (place + 1) % places.len();
                    why
                }
            };
            tracing::info!(%server, %why, "no connection");
            self.publish.send_replace(State::Down(why));
            sleep(pause).await;
            pause = (pause * 2).min(self.config.reconnect_max);
        }
    }

    async fn establish(&self, server: SocketAddr) -> Result<Live, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| ConnectError::Quic(error.to_string());
        let conn = self
            .endpoint
            .connect_with(self.quic.clone(), server, tls::SERVER_NAME)
            .map_err(|error| match error {
                quinn::ConnectError::EndpointStopping => ConnectError::Closed,
                other => failed(&other),
            })?
            .await
            .map_err(|error| match error {
                quinn::ConnectionError::LocallyClosed => ConnectError::Closed,
                other => failed(&other),
            })?;
        let (connection, handed) = quic::Connection::new(conn.clone());
        let (mut driver, requests) = h3::client::builder()
            // Grease is drawn at random, which would make seeded runs differ.
            .send_grease(false)
            .max_field_section_size(MAX_HEADERS_BYTES)
            .enable_datagram(self.config.transport.datagrams)
            .build::<_, _, Bytes>(connection)
            .await
            .map_err(|error| failed(&error))?;
        let (tell, peer) = watch::channel(Peer::default());
        let transport = self.config.transport.clone();
        tokio::spawn(async move {
            poll_fn(|cx| {
                let closed = driver.poll_close(cx);
                Peer::tell(&tell, &driver, &transport);
                closed
            })
            .await
        });
        let router = Router::new(conn.clone(), peer.clone(), self.ledger.clone());
        let mut live = Live { conn, peer, router, requests, handed };
        self.prove(&mut live).await?;
        tokio::spawn(live.router.clone().run());
        Ok(live)
    }

    /// Proves our key and checks the server's proof, before anything of a passenger's is sent.
    async fn prove(&self, live: &mut Live) -> Result<(), ConnectError> {
        let mut exporter = [0; 32];
        live.conn
            .export_keying_material(&mut exporter, auth::EXPORTER_LABEL, b"")
            .map_err(|_| ConnectError::Quic("the TLS session has no exporter".into()))?;
        let proofs =
            Proofs::new(&self.config.secret, Side::Client, &self.config.server_key, exporter)
                .ok_or(ConnectError::UnusableKey)?;
        let own = auth::public_key(&self.config.secret);
        let authorization = auth::write_authorization(&own, &proofs.prove(Side::Client));
        let headers = wire::headers(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", tls::SERVER_NAME),
            (":path", SESSION_PATH),
            (header::PROXY_AUTHORIZATION.as_str(), &authorization),
        ]);
        let answer = async {
            let uri =
                Uri::builder().scheme("https").authority(tls::SERVER_NAME).path_and_query("/");
            let request = http::Request::get(uri.build().ok()?).body(()).ok()?;
            let (mut stream, _request, mut send) = start(live, request).await.ok()?;
            send.write(headers).await.ok()?;
            send.finish();
            let response = stream.recv_response().await.ok()?;
            let info = response.headers().get(INFO_HEADER)?.to_str().ok()?;
            auth::read_info(info).filter(|_| response.status().is_success())
        };
        match answer.await {
            Some(proof) if proofs.verify(Side::Server, &proof) => Ok(()),
            Some(_) => {
                live.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
                Err(ConnectError::Impostor)
            }
            None => Err(match live.conn.close_reason() {
                Some(quinn::ConnectionError::ApplicationClosed(close))
                    if close.error_code.into_inner() == Code::H3_REQUEST_REJECTED.value() =>
                {
                    ConnectError::Refused
                }
                Some(other) => ConnectError::Quic(other.to_string()),
                None => {
                    live.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
                    ConnectError::Refused
                }
            }),
        }
    }
}

/// The two ends that a flow waits on while it is opened.
struct Opening {
    send: oneshot::Sender<Result<RawSend, Refusal>>,
    recv: oneshot::Sender<Result<Accepted, Refusal>>,
}

/// A CONNECT that has been sent.
struct Begun {
    request: Request,
    response: Response,
    send: RawSend,
}

impl Opening {
    async fn run<T>(mut self, begun: T, permit: tokio::sync::OwnedSemaphorePermit)
    where
        T: Future<Output = Result<Result<Begun, Refusal>, tokio::time::error::Elapsed>>,
    {
        let begun = tokio::select! {
            biased;
            // The flow was dropped or reset meanwhile.
            () = self.send.closed() => return,
            begun = begun => begun.unwrap_or(Err(Refusal::Unreachable)),
        };
        drop(permit);
        let Begun { request, mut response, send } = match begun {
            Ok(begun) => begun,
            Err(why) => return self.fail(why),
        };
        // A flow that is gone leaves the halves here, and dropping them resets the stream.
        let _ = self.send.send(Ok(send));
        let answer = tokio::select! {
            biased;
            () = self.recv.closed() => return,
            answer = final_response(&mut response) => answer,
        };
        let recv = answer.and_then(|class| {
            let stream = request.take_recv().ok_or(Refusal::Internal)?;
            Ok(Accepted { stream, class })
        });
        let _ = self.recv.send(recv);
    }

    fn fail(self, why: Refusal) {
        // A flow that is gone needs no reason.
        let _ = self.send.send(Err(why));
        let _ = self.recv.send(Err(why));
    }
}

/// Where a flow goes, and for whom.
struct Destination {
    authority: String,
    class: u8,
    passenger: u32,
    claim: Option<String>,
}

impl Destination {
    /// `None` when `authority` cannot stand in a request.
    fn new(
        authority: &str,
        class: u8,
        passenger: u32,
        claim: Option<&Claim>,
    ) -> Option<Destination> {
        let parsed: http::uri::Authority = authority.parse().ok()?;
        let whole = authority.len() <= MAX_AUTHORITY_BYTES && parsed.port_u16().is_some();
        // A claim that cannot be written is only not made.
        let claim = claim.and_then(Claim::write);
        whole.then(|| Destination { authority: authority.into(), class, passenger, claim })
    }
}

async fn begin(
    state: watch::Receiver<State>,
    to: Destination,
    first: Bytes,
) -> Result<Begun, Refusal> {
    let mut live = live(state).await?;
    let connect = http::Request::connect(&to.authority).body(()).map_err(|_| Refusal::Internal)?;
    let (response, request, mut send) = start(&mut live, connect).await?;
    let (class, passenger) = (to.class.to_string(), to.passenger.to_string());
    let mut fields = vec![
        (":method", "CONNECT"),
        (":authority", &*to.authority),
        (CLASS_HEADER, &class),
        (PASSENGER_HEADER, &passenger),
    ];
    fields.extend(to.claim.as_deref().map(|claim| (CLAIM_HEADER, claim)));
    let mut together = BytesMut::from(wire::headers(&fields));
    if !first.is_empty() {
        wire::data_header(first.len(), &mut together);
        together.extend_from_slice(&first);
    }
    send.write(together.freeze()).await?;
    Ok(Begun { request, response, send })
}

/// Waits for a connection.
pub(crate) async fn live(mut state: watch::Receiver<State>) -> Result<Live, Refusal> {
    match state.wait_for(|state| matches!(state, State::Up(_))).await.as_deref() {
        Ok(State::Up(live)) => Ok(live.clone()),
        _ => Err(Refusal::Unreachable),
    }
}

/// Waits for the answer to a request: an error where it is not 2xx, else the class in it, if it has
/// one.
pub(crate) async fn final_response(stream: &mut Response) -> Result<Option<u8>, Refusal> {
    loop {
        let response = stream.recv_response().await.map_err(stream_refusal)?;
        match response.status() {
            status if status.is_informational() => {}
            status if status.is_success() => {
                let class = response.headers().get(CLASS_HEADER);
                return Ok(class.and_then(|class| class.to_str().ok()?.parse().ok()));
            }
            status => {
                let proxy_status = response.headers().get("proxy-status");
                let proxy_status = proxy_status.and_then(|value| value.to_str().ok());
                return Err(Refusal::from_response(status, proxy_status));
            }
        }
    }
}

/// Has h3 open a stream for a request and await its response. What h3 would send is not sent: see
/// [`wire::headers`].
pub(crate) async fn start(
    live: &mut Live,
    request: http::Request<()>,
) -> Result<(Response, Request, RawSend), Refusal> {
    let response = live.requests.send_request(request).await.map_err(stream_refusal)?;
    let request = live.handed.take(response.id()).ok_or(Refusal::Internal)?;
    request.take_held();
    let send = request.take_send().ok_or(Refusal::Aborted)?;
    Ok((response, request, send))
}

fn stream_refusal(error: StreamError) -> Refusal {
    match error {
        StreamError::RemoteTerminate { code, .. } => Refusal::from_h3_code(code.value()),
        StreamError::ConnectionError { .. } => Refusal::Aborted,
        StreamError::RemoteClosing => Refusal::Unreachable,
        _ => Refusal::Internal,
    }
}
