//! The server: connections of known clients, and their CONNECTs.

use std::{
    collections::HashSet,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h3::{error::Code, ext::Protocol, frame::FrameStream, stream::BufRecvStream};
use http::{HeaderValue, Method, StatusCode, header};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, watch},
    time::{sleep, timeout},
};

use crate::{
    CLAIM_HEADER, CLASS_HEADER, CONNECT_UDP, Claim, DEFAULT_CLASS, INFO_HEADER, PASSENGER_HEADER,
    PROTOCOL_HEADER, SESSION_PATH, SOURCE_HEADER, StartError,
    auth::{self, Proofs, PublicKey, SecretKey, Side},
    datagrams::{
        Core, UDP,
        queue::{Ledger, Queue},
        router::{Peer, Router},
    },
    gateways::Gateways,
    incoming::{Carries, Exchange, Incoming, answer, refusal},
    login::{self, Found, Login, Logins},
    quic::{self, MAX_HEADERS_BYTES, Request},
    refusal::Refusal,
    settings::Transport,
    socket::Socket,
    stream::var_int,
    template::Target,
    tls::{self, Certificate},
    unproven::{Arrival, Place, Unproven},
    wire,
};

/// Time within which a client must connect, and then set up HTTP/3 and prove its key: as long as a
/// client tries, so that 40 % of loss does not end it early.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);

/// Time within which the HEADERS of a request must arrive in full, once a later packet has
/// announced them. It spans an outage of half a minute, after which QUIC's next probe may be as far
/// off again.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(120);

/// Requests refused on an unproven connection before it is closed.
const MAX_REFUSED: u32 = 8;

/// CONNECTs waiting to be accepted, over all clients; beyond it their streams wait in QUIC.
const MAX_WAITING: usize = 1024;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Our own key.
    pub secret: SecretKey,
    /// The clients that are served.
    pub clients: HashSet<PublicKey>,
    /// Transport settings of QUIC.
    pub transport: Transport,
    /// Our name in `proxy-status`: a token of RFC 9110 such as `ground`.
    pub name: String,
    /// Certificate for standard clients, which are refused if there is none.
    pub certificate: Option<Arc<Certificate>>,
    /// The standard clients that are served.
    pub logins: Vec<Login>,
}

impl ServerConfig {
    /// A configuration with the default settings.
    pub fn new(secret: SecretKey, clients: HashSet<PublicKey>) -> ServerConfig {
        ServerConfig {
            secret,
            clients,
            transport: Transport::default(),
            name: "bentpipe".into(),
            certificate: None,
            logins: Vec::new(),
        }
    }
}

/// A listening server; dropping it closes all its connections.
pub struct Server {
    endpoint: quinn::Endpoint,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Incoming>>,
    datagrams_dropped: Arc<AtomicU64>,
}

impl Server {
    /// Starts to listen. Must be called within a tokio runtime.
    pub fn start(config: ServerConfig, socket: Socket) -> Result<Server, StartError> {
        let mut quic = tls::server(config.certificate.as_deref())?;
        quic.transport_config(config.transport.server()?);
        let endpoint = socket.endpoint(Some(quic))?;
        let (waiting, incoming) = mpsc::channel(MAX_WAITING);
        let datagrams_dropped = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared {
            // Without a certificate there is nobody whom a token could be shown to.
            logins: Logins::new(config.certificate.as_ref().map_or(&[], |_| &config.logins)),
            gateways: Gateways::default(),
            name: config.name.as_str().into(),
            config,
            waiting,
            datagrams_dropped: datagrams_dropped.clone(),
        });
        tokio::spawn(listen(endpoint.clone(), shared));
        Ok(Server { endpoint, incoming: tokio::sync::Mutex::new(incoming), datagrams_dropped })
    }

    /// The next CONNECT or CONNECT-UDP of a client that is served; `None` once the server is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        self.incoming.lock().await.recv().await
    }

    /// Local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Datagrams of all flows that were dropped here for want of room, or because they made no
    /// sense.
    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams_dropped.load(Ordering::Relaxed)
    }

    /// Closes all connections and waits until the clients have been told.
    pub async fn close(&self) {
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
        self.endpoint.wait_idle().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
    }
}

