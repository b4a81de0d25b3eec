//! The connection of one client, and its requests.

use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use h3::{error::Code, ext::Protocol};
use http::{HeaderValue, Method, StatusCode, header};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::ServerConfig;
use crate::{
    AIRCRAFT_HEADER, Behalf, CLAIM_HEADER, CLASS_HEADER, CONNECT_UDP, DEFAULT_CLASS, INFO_HEADER,
    PASSENGER_HEADER, PROTOCOL_HEADER, SESSION_PATH, SOURCE_HEADER,
    auth::{self, Proofs, PublicKey, Side},
    datagrams::{Core, UDP, queue::Queue, router::Router},
    gateways::Gateways,
    incoming::{Exchange, Incoming, Payload, answer, refusal},
    login::{self, AuthorizedClient, Logins},
    quic::{self, Request},
    stream::var_int,
    template::Target,
    unproven::UnprovenPermit,
    wire,
};

/// Time within which the HEADERS of a request must arrive completely, after a later packet has
/// announced them. It covers an outage of half a minute, after which QUIC's next probe may take as
/// long again.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of requests refused on an unproven connection before it is closed.
const MAX_REFUSED: u32 = 8;

/// State of a server that all its connections share.
pub struct Shared {
    pub config: ServerConfig,
    /// Gateways that are served.
    pub clients: RwLock<HashSet<PublicKey>>,
    pub logins: Logins,
    pub gateways: Gateways,
    pub name: Arc<str>,
    pub waiting: mpsc::Sender<Incoming>,
    pub datagrams_dropped: Arc<AtomicU64>,
}

/// Connection of one client.
pub struct Session {
    pub conn: quinn::Connection,
    pub router: Router,
    /// Identity of the client, once it is known.
    pub client: OnceLock<Proven>,
    /// Permit of an unproven connection. Released when the client is known.
    pub permit: Mutex<Option<UnprovenPermit>>,
    pub refused: AtomicU32,
    pub shared: Arc<Shared>,
}

/// Proof of a client's identity.
pub enum Proven {
    /// A key: valid for all requests of the connection.
    Key(PublicKey),
    /// A token, shown with each request. Contains the client's permit for the connection.
    Token(
        #[expect(dead_code, reason = "given back when the connection is gone")]
        OwnedSemaphorePermit,
    ),
}

/// Client that sent a request.
struct Requester {
    client: PublicKey,
    /// `true` for a gateway, which may request other protocols than UDP.
    is_gateway: bool,
}

type Resolver = h3::server::RequestResolver<quic::Connection, Bytes>;

impl Session {
    /// Answers one request.
    pub async fn request(self: Arc<Session>, resolver: Resolver, request: Request) {
        let Ok(Ok((head, stream))) = timeout(HEADERS_TIMEOUT, resolver.resolve_request()).await
        else {
            return;
        };
        let exchange = Exchange { request, stream };
        let gateway = match self.client.get() {
            Some(Proven::Key(client)) => Some(Requester { client: *client, is_gateway: true }),
            _ => None,
        };
        if gateway.is_none() && head.method() == Method::GET && head.uri().path() == SESSION_PATH {
            return self.prove(&head, exchange).await;
        }
        let requester = match gateway {
            Some(requester) => requester,
            None => match self.shared.logins.find(head.headers()) {
                Some(found) => match self.login(&found, &exchange.request) {
                    Some(requester) => requester,
                    None => {
                        let response = refusal(ResetCode::Limit, &self.shared.name);
                        return exchange.finish(response).await;
                    }
                },
                None => return self.challenge(exchange).await,
            },
        };
        let protocol = head.extensions().get::<Protocol>().map(Protocol::as_str);
        match (head.method(), protocol) {
            (&Method::CONNECT, None) => self.connect(requester, head, exchange).await,
            (&Method::CONNECT, Some(CONNECT_UDP)) => {
                self.connect_udp(requester, head, exchange).await;
            }
            // RFC 9220 §3.
            (&Method::CONNECT, Some(_)) => {
                exchange.finish(answer(StatusCode::NOT_IMPLEMENTED)).await;
            }
            _ => exchange.finish(answer(StatusCode::METHOD_NOT_ALLOWED)).await,
        }
    }

    /// Accepts a request with a right token. Returns `None` if the client has too many requests.
    /// The first one admits the connection.
    fn login(&self, found: &AuthorizedClient<'_>, request: &Request) -> Option<Requester> {
        if self.client.get().is_none() {
            match found.connect() {
                Some(permit) => self.admit(Proven::Token(permit), found.max_flows()),
                None => self.conn.close(var_int(Code::H3_EXCESSIVE_LOAD.value()), b""),
            }
        }
        request.hold(found.request()?);
        Some(Requester { client: found.identity(), is_gateway: false })
    }

