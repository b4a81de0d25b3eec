//! The server: connections of known clients, and their CONNECTs.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h3::error::Code;
use http::{Method, StatusCode, header};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{sleep, timeout},
};

use crate::{
    CLAIM_HEADER, CLASS_HEADER, Claim, DEFAULT_CLASS, INFO_HEADER, PASSENGER_HEADER, SESSION_PATH,
    StartError,
    auth::{self, Proofs, PublicKey, SecretKey, Side},
    flow::Flow,
    quic::{self, MAX_HEADERS_BYTES, Request},
    refusal::Refusal,
    settings::Transport,
    socket::Socket,
    stream::var_int,
    tls, wire,
};

/// Connections whose client has not proved its key: with 64 KiB of received bytes each, 16 MiB.
/// Beyond half of it a client must first show that it receives at its address (a QUIC Retry);
/// beyond all of it new ones are refused.
const MAX_UNPROVEN: usize = 256;

/// How long a client may take to connect, and then to prove its key: as long as a client tries, so
/// that 40 % of loss does not end it early.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the HEADERS of a request may take to arrive in full, once a later packet has told of
/// them: through an outage of half a minute, after which QUIC's next probe may be as far off again.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(120);

/// Requests refused on an unproven connection before it is closed.
const MAX_REFUSED: u32 = 8;

/// CONNECTs waiting to be accepted, over all clients; beyond it their streams wait in QUIC.
const MAX_WAITING: usize = 1024;

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Our own key.
    pub secret: SecretKey,
    /// The clients that are served.
    pub clients: HashSet<PublicKey>,
    /// How QUIC is run.
    pub transport: Transport,
    /// Our name in `proxy-status`: a token of RFC 9110 such as `ground`.
    pub name: String,
}

impl ServerConfig {
    /// A configuration with the default settings.
    pub fn new(secret: SecretKey, clients: HashSet<PublicKey>) -> ServerConfig {
        ServerConfig { secret, clients, transport: Transport::default(), name: "bentpipe".into() }
    }
}

/// A listening server; dropping it closes all its connections.
pub struct Server {
    endpoint: quinn::Endpoint,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Incoming>>,
}

impl Server {
    /// Starts to listen. Must be called within a tokio runtime.
    pub fn start(config: ServerConfig, socket: Socket) -> Result<Server, StartError> {
        let mut quic = tls::server()?;
        quic.transport_config(config.transport.server()?);
        let endpoint = socket.endpoint(Some(quic))?;
        let (waiting, incoming) = mpsc::channel(MAX_WAITING);
        let shared = Arc::new(Shared { config, waiting });
        tokio::spawn(listen(endpoint.clone(), shared));
        Ok(Server { endpoint, incoming: tokio::sync::Mutex::new(incoming) })
    }

    /// The next CONNECT of a proven client; `None` once the server is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        self.incoming.lock().await.recv().await
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
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

/// A CONNECT that awaits its answer; dropping it resets the flow.
pub struct Incoming {
    /// The client's proven key.
    pub client: PublicKey,
    /// Where to: `host:port`, as the client wrote it.
    pub authority: String,
    /// The class the client asks for.
    pub class: u8,
    /// The passenger, by the client's own numbering.
    pub passenger: u32,
    /// What the client says of the authority, which is an address then.
    pub claim: Option<Claim>,
    /// The class to answer with, where the claim holds.
    pub confirmed: Option<u8>,
    /// The whole request.
    pub request: http::Request<()>,
    exchange: Exchange,
    shared: Arc<Shared>,
}

impl Incoming {
    /// Answers 200; the flow's bytes are the body from here on.
    pub async fn accept(self) -> io::Result<Flow> {
        let lost = |_| io::Error::from(io::ErrorKind::ConnectionReset);
        let mut response = answer(StatusCode::OK);
        if let Some(class) = self.confirmed {
            response.headers_mut().insert(CLASS_HEADER, u16::from(class).into());
        }
        let request = self.exchange.request.clone();
        let send = self.exchange.respond(response).await.map_err(lost)?;
        let recv = request.take_recv().ok_or(io::ErrorKind::ConnectionReset)?;
        Ok(Flow::open(send, recv))
    }

    /// Refuses the flow.
    pub async fn refuse(self, why: Refusal) {
        let mut response = answer(why.status());
        let value = format!("{}; error={}", self.shared.config.name, why.proxy_error());
        if let Ok(value) = value.try_into() {
            response.headers_mut().insert("proxy-status", value);
        }
        self.exchange.finish(response).await;
    }
}

struct Shared {
    config: ServerConfig,
    waiting: mpsc::Sender<Incoming>,
}

async fn listen(endpoint: quinn::Endpoint, shared: Arc<Shared>) {
    let unproven = Arc::new(Semaphore::new(MAX_UNPROVEN));
    while let Some(incoming) = endpoint.accept().await {
        let crowded = unproven.available_permits() < MAX_UNPROVEN / 2;
        let Ok(permit) = unproven.clone().try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        if crowded && !incoming.remote_address_validated() {
            // Fails only for an address that is validated already.
            let _ = incoming.retry();
            continue;
        }
        tokio::spawn(serve(incoming, permit, shared.clone()));
    }
}

async fn serve(incoming: quinn::Incoming, permit: OwnedSemaphorePermit, shared: Arc<Shared>) {
    let remote = incoming.remote_address();
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let Ok(Ok(conn)) = timeout(PROOF_TIMEOUT, connecting).await else {
        return;
    };
    let (connection, handed) = quic::Connection::new(conn.clone());
    let built = h3::server::builder()
        // Grease is drawn at random, which would make seeded runs differ.
        .send_grease(false)
        .max_field_section_size(MAX_HEADERS_BYTES)
        .build::<_, Bytes>(connection)
        .await;
    let Ok(mut h3) = built else {
        return;
    };
    let session = Arc::new(Session {
        conn: conn.clone(),
        client: OnceLock::new(),
        permit: Mutex::new(Some(permit)),
        refused: AtomicU32::new(0),
        shared,
    });
    let deadline = sleep(PROOF_TIMEOUT);
    tokio::pin!(deadline);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut deadline, if session.client.get().is_none() => {
                if session.client.get().is_none() {
                    return session.reject();
                }
                continue;
            }
            accepted = h3.accept() => accepted,
        };
        match (accepted, handed.next()) {
            (Ok(Some(resolver)), Some(request)) => {
                tokio::spawn(session.clone().request(resolver, request));
            }
            (Ok(Some(_)), None) => {}
            // The client will send no more requests; its flows live on.
            (Ok(None), _) => break,
            (Err(error), _) => {
                tracing::debug!(%remote, %error, "connection ended");
                break;
            }
        }
    }
    conn.closed().await;
}

