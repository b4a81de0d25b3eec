//! The origin for browsers: HTTPS over TCP, which announces HTTP/3 as an alternative, and HTTP/3.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::content::Object;
use super::levels;
use super::origin::give;
use crate::emu::Service;
use crate::emu::{EmuError, Host};

/// Name in its certificate.
pub const NAME: &str = "origin.test";
/// Port of both.
pub const PORT: u16 = 443;
/// Announcement of HTTP/3 on the same port, valid for a day (RFC 7838).
const ALTERNATIVE: &str = "h3=\":443\"; ma=86400";

/// A key with a self-signed certificate.
pub struct Identity {
    /// Key hash for a browser: the SHA-256 of its SubjectPublicKeyInfo, in base64.
    pub key_hash: String,
    /// The certificate in DER.
    pub certificate: CertificateDer<'static>,
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The key in PEM.
    pub key_pem: String,
}

/// A running origin. It ends when dropped.
pub struct SecureOrigin {
    /// Its identity.
    pub identity: Identity,
    answered: Arc<Answered>,
    _service: Service,
}

/// Number of requests answered, over TCP and over HTTP/3.
#[derive(Default)]
struct Answered {
    tcp: AtomicUsize,
    h3: AtomicUsize,
}

/// Version of HTTP that an origin uses over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1: one request at a time on each of a browser's connections.
    Http1,
    /// HTTP/2: all requests on one connection.
    Http2,
}

impl Identity {
    /// Makes an identity for `names`.
    pub fn new(host: &Host, names: &[&str]) -> Result<Self, EmuError> {
        let make = || -> Result<Self, rcgen::Error> {
            let key = KeyPair::generate()?;
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
            Ok(Self {
                key_hash: STANDARD.encode(Sha256::digest(key.subject_public_key_info())),
                certificate: made.der().clone(),
                certificate_pem: made.pem(),
                key_pem: key.serialize_pem(),
            })
        };
        make().map_err(|source| failed(host, source.into()))
    }

    /// TLS 1.3 configuration with this identity.
    fn server(&self) -> Result<rustls::ServerConfig, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(
                vec![self.certificate.clone()],
                PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())?,
            )?;
        Ok(tls)
    }
}

impl SecureOrigin {
    /// Starts an origin on `host`, at `ip`, for [`NAME`]. Over TCP it uses HTTP/1.1.
    pub fn start(host: &Host, ip: IpAddr) -> Result<Self, EmuError> {
        Self::start_for(host, ip, &[NAME], Version::Http1)
    }

    /// Starts an origin for `names` that uses `version` over TCP.
    pub fn start_for(
        host: &Host,
        ip: IpAddr,
        names: &[&str],
        version: Version,
    ) -> Result<Self, EmuError> {
        let address = SocketAddr::new(ip, PORT);
        let identity = Identity::new(host, names)?;
        let tls = identity.server().map_err(|source| failed(host, source))?;
        let (tcp, udp) = (host.tcp_listener(address)?, host.udp_socket(address)?);
        let answered = Arc::<Answered>::default();
        let counts = answered.clone();
        let _service = Service::start(host, move || async move {
            tokio::join!(serve_tcp(tcp, &tls, version, &counts), serve_h3(udp, &tls, &counts));
        })?;
        Ok(Self { identity, answered, _service })
    }

    /// Requests answered so far, over TCP and over HTTP/3.
    pub fn answered(&self) -> [usize; 2] {
        [&self.answered.tcp, &self.answered.h3].map(|count| count.load(Ordering::Relaxed))
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn failed(host: &Host, source: Error) -> EmuError {
    EmuError::Configure { host: host.name(), doing: "make a certificate".into(), source }
}

async fn serve_tcp(
    listener: std::net::TcpListener,
    tls: &rustls::ServerConfig,
    version: Version,
    answered: &Arc<Answered>,
) {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    if version == Version::Http2 {
        tls.alpn_protocols.insert(0, b"h2".to_vec());
    }
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let Ok(listener) = listener else { return };
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, answered) = (acceptor.clone(), answered.clone());
        // A browser opens connections that it never uses, so their end is not an error.
        tokio::spawn(async move { drop(serve_connection(tcp, &acceptor, &answered).await) });
    }
}

async fn serve_connection(
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
    answered: &Arc<Answered>,
) -> Result<(), Error> {
    tcp.set_nodelay(true)?;
    let tls = acceptor.accept(tcp).await?;
    let respond = service_fn(|request| {
        answered.tcp.fetch_add(1, Ordering::Relaxed);
        let mut response = respond_to(&request);
        response.headers_mut().insert(header::ALT_SVC, HeaderValue::from_static(ALTERNATIVE));
        async move { Ok::<_, Infallible>(response) }
    });
    if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        return Ok(server.serve_connection(TokioIo::new(tls), respond).await?);
    }
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), respond).await?;
    Ok(())
}

/// Serves the pages of [`levels`], and otherwise the objects of every origin of the lab.
fn respond_to(
    request: &Request<Incoming>,
) -> Response<Either<Full<Bytes>, impl Body<Data = Bytes, Error = Error> + use<>>> {
    let page = levels::at(request.uri().path()).filter(|_| request.method() == Method::GET);
    let Some(page) = page else { return give(request).map(Either::Right) };
    let mut response = Response::new(Either::Left(Full::new(page.body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(page.kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(page.keep));
    response
}

async fn serve_h3(
    socket: std::net::UdpSocket,
    tls: &rustls::ServerConfig,
    answered: &Arc<Answered>,
) {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let Ok(tls) = quinn::crypto::rustls::QuicServerConfig::try_from(tls) else { return };
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(Default::default(), Some(config), socket, runtime);
    let Ok(endpoint) = endpoint else { return };
    while let Some(incoming) = endpoint.accept().await {
        let answered = answered.clone();
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            let connection = h3_quinn::Connection::new(connection);
            let Ok(mut h3) = h3::server::Connection::<_, Bytes>::new(connection).await else {
                return;
            };
            while let Ok(Some(resolver)) = h3.accept().await {
                let answered = answered.clone();
                tokio::spawn(async move { drop(serve_request(resolver, &answered).await) });
            }
        });
    }
}

async fn serve_request(
    resolver: h3::server::RequestResolver<h3_quinn::Connection, Bytes>,
    answered: &Answered,
) -> Result<(), h3::error::StreamError> {
    let (request, mut stream) = resolver.resolve_request().await?;
    answered.h3.fetch_add(1, Ordering::Relaxed);
    let object = Object::at(request.uri().path()).filter(|_| request.method() == Method::GET);
    let mut response = Response::new(());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match &object {
        Some(object) => {
            let kind = HeaderValue::from_static(object.kind);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    stream.send_response(response).await?;
    let mut offset = 0;
    while let Some(slice) = object.as_ref().map(|object| object.slice(offset))
        && !slice.is_empty()
    {
        offset += slice.len() as u64;
        stream.send_data(slice).await?;
    }
    stream.finish().await
}
