//! Requests to the site itself. Each uses a new connection, because recording is not urgent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::Authority as HostPort;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::RecorderSettings;
use crate::site::{MAX_BODY_BYTES, provider};

/// Maximum body of a request, which is held in memory: forms, not files.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Header fields that concern one connection only (RFC 9110, section 7.6.1), and those from a
/// browser to a proxy.
const OF_ONE_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Header fields that could make the response partial or empty.
const OF_A_PART: [HeaderName; 5] = [
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
];

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// Destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub scheme: Scheme,
    pub name: String,
    pub port: u16,
}

impl Scheme {
    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Origin {
    /// Destination in an absolute URL.
    pub(super) fn of(url: &Uri, scheme: Scheme) -> Option<Self> {
        (url.scheme_str() == Some("http")).then_some(())?;
        Self::of_authority(url.authority()?, scheme)
    }

    pub(super) fn of_authority(authority: &HostPort, scheme: Scheme) -> Option<Self> {
        let name = authority.host().to_ascii_lowercase();
        let port = authority.port_u16().unwrap_or(scheme.port());
        (!name.is_empty()).then_some(Self { scheme, name, port })
    }

    /// Returns `true` if the port is the scheme's default, at which an archived site is served.
    pub(super) fn is_usual(&self) -> bool {
        self.port == self.scheme.port()
    }
}

/// TLS configuration towards sites.
pub(super) fn tls(settings: &RecorderSettings) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(settings.roots.clone())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

/// The site's complete response.
pub(super) async fn ask(
    origin: &Origin,
    request: Request<Incoming>,
    settings: &RecorderSettings,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<Response<Bytes>, Error> {
    let (mut head, body) = request.into_parts();
    let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse()?;
    OF_ONE_HOP.iter().chain(&OF_A_PART).for_each(|name| drop(head.headers.remove(name)));
    if !head.headers.contains_key(header::HOST) {
        head.headers.insert(header::HOST, HeaderValue::from_str(&origin.name)?);
    }
    // The client sets it again for the complete body.
    head.headers.remove(header::CONTENT_LENGTH);
    let request = Request::from_parts(head, Full::new(body));
    let tcp = connect(origin, settings).await?;
    match origin.scheme {
        Scheme::Http => send(tcp, request).await,
        Scheme::Https => {
            let name = ServerName::try_from(origin.name.clone())?;
            send(TlsConnector::from(tls.clone()).connect(name, tcp).await?, request).await
        }
    }
}

async fn connect(origin: &Origin, settings: &RecorderSettings) -> io::Result<TcpStream> {
    let port = match origin.scheme {
        _ if !origin.is_usual() => origin.port,
        Scheme::Http => settings.ports.http,
        Scheme::Https => settings.ports.https,
    };
    match settings.hosts.iter().find(|(name, _)| *name == origin.name) {
        Some((_, ip)) => TcpStream::connect(SocketAddr::new(*ip, port)).await,
        None => TcpStream::connect((origin.name.as_str(), port)).await,
    }
}

async fn send<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: T,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let driver = tokio::spawn(async { drop(connection.await) });
    let answer = async {
        let (mut head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES as usize).collect().await?.to_bytes();
        forget(&mut head.headers);
        Ok::<_, Error>(Response::from_parts(head, body))
    };
    let answer = answer.await;
    driver.abort();
    answer
}

/// Removes from a response the header fields of its own connection.
fn forget(headers: &mut HeaderMap) {
    OF_ONE_HOP.iter().for_each(|name| drop(headers.remove(name)));
    // Set again for the complete body.
    headers.remove(header::CONTENT_LENGTH);
    // Requests over HTTP/3 would not be recorded.
    headers.remove(header::ALT_SVC);
}