struct Shared {
    config: ServerConfig,
    logins: Logins,
    gateways: Gateways,
    name: Arc<str>,
    waiting: mpsc::Sender<Incoming>,
    datagrams_dropped: Arc<AtomicU64>,
}

async fn listen(endpoint: quinn::Endpoint, shared: Arc<Shared>) {
    let unproven = Arc::new(Unproven::default());
    while let Some(incoming) = endpoint.accept().await {
        let from = incoming.remote_address().ip();
        match unproven.arrive(from, incoming.remote_address_validated()) {
            Arrival::Welcome(place) => {
                tokio::spawn(serve(incoming, place, shared.clone()));
            }
            // Fails only for an address that is validated already.
            Arrival::Retry => drop(incoming.retry()),
            Arrival::Refused => incoming.refuse(),
        }
    }
}

async fn serve(incoming: quinn::Incoming, place: Place, shared: Arc<Shared>) {
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let Ok(Ok(conn)) = timeout(PROOF_TIMEOUT, connecting).await else {
        return;
    };
    let (tell, peer) = watch::channel(Peer::default());
    let ledger = Ledger::counting(shared.datagrams_dropped.clone());
    let router = Router::new(conn.clone(), peer, ledger);
    // From the start: datagrams that nobody reads hold on to the packets they came in.
    tokio::spawn(router.clone().run());
    let session = Arc::new(Session {
        conn,
        router,
        client: OnceLock::new(),
        place: Mutex::new(Some(place)),
        refused: AtomicU32::new(0),
        shared,
    });
    tokio::select! {
        () = requests(&session, &tell) => {}
        () = session.overdue() => {}
    }
    // Where it has not ended by itself: the router holds it open.
    session.reject();
    if let Some(Proven::Key(client)) = session.client.get() {
        session.shared.gateways.leave(client, &session.conn);
    }
}

/// Serves requests until the connection is gone.
async fn requests(session: &Arc<Session>, tell: &watch::Sender<Peer>) {
    let conn = &session.conn;
    let (connection, handed) = quic::Connection::new(conn.clone());
    let built = h3::server::builder()
        // Grease is drawn at random, which would make seeded runs differ.
        .send_grease(false)
        .max_field_section_size(MAX_HEADERS_BYTES)
        .enable_extended_connect(true)
        .enable_datagram(session.shared.config.transport.datagrams)
        .build::<_, Bytes>(connection)
        .await;
    let Ok(mut h3) = built else {
        return;
    };
    loop {
        let accepted = poll_fn(|cx| {
            let accepted = h3.poll_accept_request_stream(cx);
            Peer::tell(tell, &h3, &session.shared.config.transport);
            accepted
        });
        match (accepted.await, handed.next()) {
            (Ok(Some(stream)), Some(request)) => {
                let resolver = h3.create_resolver(FrameStream::new(BufRecvStream::new(stream)));
                tokio::spawn(session.clone().request(resolver, request));
            }
            (Ok(Some(_)), None) => {}
            // The client will send no more requests; its flows live on.
            (Ok(None), _) => {
                // Fails only with the connection.
                let _ = h3.shutdown(0).await;
                break;
            }
            (Err(error), _) => {
                tracing::debug!(remote = %conn.remote_address(), %error, "connection ended");
                break;
            }
        }
    }
    conn.closed().await;
}

/// One client's connection.
struct Session {
    conn: quinn::Connection,
    router: Router,
    /// Identity of the client, once it is known.
    client: OnceLock<Proven>,
    /// Its place among the unproven, until it leaves them.
    place: Mutex<Option<Place>>,
    refused: AtomicU32,
    shared: Arc<Shared>,
}

/// Proof that a client has given of its identity.
enum Proven {
    /// By its key: for all requests of the connection.
    Key(PublicKey),
    /// By a token, which it shows with each request. The connection takes one of its places.
    Token(
        #[expect(dead_code, reason = "given back when the connection is gone")]
        OwnedSemaphorePermit,
    ),
}

/// Client that sent a request.
struct Asker {
    client: PublicKey,
    /// A gateway of ours, which may ask for more than UDP.
    is_gateway: bool,
}