/// One client's connection.
struct Session {
    conn: quinn::Connection,
    client: OnceLock<PublicKey>,
    /// Its place among the unproven, until it leaves them.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    refused: AtomicU32,
    shared: Arc<Shared>,
}

type Resolver = h3::server::RequestResolver<quic::Connection, Bytes>;

/// A request and the way to answer it.
struct Exchange {
    request: Request,
    stream: h3::server::RequestStream<Request, Bytes>,
}

impl Session {
    async fn request(self: Arc<Session>, resolver: Resolver, request: Request) {
        let Ok(Ok((head, stream))) = timeout(HEADERS_TIMEOUT, resolver.resolve_request()).await
        else {
            return;
        };
        let exchange = Exchange { request, stream };
        match (self.client.get(), head.method()) {
            (Some(client), &Method::CONNECT) => self.connect(*client, head, exchange).await,
            (None, &Method::GET) if head.uri().path() == SESSION_PATH => {
                self.prove(&head, exchange).await;
            }
            (Some(_), _) => exchange.finish(answer(StatusCode::METHOD_NOT_ALLOWED)).await,
            (None, _) => {
                let mut response = answer(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
                let scheme = http::HeaderValue::from_static(auth::SCHEME);
                response.headers_mut().insert(header::PROXY_AUTHENTICATE, scheme);
                exchange.finish(response).await;
                if self.refused.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REFUSED {
                    self.conn.close(var_int(Code::H3_EXCESSIVE_LOAD.value()), b"");
                }
            }
        }
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
        if self.client.set(client).is_err() {
            return;
        }
        // Nothing panics while it holds the lock.
        self.permit.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let transport = &config.transport;
        self.conn.set_max_concurrent_bi_streams(transport.max_flows.into());
        self.conn.set_receive_window(transport.connection_window_bytes.into());
        let info = auth::write_info(&proof);
        let headers = wire::headers(&[(":status", "200"), (INFO_HEADER, &info)]);
        if let Some(mut send) = exchange.request.take_send() {
            // Fails only with the connection.
            let _ = send.write(headers).await;
            send.finish();
        }
    }

    async fn connect(&self, client: PublicKey, head: http::Request<()>, exchange: Exchange) {
        let number = |name| head.headers().get(name)?.to_str().ok()?.parse::<u32>().ok();
        let class = number(CLASS_HEADER).and_then(|class| u8::try_from(class).ok());
        let passenger = number(PASSENGER_HEADER);
        let claim = head.headers().get(CLAIM_HEADER);
        let claim = claim.and_then(|value| Claim::read(value.to_str().ok()?));
        // RFC 9114 §4.4: the authority is host and port.
        let authority = head
            .uri()
            .authority()
            .filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
            .map(|authority| authority.to_string());
        let Some(authority) = authority else {
            return exchange.finish(answer(StatusCode::BAD_REQUEST)).await;
        };
        let incoming = Incoming {
            client,
            authority,
            class: class.unwrap_or(DEFAULT_CLASS),
            passenger: passenger.unwrap_or(0),
            claim,
            confirmed: None,
            request: head,
            exchange,
            shared: self.shared.clone(),
        };
        // Fails only when the server is gone; then the flow is reset as it is dropped here.
        let _ = self.shared.waiting.send(incoming).await;
    }

    fn reject(&self) {
        self.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
    }
}

impl Exchange {
    /// Sends the response's HEADERS; the body is the caller's.
    async fn respond(
        mut self,
        response: http::Response<()>,
    ) -> Result<crate::stream::RawSend, Refusal> {
        let sent = self.stream.send_response(response).await;
        sent.map_err(|_| Refusal::Aborted)?;
        let mut send = self.request.take_send().ok_or(Refusal::Aborted)?;
        send.write(self.request.take_held().freeze()).await?;
        Ok(send)
    }

    /// Sends a response without a body and asks for no more of the request (RFC 9114 §4.1).
    async fn finish(self, response: http::Response<()>) {
        let request = self.request.clone();
        if let Ok(mut send) = self.respond(response).await {
            send.finish();
            if let Some(mut recv) = request.take_recv() {
                recv.stop(Code::H3_NO_ERROR.value());
            }
        }
    }
}

fn answer(status: StatusCode) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = status;
    response
}
