//! The servers of a site: HTTP/1.1 without TLS, HTTP/1.1 and HTTP/2 over TLS, HTTP/3, and HTTP/2
//! for all domains at once, as a proxy serves it.

mod answer;
pub mod h3;
mod settings;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{AuthorityError, Ports, Site};
use crate::emu::{EmuError, Host, Service, listen_here};
pub use answer::Answer;
use answer::Shelf;
use settings::SESSIONS;
pub use settings::ServerSettings;

/// Attempts to bind an address that is still in use, one second in all. A process forked at that
/// moment holds the last site's sockets until it executes its own program.
const BINDS: usize = 100;
const BETWEEN_BINDS: Duration = Duration::from_millis(10);

/// The servers of a site. They end when this is dropped.
pub struct SiteServer {
    _service: Service,
}

/// Open sockets at one address.
struct Sockets {
    http: std::net::TcpListener,
    https: std::net::TcpListener,
    proxy: std::net::TcpListener,
    h3: std::net::UdpSocket,
}

impl SiteServer {
    /// Serves `site` on `host`, at the address of each of its domains, for any visit.
    pub fn start(host: &Host, site: &Site, settings: &ServerSettings) -> Result<Self, EmuError> {
        let open = || open_all(site, settings.ports);
        let sockets = host.run(open)?.map_err(|source| configure(host.name(), source))?;
        let serve = prepare(sockets, site, settings);
        let serve = serve.map_err(|source| configure(host.name(), source))?;
        Ok(Self { _service: Service::start(host, serve)? })
    }

    /// Serves `site` on this machine's own network.
    pub fn start_here(site: &Site, settings: &ServerSettings) -> Result<Self, EmuError> {
        let serve = open_all(site, settings.ports)
            .map_err(|source| configure("this machine", source))
            .and_then(|sockets| {
                prepare(sockets, site, settings).map_err(|source| configure("this machine", source))
            })?;
        Ok(Self { _service: Service::start_here(serve)? })
    }
}

fn configure(
    host: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> EmuError {
    EmuError::Configure { host, doing: "serve a site".into(), source: source.into() }
}

/// Opens the sockets of every address, each address once.
fn open_all(site: &Site, ports: Ports) -> io::Result<Vec<Sockets>> {
    let mut addresses: Vec<_> = site.domains.iter().map(|domain| domain.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let open = |ip| {
        Ok(Sockets {
            http: listen(SocketAddr::new(ip, ports.http))?,
            https: listen(SocketAddr::new(ip, ports.https))?,
            proxy: listen(SocketAddr::new(ip, ports.proxy))?,
            h3: once_free(|| std::net::UdpSocket::bind((ip, ports.https)))
                .map_err(|error| at(error, "UDP", SocketAddr::new(ip, ports.https)))?,
        })
    };
    addresses.into_iter().map(open).collect()
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    once_free(|| listen_here(address, None)).map_err(|error| at(error, "TCP", address))
}

/// Calls `open`, and repeats the call while its address is in use.
fn once_free<T>(open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    tried(open, || thread::sleep(BETWEEN_BINDS))
}

/// Calls `open` at most [`BINDS`] times, with a `pause` between two calls.
fn tried<T>(mut open: impl FnMut() -> io::Result<T>, mut pause: impl FnMut()) -> io::Result<T> {
    for _ in 1..BINDS {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => pause(),
            opened => return opened,
        }
    }
    open()
}

fn at(error: io::Error, protocol: &str, address: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("{protocol} {address}: {error}"))
}

/// Use of connections at a listener.
pub struct Door<A> {
    /// Responses.
    pub answers: Arc<A>,
    /// TLS, whose ALPN chooses HTTP/1.1 or HTTP/2. `None` for HTTP/1.1 in the clear.
    pub tls: Option<TlsAcceptor>,
    /// Maximum concurrent requests on a connection of HTTP/2.
    pub max_streams: u32,
}

impl<A> Clone for Door<A> {
    fn clone(&self) -> Self {
        Self { answers: self.answers.clone(), tls: self.tls.clone(), ..*self }
    }
}

