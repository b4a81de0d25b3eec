//! Recorder of sites: an HTTP proxy that stores responses in the form of an archive. It intercepts
//! `https` with certificates by the lab's authority, which the recording browser must trust.
//!
//! It stores the first complete response with status 200 to each GET on the default ports. All
//! other requests pass without being stored. The `Referer` gives the resource in which another was
//! found; without one it is the document.

mod kept;
mod relay;
mod settings;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::{AuthorityError, Site};
use crate::emu::EmuError;
use crate::emu::Service;
use kept::Kept;
pub use kept::NothingKept;
use relay::{Origin, Scheme};
pub use settings::RecorderSettings;

/// Maximum concurrent connections of the browser: six to each of 32 domains.
const MAX_CLIENTS: usize = 192;
/// Maximum names with a certificate of 1 KB each; further names are refused.
const MAX_NAMES: usize = 512;
/// TLS sessions cached for each name.
const SESSIONS: usize = 16;
/// Maximum total time for resolution, connection and response.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recording proxy. It ends when this is dropped.
pub struct Recorder {
    address: SocketAddr,
    kept: Arc<Mutex<Kept>>,
    _service: Service,
}

/// State shared by all connections of a recorder.
struct Shared {
    settings: RecorderSettings,
    tls: Arc<rustls::ClientConfig>,
    acceptors: Mutex<HashMap<String, TlsAcceptor>>,
    kept: Arc<Mutex<Kept>>,
}

type Answer = Response<Full<Bytes>>;

impl Recorder {
    /// Listens at `address`, which should be local to this machine, because every client of the
    /// proxy can reach whatever this machine can.
    pub fn start_here(address: SocketAddr, settings: RecorderSettings) -> Result<Self, EmuError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| EmuError::Configure {
            host: "this machine",
            doing: format!("record at {address}"),
            source,
        };
        let listener = std::net::TcpListener::bind(address).map_err(|it| failed(it.into()))?;
        listener.set_nonblocking(true).map_err(|it| failed(it.into()))?;
        let address = listener.local_addr().map_err(|it| failed(it.into()))?;
        let tls = relay::tls(&settings).map_err(|it| failed(it.into()))?;
        let kept = Arc::<Mutex<Kept>>::default();
        let acceptors = Mutex::default();
        let shared = Arc::new(Shared { settings, tls, acceptors, kept: kept.clone() });
        let _service = Service::start_here(move || accept_all(listener, shared))?;
        Ok(Self { address, kept, _service })
    }

    /// Address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Site recorded so far. Its document is the first HTML response.
    pub fn site(&self, name: &str) -> Result<Site, NothingKept> {
        self.kept.lock().site(name)
    }

    /// Number of responses that were not stored because a size or count limit was reached, or
    /// because their host is an address without a name.
    pub fn left_out(&self) -> u64 {
        self.kept.lock().left_out
    }
}

async fn accept_all(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    while let Ok(place) = room.clone().acquire_owned().await {
        let Ok((tcp, _)) = listener.accept().await else { return };
        let shared = shared.clone();
        tokio::spawn(async move {
            serve(tcp, shared).await;
            drop(place);
        });
    }
}

/// Serves one connection of the browser, including a tunnel that it requests.
async fn serve(tcp: TcpStream, shared: Arc<Shared>) {
    // A failure to disable Nagle's algorithm only adds delay.
    let _ = tcp.set_nodelay(true);
    let (led, tunnel) = tokio::sync::oneshot::channel();
    let led = Mutex::new(Some(led));
    let respond = service_fn(|mut request: Request<Incoming>| {
        let shared = shared.clone();
        let is_led = request.method() == Method::CONNECT;
        if is_led {
            let upgrade = hyper::upgrade::on(&mut request);
            let led = led.lock().take();
            if let (Some(led), Some(to)) = (led, request.uri().authority()) {
                // The receiver below lives as long as the connection.
                let _ = led.send((upgrade, to.clone()));
                return futures_util::future::Either::Left(async {
                    Ok::<_, Infallible>(Answer::default())
                });
            }
        }
        futures_util::future::Either::Right(async move {
            let origin = Origin::of(request.uri(), Scheme::Http).filter(|_| !is_led);
            Ok(match origin {
                Some(origin) => shared.relay(&origin, request).await,
                None => plain(StatusCode::BAD_REQUEST, "this is a proxy: ask for a whole URL"),
            })
        })
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new());
    // It is not an error if the browser disconnects.
    let _ = server.serve_connection(TokioIo::new(tcp), respond).with_upgrades().await;
    let Ok((upgrade, to)) = tunnel.await else { return };
    let Ok(upgraded) = upgrade.await else { return };
    let Some(origin) = Origin::of_authority(&to, Scheme::Https) else { return };
    let Ok(acceptor) = shared.acceptor(&origin.name) else { return };
    let Ok(tls) = acceptor.accept(TokioIo::new(upgraded)).await else { return };
    let respond = service_fn(|request: Request<Incoming>| {
        let (shared, origin) = (shared.clone(), origin.clone());
        async move { Ok::<_, Infallible>(shared.relay(&origin, request).await) }
    });
    let _ = server.serve_connection(TokioIo::new(tls), respond).await;
}

/// A short text response.
fn plain(status: StatusCode, why: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{why}\n"))));
    *answer.status_mut() = status;
    answer
}

impl Shared {
    /// TLS acceptor with a certificate for `name`.
    fn acceptor(&self, name: &str) -> Result<TlsAcceptor, AuthorityError> {
        let mut acceptors = self.acceptors.lock();
        if let Some(acceptor) = acceptors.get(name) {
            return Ok(acceptor.clone());
        }
        if acceptors.len() >= MAX_NAMES {
            return Err(AuthorityError::TooMany(MAX_NAMES));
        }
        let certified = self.settings.authority.certify(&[name.to_owned()])?;
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let mut tls = certified.server(&versions, SESSIONS)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        acceptors.insert(name.to_owned(), acceptor.clone());
        Ok(acceptor)
    }

    /// Sends the request to the site, stores the response if allowed, and forwards it.
    async fn relay(&self, origin: &Origin, request: Request<Incoming>) -> Answer {
        let place = {
            let mut kept = self.kept.lock();
            kept.asked(origin, &request)
        };
        let asking = relay::ask(origin, request, &self.settings, &self.tls);
        let answer = match tokio::time::timeout(PATIENCE, asking).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return plain(StatusCode::BAD_GATEWAY, &error.to_string()),
            Err(_) => return plain(StatusCode::GATEWAY_TIMEOUT, "the site does not answer"),
        };
        if let Some(place) = place {
            let mut kept = self.kept.lock();
            kept.answered(place, &answer);
        }
        answer.map(Full::new)
    }
}

#[cfg(test)]
mod tests;