type Resolver = h3::server::RequestResolver<quic::Connection, Bytes>;

impl Session {
    async fn request(self: Arc<Session>, resolver: Resolver, request: Request) {
        let Ok(Ok((head, stream))) = timeout(HEADERS_TIMEOUT, resolver.resolve_request()).await
        else {
            return;
        };
        let exchange = Exchange { request, stream };
        let gateway = match self.client.get() {
            Some(Proven::Key(client)) => Some(Asker { client: *client, is_gateway: true }),
            _ => None,
        };
        if gateway.is_none() && head.method() == Method::GET && head.uri().path() == SESSION_PATH {
            return self.prove(&head, exchange).await;
        }
        let asker = match gateway {
            Some(asker) => asker,
            None => match self.shared.logins.find(head.headers()) {
                Some(found) => match self.login(&found, &exchange.request) {
                    Some(asker) => asker,
                    None => {
                        let response = refusal(Refusal::Limit, &self.shared.name);
                        return exchange.finish(response).await;
                    }
                },
                None => return self.challenge(exchange).await,
            },
        };
        let protocol = head.extensions().get::<Protocol>().map(Protocol::as_str);
        match (head.method(), protocol) {
            (&Method::CONNECT, None) => self.connect(asker, head, exchange).await,
            (&Method::CONNECT, Some(CONNECT_UDP)) => {
                self.connect_udp(asker, head, exchange).await;
            }
            // RFC 9220 §3.
            (&Method::CONNECT, Some(_)) => {
                exchange.finish(answer(StatusCode::NOT_IMPLEMENTED)).await;
            }
            _ => exchange.finish(answer(StatusCode::METHOD_NOT_ALLOWED)).await,
        }
    }

    /// Takes a request in whose token is right; `None` where its client has as many as it may. The
    /// first one makes the connection one of those that are served.
    fn login(&self, found: &Found<'_>, request: &Request) -> Option<Asker> {
        if self.client.get().is_none() {
            match found.connect() {
                Some(place) => self.admit(Proven::Token(place), found.max_flows()),
                None => self.conn.close(var_int(Code::H3_EXCESSIVE_LOAD.value()), b""),
            }
        }
        request.hold(found.request()?);
        Some(Asker { client: found.identity(), is_gateway: false })
    }

