//! The origin as browsers want it: HTTPS by TCP, which names HTTP/3 as an alternative, and HTTP/3.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::PrivatePkcs8KeyDer;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::content::Object;
use super::origin::answer;
use super::service::Service;
use crate::emu::{EmuError, Host};

/// The name that its certificate is for.
pub const NAME: &str = "origin.test";
/// The port of both.
pub const PORT: u16 = 443;
/// Where HTTP/3 is: on the same port, for a day (RFC 7838).
const ALTERNATIVE: &str = "h3=\":443\"; ma=86400";

/// A running origin; ends when dropped.
pub struct SecureOrigin {
    /// What a browser is to know of its key: the SHA-256 of its SubjectPublicKeyInfo, in base64.
    pub key_hash: String,
    answered: Arc<Answered>,
    _service: Service,
}

/// How many requests were answered, by TCP and by HTTP/3.
#[derive(Default)]
struct Answered {
    tcp: AtomicUsize,
    h3: AtomicUsize,
}

impl SecureOrigin {
    /// Starts one on `host`, at `ip`.
    pub fn start(host: &Host, ip: IpAddr) -> Result<Self, EmuError> {
        let address = SocketAddr::new(ip, PORT);
        let (tls, key_hash) = certify().map_err(|source| EmuError::Configure {
            host: host.name(),
            doing: "make a certificate".into(),
            source,
        })?;
        let (tcp, udp) = (host.tcp_listener(address)?, host.udp_socket(address)?);
        let answered = Arc::<Answered>::default();
        let counts = answered.clone();
        let _service = Service::start(host, move || async move {
            tokio::join!(serve_tcp(tcp, &tls, &counts), serve_h3(udp, &tls, &counts));
        })?;
        Ok(Self { key_hash, answered, _service })
    }

    /// Requests answered so far, by TCP and by HTTP/3.
    pub fn answered(&self) -> [usize; 2] {
        [&self.answered.tcp, &self.answered.h3].map(|count| count.load(Ordering::Relaxed))
    }
}

/// TLS 1.3 with a certificate of its own making, and the hash of its key.
fn certify()
-> Result<(rustls::ServerConfig, String), Box<dyn std::error::Error + Send + Sync + 'static>> {
    let key = KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
    let key_hash = STANDARD.encode(Sha256::digest(key.subject_public_key_info()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )?;
    Ok((tls, key_hash))
}

async fn serve_tcp(
    listener: std::net::TcpListener,
    tls: &rustls::ServerConfig,
    answered: &Arc<Answered>,
) {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let Ok(listener) = listener else { return };
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, answered) = (acceptor.clone(), answered.clone());
        // A browser opens connections that it never uses; their end is no event.
        tokio::spawn(async move { drop(serve_connection(tcp, &acceptor, &answered).await) });
    }
}

async fn serve_connection(
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
    answered: &Arc<Answered>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tcp.set_nodelay(true)?;
    let tls = acceptor.accept(tcp).await?;
    let respond = service_fn(|request| {
        answered.tcp.fetch_add(1, Ordering::Relaxed);
        let mut response = answer(&request);
        response.headers_mut().insert(header::ALT_SVC, HeaderValue::from_static(ALTERNATIVE));
        async move { Ok::<_, Infallible>(response) }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), respond).await?;
    Ok(())
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
