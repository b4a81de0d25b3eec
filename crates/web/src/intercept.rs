//! HTTP on intercepted connections.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_flow::{Host, Target};
use bentpipe_net as net;
use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Web;
use super::destination::{Destination, PORT, host_of};
use crate::detect::http::{First, first};
use crate::message::interim::Interims;
use crate::message::refuse::{refusal, unless_broken};
use crate::message::respond::{Body, closing, http1_server};
use crate::message::sanitizer::{PendingRefusals, sanitize};
use bentpipe_uplink::Uplink;
use bentpipe_uplink::passengers::FlowPermit;
use bentpipe_uplink::write_timeout::client_stream;

/// Serves the connection that a client made to `dialled`, or carries it there unchanged.
pub async fn intercept(
    tcp: TcpStream,
    dialled: SocketAddr,
    permit: FlowPermit,
    uplink: Arc<Uplink>,
    web: Arc<Web>,
) {
    match first(&tcp, uplink.limits.handshake_timeout.into()).await {
        First::Http(read) => serve(tcp, read, dialled, permit, uplink, web).await,
        First::Other(read) => uplink.carry(tcp, dialled.into(), &permit, read).await,
    }
}

/// State shared by the requests of one connection.
struct Connection {
    dialled: SocketAddr,
    permit: Arc<FlowPermit>,
    uplink: Arc<Uplink>,
    web: Arc<Web>,
    gate: Arc<PendingRefusals>,
}

async fn serve(
    tcp: TcpStream,
    read: Bytes,
    dialled: SocketAddr,
    permit: FlowPermit,
    uplink: Arc<Uplink>,
    web: Arc<Web>,
) {
    uplink.counters.relayed.add(1);
    // Responses use the default class of their passenger's flows.
    net::mark(&tcp, bentpipe_link::Class::BestEffort);
    let limits = uplink.limits.clone();
    let guard = client_stream(tcp, limits.stall_timeout.into(), permit.activity());
    let (io, gate) = sanitize(guard, read);
    let counters = uplink.counters.clone();
    let connection = Arc::new(Connection { dialled, permit: permit.into(), uplink, web, gate });
    let answer = service_fn(move |request| {
        let connection = connection.clone();
        async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
    });
    let server = http1_server(limits.handshake_timeout.duration());
    match server.serve_connection(TokioIo::new(io), answer).await {
        Ok(()) => counters.finished.add(1),
        Err(error) => tracing::debug!(%error, "a connection for HTTP ended"),
    }
}

impl Connection {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(refused) = self.gate.next() {
            return refusal(&self.uplink, &self.permit, refused);
        }
        let version = request.version();
        match self.destination(&request) {
            Ok(to) => {
                let (interims, interim) = Interims::to_client(version);
                let exchange = self.web.exchange(&self.uplink, &self.permit, to, request, interims);
                let answer = self.gate.answer(exchange, interim).await;
                unless_broken(&self.gate, (&self.uplink, &self.permit), answer)
            }
            Err(why) => {
                self.uplink.garbage(&self.permit, why);
                closing(StatusCode::BAD_REQUEST, why, version)
            }
        }
    }

    /// Destination of `request`.
    ///
    /// The client chose an address, and the name in Host is only a claim. If responses of that
    /// address were stored under the claimed name, a client could poison the cache with its own
    /// server's content. Cacheable requests are therefore sent to the *name*, which the ground
    /// resolves; all others go to the address. If Host contains an address or a port, it must equal
    /// the dialled one.
    fn destination(&self, request: &Request<Incoming>) -> Result<Destination, &'static str> {
        let dialled = Target::from(self.dialled);
        let host = match request.headers().get(header::HOST) {
            Some(host) => host.clone(),
            // HTTP/1.0: only the address identifies the server.
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
            let port = authority.port_u16().unwrap_or(PORT);
            let host = host_of(authority.host())?;
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