fn prepare(
    sockets: Vec<Sockets>,
    site: &Site,
    settings: &ServerSettings,
) -> Result<
    impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = ()>>> + Send + 'static,
    AuthorityError,
> {
    let names: Vec<String> = site.domains.iter().map(|domain| domain.name.clone()).collect();
    let certified = settings.authority.certify(&names)?;
    let tls = |alpn: &[&[u8]]| {
        let mut tls = certified.server(&[settings.tls.version()], SESSIONS)?;
        tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok::<_, AuthorityError>(TlsAcceptor::from(Arc::new(tls)))
    };
    let quic = h3::config(&certified, settings)?;
    let (answers, max_streams) = (Arc::new(Shelf::new(site)), settings.max_streams);
    let door = |tls| Door { answers: answers.clone(), tls, max_streams };
    let doors = [None, Some(tls(&[b"h2", b"http/1.1"])?), Some(tls(&[b"h2"])?)].map(door);
    Ok(move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            // The set is dropped with the service, and with it every spawned task.
            let mut serving = JoinSet::new();
            for Sockets { http, https, proxy, h3 } in sockets {
                for (listener, door) in [http, https, proxy].into_iter().zip(&doors) {
                    serving.spawn(accept_all(listener, door.clone()));
                }
                serving.spawn(h3::serve(h3, quic.clone(), answers.clone()));
            }
            while serving.join_next().await.is_some() {}
        })
    })
}

/// Serves every connection of `listener`, which must be non-blocking.
pub async fn accept_all<A: Answer>(listener: std::net::TcpListener, door: Door<A>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    // This fails only if there are no descriptors left, and then nothing can be served.
    while let Ok((tcp, _)) = listener.accept().await {
        let door = door.clone();
        // A client opens connections that it never uses, so their end is not an error.
        tokio::spawn(async move { drop(serve(tcp, door).await) });
    }
}

async fn serve<A: Answer>(
    tcp: TcpStream,
    door: Door<A>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tcp.set_nodelay(true)?;
    let answers = door.answers;
    let respond = service_fn(move |request| {
        let response = answers.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let http1 = || {
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(TokioTimer::new());
        server
    };
    let Some(acceptor) = door.tls else {
        return Ok(http1().serve_connection(TokioIo::new(tcp), respond).await?);
    };
    let tls = acceptor.accept(tcp).await?;
    if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.timer(TokioTimer::new()).max_concurrent_streams(door.max_streams);
        return Ok(server.serve_connection(TokioIo::new(tls), respond).await?);
    }
    Ok(http1().serve_connection(TokioIo::new(tls), respond).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries to bind an address that returns `errors` one after the other before it is free.
    /// Returns the attempts, the pauses, and the result.
    fn tries(errors: &[io::ErrorKind]) -> (usize, usize, Result<(), io::ErrorKind>) {
        let (mut opened, mut paused) = (0, 0);
        let open = || {
            opened += 1;
            errors.get(opened - 1).map_or(Ok(()), |kind| Err((*kind).into()))
        };
        let result = tried(open, || paused += 1).map_err(|error| error.kind());
        (opened, paused, result)
    }

    #[test]
    fn an_address_is_tried_again_only_while_it_is_taken_and_not_for_ever() {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable};
        assert_eq!(tries(&[]), (1, 0, Ok(())));
        assert_eq!(tries(&[AddrInUse; 3]), (4, 3, Ok(())));
        let other = Err(AddrNotAvailable);
        assert_eq!(tries(&[AddrInUse, AddrNotAvailable]), (2, 1, other));
        assert_eq!(tries(&[AddrInUse; BINDS - 1]), (BINDS, BINDS - 1, Ok(())));
        assert_eq!(tries(&[AddrInUse; BINDS]), (BINDS, BINDS - 1, Err(AddrInUse)));
    }

    #[test]
    fn an_address_that_stays_taken_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let refused = listen(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().starts_with(&format!("TCP {address}: ")), "{refused}");
    }
}
