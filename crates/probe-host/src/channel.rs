//! Connections in the clear and under TLS, of both ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::either::Either;
use url::Url;

/// Bytes that wait in the kernel and were not sent yet. More would count as sent long before they leave.
const UNSENT: u32 = 128 * 1024;

/// Name of this client.
pub const CLIENT: &str = concat!("bentpipe-probe/", env!("CARGO_PKG_VERSION"));

/// Trust in servers.
pub struct Trust(pub Arc<ClientConfig>);

impl Trust {
    /// The certificates of the system.
    pub fn of_the_system() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::new(roots)
    }

    /// Some certificates.
    pub fn new(roots: RootCertStore) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider's own versions");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }
}

/// A connection in the clear or under TLS.
pub type Channel = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// TCP connection of a channel.
pub fn socket(channel: &Channel) -> &TcpStream {
    match channel {
        Either::Left(plain) => plain,
        Either::Right(tls) => tls.get_ref().0,
    }
}

/// Connects to a server. The socket is for the kernel's counters.
pub async fn open(url: &Url, address: SocketAddr, trust: &Trust) -> io::Result<(Channel, OwnedFd)> {
    let stream = TcpStream::connect(address).await?;
    over(stream, url, trust).await
}

/// Makes a channel to the server of `url` over a connection. The socket is for the kernel's counters.
pub async fn over(stream: TcpStream, url: &Url, trust: &Trust) -> io::Result<(Channel, OwnedFd)> {
    stream.set_nodelay(true)?;
    // Without it the kernel's own bound holds.
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
    let socket = stream.as_fd().try_clone_to_owned()?;
    if !matches!(url.scheme(), "wss" | "https") {
        return Ok((Either::Left(stream), socket));
    }
    // A URL has brackets around an IPv6 address.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(&trust.0)).connect(name, stream).await?;
    Ok((Either::Right(Box::new(stream.into())), socket))
}

/// Accepts a client's connection.
pub async fn accept(stream: TcpStream, acceptor: Option<&TlsAcceptor>) -> io::Result<Channel> {
    stream.set_nodelay(true)?;
    match acceptor {
        None => Ok(Either::Left(stream)),
        Some(acceptor) => Ok(Either::Right(Box::new(acceptor.accept(stream).await?.into()))),
    }
}

/// The certificates and the key of a server, from PEM files.
pub fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificates)
        .map_err(|error| format!("{}: {error}", certificates.display()))?
        .collect();
    let chain = parsed.map_err(|error| format!("{}: {error}", certificates.display()))?;
    let key_der =
        PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
    server(chain, key_der)
        .map_err(|error| format!("{} and {}: {error}", certificates.display(), key.display()))
}

/// A server with its certificates and its key.
pub fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
