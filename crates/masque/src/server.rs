//! The server: connections of known clients, and their requests.

mod config;
mod session;

use std::{
    collections::HashSet,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h3::{error::Code, frame::FrameStream, stream::BufRecvStream};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};

use crate::{
    StartError,
    auth::PublicKey,
    datagrams::{
        queue::QueueBudget,
        router::{Peer, Router},
    },
    gateways::Gateways,
    incoming::Incoming,
    login::{Logins, RefusedRequests},
    quic::{self, MAX_HEADERS_BYTES},
    socket::Socket,
    stream::var_int,
    task::Task,
    tls,
    unproven::{Arrival, RefusedConnections, Unproven, UnprovenPermit},
};
pub use config::ServerConfig;
use session::{Proven, Session, Shared};

/// Time within which a client must connect, set up HTTP/3 and prove its key. A client tries for the
/// same time, so that 40 % of loss does not end it early. While many try, it is shorter.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of requests of all clients that wait to be accepted. Further streams wait in
/// QUIC.
const MAX_WAITING: usize = 1024;

/// A listening server. Dropping it closes all its connections.
pub struct Server {
    endpoint: quinn::Endpoint,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Incoming>>,
    datagrams_dropped: Arc<AtomicU64>,
    unproven: Arc<Unproven>,
    shared: Arc<Shared>,
    /// The task that accepts connections.
    task: Task,
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
            // Without a certificate, clients have nobody to show a token to.
            logins: Logins::new(config.certificate.as_ref().map_or(&[], |_| &config.logins)),
            gateways: Gateways::default(),
            name: config.name.as_str().into(),
            clients: RwLock::new(config.clients.union(&config.hubs).copied().collect()),
            config,
            waiting,
            datagrams_dropped: datagrams_dropped.clone(),
        });
        let unproven = Arc::<Unproven>::default();
        let task = Task::spawn(listen(endpoint.clone(), shared.clone(), unproven.clone()));
        let incoming = tokio::sync::Mutex::new(incoming);
        Ok(Server { endpoint, incoming, datagrams_dropped, unproven, shared, task })
    }

    /// Waits for the next request of a client that is served. Returns `None` if the server is
    /// closed.
    pub async fn accept(&self) -> Option<Incoming> {
        self.incoming.lock().await.recv().await
    }

    /// Serves the gateways with these keys and the hubs from now on, and closes the connections of all
    /// others.
    pub fn set_clients(&self, mut clients: HashSet<PublicKey>) {
        clients.extend(&self.shared.config.hubs);
        *self.shared.clients.write() = clients.clone();
        for gone in self.shared.gateways.remove_except(&clients) {
            gone.close(var_int(Code::H3_NO_ERROR.value()), b"");
        }
    }

    /// Local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Number of dropped datagrams of all flows: a queue was full, or they were malformed.
    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams_dropped.load(Ordering::Relaxed)
    }

    /// Connections refused, or ended before their proof to make room, since the previous call.
    pub fn take_refused(&self) -> RefusedConnections {
        self.unproven.take_refused()
    }

    /// Standard clients whose connections or requests were refused since the previous call, because
    /// they had too many.
    pub fn take_refused_requests(&self) -> Vec<RefusedRequests> {
        self.shared.logins.take_refused()
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

    /// Closes all connections, and waits until the clients were notified.
    pub async fn close(&self) {
        self.task.close();
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
        self.endpoint.wait_idle().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
    }
}

async fn listen(endpoint: quinn::Endpoint, shared: Arc<Shared>, unproven: Arc<Unproven>) {
    while let Some(incoming) = endpoint.accept().await {
        let from = incoming.remote_address().ip();
        match unproven.arrive(from, incoming.remote_address_validated()) {
            Arrival::Welcome(permit, ended) => {
                tokio::spawn(serve(incoming, (permit, ended), shared.clone()));
            }
            // Fails only for an address that is validated already.
            Arrival::Retry => drop(incoming.retry()),
            Arrival::Refused => incoming.refuse(),
        }
    }
}

async fn serve(
    incoming: quinn::Incoming,
    (permit, mut ended): (UnprovenPermit, oneshot::Receiver<()>),
    shared: Arc<Shared>,
) {
    let deadline = Instant::now() + PROOF_TIMEOUT;
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let connected = tokio::select! {
        connected = timeout_at(deadline, connecting) => connected,
        _ = &mut ended => return,
    };
    let Ok(Ok(conn)) = connected else {
        return;
    };
    let (settings, peer) = watch::channel(Peer::default());
    let budget = QueueBudget::counting(shared.datagrams_dropped.clone());
    let router = Router::new(conn.clone(), peer, budget);
    // Reads from the start: unread datagrams would keep the packets that they came in.
    tokio::spawn(router.clone().run());
    let session = Arc::new(Session {
        conn,
        router,
        client: OnceLock::new(),
        permit: Mutex::new(Some(permit)),
        refused: AtomicU32::new(0),
        shared,
    });
    tokio::select! {
        () = requests(&session, &settings) => {}
        () = session.overdue(deadline, ended) => {}
    }
    // The router holds the connection open unless it has ended.
    session.reject();
    if let Some(Proven::Key(client)) = session.client.get() {
        session.shared.gateways.leave(client, &session.conn);
    }
}

/// Serves requests until the connection ends.
async fn requests(session: &Arc<Session>, settings: &watch::Sender<Peer>) {
    let conn = &session.conn;
    let (connection, h3_requests) = quic::Connection::new(conn.clone());
    let built = h3::server::builder()
        // Grease is random, so seeded runs would differ.
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
            Peer::publish(settings, &h3, &session.shared.config.transport);
            accepted
        });
        match (accepted.await, h3_requests.next()) {
            (Ok(Some(stream)), Some(request)) => {
                let resolver = h3.create_resolver(FrameStream::new(BufRecvStream::new(stream)));
                tokio::spawn(session.clone().request(resolver, request));
            }
            (Ok(Some(_)), None) => {}
            // The client sends no more requests, but its flows live on.
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
