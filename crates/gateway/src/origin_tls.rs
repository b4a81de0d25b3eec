//! TLS to the origins of sites, which have to show that they are, from whichever gateway makes it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Host, Target};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::classify::Name;

/// [`Failure::code`](bentpipe_webcache::Failure::code) for a site with whose origin there is no TLS that can be
/// trusted: none of the link's.
pub const NO_TLS: u8 = 254;

/// The most that waits in a TLS session to be sent: a record.
const MOST_WAITING_BYTES: usize = 16 << 10;

/// Reason for which there is none.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// It took too long.
    #[error("TLS took too long")]
    Late,
    /// It failed, or the origin is not believed.
    #[error(transparent)]
    Tls(NoTls),
}

/// TLS failed, or the origin is not believed.
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

/// Makes TLS by `client` over `io`, which leads to the origin of the site, within `patience`. Nothing is sent
/// before the origin has shown its certificate: there is no early data.
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
        session.set_buffer_limit(Some(MOST_WAITING_BYTES));
    };
    let connector = TlsConnector::from(client);
    let connecting = connector.connect_with(name.map_err(failed)?, io, bounded);
    timeout(patience, connecting).await.map_err(|_| Failed::Late)?.map_err(failed)
}
