//! TLS to the origins of sites, with authentication, for either gateway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_classify::Name;
use bentpipe_flow::{Host, Target};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum number of bytes buffered for sending in a TLS session: one record.
const MAX_WAITING_BYTES: usize = 16 << 10;

/// Reason for a failed connection.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The time limit expired.
    #[error("TLS took too long")]
    Late,
    /// The handshake failed, or the origin is not trusted.
    #[error(transparent)]
    Tls(NoTls),
}

/// Failed handshake, or untrusted origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "TLS to {origin}, the origin of {site}, failed: {error}; its certificate has to be for the host of origin, and \
     from a root of the system or of origin-ca in this gateway's [[site]]"
)]
pub struct NoTls {
    site: Name,
    origin: Target,
    error: io::Error,
}

/// Performs a TLS handshake with `client` over `io`, which is connected to the site's origin,
/// within `patience`. Nothing is sent before the origin has shown its certificate: there is no
/// early data.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    client: Arc<ClientConfig>,
    (site, origin): (&Name, &Target),
    io: S,
    patience: Duration,
) -> Result<TlsStream<S>, Failed> {
    let failed = |error| Failed::Tls(NoTls { site: site.clone(), origin: origin.clone(), error });
    let name = match &origin.host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
        Host::Ip(address) => Ok(ServerName::from(*address)),
        Host::Service(_) => Err(io::Error::other("no setting names a service")),
    };
    let bounded = |session: &mut rustls::ClientConnection| {
        session.set_buffer_limit(Some(MAX_WAITING_BYTES));
    };
    let connector = TlsConnector::from(client);
    let connecting = connector.connect_with(name.map_err(failed)?, io, bounded);
    timeout(patience, connecting).await.map_err(|_| Failed::Late)?.map_err(failed)
}
