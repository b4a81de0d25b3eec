//! HTTP on intercepted connections.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_link::{Host, Target};
use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::look::{self, First};
use super::strict::{Gate, Strict};
use super::{Destination, Interims, Web, closing, refusal, unless_broken};
use crate::air::http::{Body, MAX_BUFFER_BYTES};
use crate::air::intake::Intake;
use crate::air::passengers::Ticket;
use crate::air::stall::StallGuard;
use crate::net;

/// Serves the connection that a client made to `dialled`, or carries it there untouched.
pub async fn intercept(
    tcp: TcpStream,
    dialled: SocketAddr,
    ticket: Ticket,
    intake: Arc<Intake>,
    web: Arc<Web>,
) {
    match look::first(&tcp, intake.limits.handshake_timeout.into()).await {
        First::Http(read) => serve(tcp, read, dialled, ticket, intake, web).await,
        First::Other(read) => intake.carry(tcp, dialled.into(), &ticket, read).await,
    }
}

/// State shared by the requests of one connection.
struct Connection {
    dialled: SocketAddr,
    ticket: Arc<Ticket>,
    intake: Arc<Intake>,
    web: Arc<Web>,
    gate: Arc<Gate>,
}

async fn serve(
    tcp: TcpStream,
    read: Bytes,
    dialled: SocketAddr,
    ticket: Ticket,
    intake: Arc<Intake>,
    web: Arc<Web>,
) {
    intake.counters.relayed.add(1);
    // Answers leave in the class that their passenger's flows have by default.
    net::mark(&tcp, bentpipe_link::Class::BestEffort);
    let limits = intake.limits.clone();
    let guard = StallGuard::new(tcp, limits.stall_timeout.into()).noting(ticket.activity());
    let (io, gate) = Strict::new(guard, read);
    let counters = intake.counters.clone();
    let connection = Arc::new(Connection { dialled, ticket: ticket.into(), intake, web, gate });
    let answer = service_fn(move |request| {
        let connection = connection.clone();
        async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake_timeout.duration())
        .max_buf_size(MAX_BUFFER_BYTES)
        .half_close(true);
    match server.serve_connection(TokioIo::new(io), answer).await {
        Ok(()) => counters.finished.add(1),
        Err(error) => tracing::debug!(%error, "a connection for HTTP ended"),
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(refused) = self.gate.next() {
            return refusal(&self.intake, &self.ticket, refused);
        }
        let version = request.version();
        match self.destination(&request) {
            Ok(to) => {
                let (interims, interim) = Interims::to_client(version);
                let exchange = self.web.exchange(&self.intake, &self.ticket, to, request, interims);
                let answer = self.gate.answer(exchange, interim).await;
                unless_broken(&self.gate, (&self.intake, &self.ticket), answer)
            }
            Err(why) => {
                self.intake.garbage(&self.ticket, why);
                closing(StatusCode::BAD_REQUEST, why, version)
            }
        }
    }

    /// Destination of `request`.
    ///
    /// The client chose an address; what it says in Host is only a claim. Were answers of that address
    /// stored under the claimed name, a client could put its own server's words into everybody's mouth.
    /// So what may be stored is asked of the *name*, which the ground resolves, and the address is for
    /// all else. A Host that says an address or a port must be the one that was dialled.
    fn destination(&self, request: &Request<Incoming>) -> Result<Destination, &'static str> {
        let dialled = Target::from(self.dialled);
        let host = match request.headers().get(header::HOST) {
            Some(host) => host.clone(),
            // HTTP/1.0: nobody can tell what it means but the address itself.
            None => http::HeaderValue::from_str(&self.dialled.ip().to_string())
                .map_err(|_| "There is no Host.")?,
        };
        if let Some(authority) = request.uri().authority()
            && !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
        {
            return Err("The address and Host name different servers.");
        }
        let said = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let named = said.filter(|_| request.headers().contains_key(header::HOST));
        let named = named.and_then(|authority| {
            let port = authority.port_u16().unwrap_or(super::PORT);
            let host = super::host_of(authority.host())?;
            let honest = match &host {
                Host::Ip(address) => *address == self.dialled.ip().to_canonical(),
                Host::Name(_) => true,
                Host::Service(_) => false,
            };
            (honest && port == self.dialled.port()).then_some(Target { host, port })
        });
        Ok(match named {
            Some(named) => Destination::by_name(named, Some(dialled)),
            None => Destination { named: None, dialled: Some(dialled), host, site: None },
        })
    }
}