    /// Refuses a request of somebody unknown: a few times, then the connection is closed.
    async fn challenge(&self, exchange: Exchange) {
        let mut response = answer(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        let fields = response.headers_mut();
        fields.insert(header::PROXY_AUTHENTICATE, HeaderValue::from_static(auth::SCHEME));
        if !self.shared.logins.is_empty() {
            let challenges = HeaderValue::from_static(login::CHALLENGES);
            fields.append(header::PROXY_AUTHENTICATE, challenges);
        }
        exchange.finish(response).await;
        if self.refused.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REFUSED {
            self.conn.close(var_int(Code::H3_EXCESSIVE_LOAD.value()), b"");
        }
    }

    /// The client is known from now on, and may have what those that are served may, and at most
    /// `max_flows` streams.
    fn admit(&self, proven: Proven, max_flows: u32) {
        if self.client.set(proven).is_err() {
            return;
        }
        // Nothing panics while it holds the lock.
        self.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let transport = &self.shared.config.transport;
        self.conn.set_max_concurrent_bi_streams(transport.max_flows.min(max_flows).into());
        self.conn.set_receive_window(transport.connection_window_bytes.into());
    }

    /// Ends the connection when the time for a proof is over and there was none.
    async fn overdue(&self) {
        sleep(PROOF_TIMEOUT).await;
        if self.client.get().is_some() {
            return std::future::pending().await;
        }
        self.reject();
    }

    /// Checks a client's proof and answers with ours. Whoever does not hold a known key learns
    /// nothing but that the connection is closed.
    async fn prove(&self, head: &http::Request<()>, exchange: Exchange) {
        let config = &self.shared.config;
        let proven = || {
            let header = head.headers().get(header::PROXY_AUTHORIZATION)?.to_str().ok()?;
            let (client, proof) = auth::read_authorization(header)?;
            let mut exporter = [0; 32];
            let exported =
                self.conn.export_keying_material(&mut exporter, auth::EXPORTER_LABEL, b"");
            if exported.is_err() || !config.clients.contains(&client) {
                return None;
            }
            let proofs = Proofs::new(&config.secret, Side::Server, &client, exporter)?;
            proofs.verify(Side::Client, &proof).then(|| (client, proofs.prove(Side::Server)))
        };
        let Some((client, proof)) = proven() else {
            return self.reject();
        };
        self.admit(Proven::Key(client), u32::MAX);
        if let Some(oldest) = self.shared.gateways.arrive(client, &self.conn) {
            tracing::info!(remote = %oldest.remote_address(), "closed for newer ones with its key");
            oldest.close(var_int(Code::H3_EXCESSIVE_LOAD.value()), b"");
        }
        let info = auth::write_info(&proof);
        let headers = wire::headers(&[(":status", "200"), (INFO_HEADER, &info)]);
        if let Some(mut send) = exchange.request.take_send() {
            // Fails only with the connection.
            let _ = send.write(headers).await;
            send.finish();
        }
    }

    async fn connect(&self, asker: Asker, head: http::Request<()>, exchange: Exchange) {
        // RFC 9114 §4.4: the authority is host and port.
        let authority = head
            .uri()
            .authority()
            .filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
            .map(|authority| authority.to_string());
        let Some(authority) = authority else {
            return exchange.finish(answer(StatusCode::BAD_REQUEST)).await;
        };
        self.wait(asker, authority, Carries::Stream, head, exchange).await;
    }

    async fn connect_udp(&self, asker: Asker, head: http::Request<()>, exchange: Exchange) {
        let protocol = match head.headers().get(PROTOCOL_HEADER) {
            Some(_) if !asker.is_gateway => {
                let response = refusal(Refusal::Forbidden, &self.shared.name);
                return exchange.finish(response).await;
            }
            Some(_) => number(&head, PROTOCOL_HEADER).and_then(|n| u8::try_from(n).ok()),
            None => Some(UDP),
        };
        let source = number(&head, SOURCE_HEADER).and_then(|source| u16::try_from(source).ok());
        let target = head.uri().path_and_query().and_then(|path| Target::from_path(path.as_str()));
        let asked = protocol.zip(target);
        let Some((protocol, target)) =
            asked.filter(|(protocol, target)| *protocol != UDP || target.port() != 0)
        else {
            return exchange.finish(answer(StatusCode::BAD_REQUEST)).await;
        };
        let carries = Carries::Datagrams { protocol, source: source.unwrap_or(0) };
        self.wait(asker, target.authority(), carries, head, exchange).await;
    }

    /// Hands a request to whoever accepts them.
    async fn wait(
        &self,
        asker: Asker,
        authority: String,
        carries: Carries,
        head: http::Request<()>,
        exchange: Exchange,
    ) {
        let class = number(&head, CLASS_HEADER).and_then(|class| u8::try_from(class).ok());
        let claim = head.headers().get(CLAIM_HEADER);
        let claim = claim.and_then(|value| Claim::read(value.to_str().ok()?));
        let datagrams = (carries != Carries::Stream).then(|| {
            let ledger = self.router.ledger();
            let inbox = Arc::new(Queue::new(ledger.clone()));
            let way = self.router.register(exchange.request.id(), inbox.clone());
            (Core::asked(inbox, ledger.clone()), way)
        });
        let incoming = Incoming {
            client: asker.client,
            is_gateway: asker.is_gateway,
            authority,
            carries,
            class: class.unwrap_or(DEFAULT_CLASS),
            passenger: number(&head, PASSENGER_HEADER).unwrap_or(0),
            claim,
            confirmed: None,
            request: head,
            exchange,
            server_name: self.shared.name.clone(),
            datagrams,
        };
        // Fails only when the server is gone; then the flow is reset as it is dropped here.
        let _ = self.shared.waiting.send(incoming).await;
    }

    fn reject(&self) {
        self.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
    }
}

/// A decimal number in a field.
fn number(head: &http::Request<()>, name: &str) -> Option<u32> {
    head.headers().get(name)?.to_str().ok()?.parse().ok()
}