    /// Refuses a request of an unknown client. Closes the connection after a few.
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

    /// Grants a known client the full limits, with at most `max_flows` streams.
    fn admit(&self, proven: Proven, max_flows: u32) {
        if self.client.set(proven).is_err() {
            return;
        }
        self.permit.lock().take();
        let config = &self.shared.config;
        let transport = &config.transport;
        let is_hub = matches!(
            self.client.get(), Some(Proven::Key(key)) if config.hubs.contains(key)
        );
        let (flows, window_bytes) = transport.of_client(is_hub);
        self.conn.set_max_concurrent_bi_streams(flows.min(max_flows).into());
        self.conn.set_receive_window(window_bytes.into());
    }

    /// Closes the connection at the deadline for a proof, or when it has `ended` to make room.
    pub async fn overdue(&self, deadline: Instant, ended: oneshot::Receiver<()>) {
        tokio::select! {
            () = sleep_until(deadline) => {}
            // Also resolves after a proof, which releases the permit.
            _ = ended => {}
        }
        if self.client.get().is_some() {
            return std::future::pending().await;
        }
        self.reject();
    }

    /// Checks a client's proof, and responds with ours. A client without a known key learns only
    /// that the connection is closed.
    async fn prove(&self, head: &http::Request<()>, exchange: Exchange) {
        let config = &self.shared.config;
        let proven = || {
            let header = head.headers().get(header::PROXY_AUTHORIZATION)?.to_str().ok()?;
            let (client, proof) = auth::read_authorization(header)?;
            let mut exporter = [0; 32];
            let exported =
                self.conn.export_keying_material(&mut exporter, auth::EXPORTER_LABEL, b"");
            if exported.is_err() || !self.shared.clients.read().contains(&client) {
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

    async fn connect(&self, requester: Requester, head: http::Request<()>, exchange: Exchange) {
        // The authority is host and port (RFC 9114 §4.4).
        let authority = head
            .uri()
            .authority()
            .filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
            .map(|authority| authority.to_string());
        let Some(authority) = authority else {
            return exchange.finish(answer(StatusCode::BAD_REQUEST)).await;
        };
        self.wait(requester, authority, Payload::Stream, head, exchange).await;
    }

    async fn connect_udp(&self, requester: Requester, head: http::Request<()>, exchange: Exchange) {
        let protocol = match head.headers().get(PROTOCOL_HEADER) {
            Some(_) if !requester.is_gateway => {
                let response = refusal(ResetCode::Forbidden, &self.shared.name);
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
        let payload = Payload::Datagrams { protocol, source: source.unwrap_or(0) };
        self.wait(requester, target.authority(), payload, head, exchange).await;
    }

    /// Queues a request for [`Server::accept`].
    async fn wait(
        &self,
        requester: Requester,
        authority: String,
        payload: Payload,
        head: http::Request<()>,
        exchange: Exchange,
    ) {
        let is_hub = requester.is_gateway && self.shared.config.hubs.contains(&requester.client);
        let Some(behalf) = Behalf::of(&head, requester.client, is_hub) else {
            let response = refusal(ResetCode::Forbidden, &self.shared.name);
            return exchange.finish(response).await;
        };
        let class = number(&head, CLASS_HEADER).and_then(|class| u8::try_from(class).ok());
        let claim = head.headers().get(CLAIM_HEADER);
        let claim = claim.and_then(|value| crate::claim::read(value.to_str().ok()?));
        let is_forwarded = head.headers().contains_key(AIRCRAFT_HEADER);
        let datagrams = (payload != Payload::Stream).then(|| {
            let budget = self.router.budget();
            let inbox = Arc::new(Queue::new(budget.clone()));
            let way = self.router.register(exchange.request.id(), inbox.clone());
            (Core::unanswered(inbox, budget.clone(), is_forwarded), way)
        });
        let incoming = Incoming {
            client: behalf.aircraft,
            session: behalf.session,
            is_forwarded,
            is_gateway: requester.is_gateway,
            authority,
            payload,
            class: class.unwrap_or(DEFAULT_CLASS),
            passenger: number(&head, PASSENGER_HEADER).unwrap_or(0),
            claim,
            request: head,
            exchange,
            server_name: self.shared.name.clone(),
            datagrams,
        };
        // Fails only if the server is gone. Dropping the request resets the flow.
        let _ = self.shared.waiting.send(incoming).await;
    }

    /// Refuses the connection.
    pub fn reject(&self) {
        self.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
    }
}

/// Parses a decimal number in a field.
fn number(head: &http::Request<()>, name: &str) -> Option<u32> {
    head.headers().get(name)?.to_str().ok()?.parse().ok()
}
