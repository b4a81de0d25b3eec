//! The origin for browsers: HTTPS over TCP, which announces HTTP/3 as an alternative, and HTTP/3.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{Either, Full};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use super::levels;
use super::origin::{ObjectBody, give};
use crate::emu::{EmuError, Host, Service};
use crate::site::DEFAULT_MAX_STREAMS;
use crate::site::server::{self, Answer, Door};

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
        let protocols: &[&[u8]] = match version {
            Version::Http1 => &[b"http/1.1"],
            Version::Http2 => &[b"h2", b"http/1.1"],
        };
        let quic = quinn::crypto::rustls::QuicServerConfig::try_from(offering(&tls, &[b"h3"]));
        let quic = quic.map_err(|source| failed(host, source.into()))?;
        let quic = quinn::ServerConfig::with_crypto(Arc::new(quic));
        let (tcp, udp) = (host.tcp_listener(address)?, host.udp_socket(address)?);
        tcp.set_nonblocking(true).map_err(|source| failed(host, source.into()))?;
        let answered = Arc::<Answered>::default();
        let door = Door {
            answers: answered.clone(),
            tls: Some(TlsAcceptor::from(Arc::new(offering(&tls, protocols)))),
            max_streams: DEFAULT_MAX_STREAMS,
        };
        let answers = answered.clone();
        let _service = Service::start(host, move || async move {
            tokio::join!(server::accept_all(tcp, door), server::h3::serve(udp, quic, answers));
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

/// Serves the pages of [`levels`], and otherwise the objects of every origin of the lab.
impl Answer for Answered {
    type Body = Either<Full<Bytes>, Either<ObjectBody, String>>;

    fn answer<B>(&self, request: &Request<B>) -> Response<Self::Body> {
        let page = levels::at(request.uri().path()).filter(|_| request.method() == Method::GET);
        let mut response = match page {
            None => give(request).map(Either::Right),
            Some(page) => {
                let mut response = Response::new(Either::Left(Full::new(page.body)));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(page.kind));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(page.keep));
                response
            }
        };
        if request.version() == http::Version::HTTP_3 {
            self.h3.fetch_add(1, Ordering::Relaxed);
        } else {
            self.tcp.fetch_add(1, Ordering::Relaxed);
            response.headers_mut().insert(header::ALT_SVC, HeaderValue::from_static(ALTERNATIVE));
        }
        response
    }
}

/// TLS that chooses one of these protocols.
fn offering(tls: &rustls::ServerConfig, protocols: &[&[u8]]) -> rustls::ServerConfig {
    let mut tls = tls.clone();
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    tls
}
