//! Where the ground's half of Split HTTP connects to.

use bentpipe_link::{Host, ResetCode, Target};
use bentpipe_prefetch::address::Origin;
use futures_util::future::BoxFuture;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{Shared, Tcp};
use crate::config::Upstream;
use crate::pages::{Connection, Origins};

/// The port that the pages of sites are on.
const HTTPS: u16 = 443;

/// The origins of pages: the same names and the same policy as for what passengers dial, and over TLS
/// those of sites alone.
impl Origins for Shared {
    fn connect(&self, origin: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>> {
        let Origin { is_secure, host, port } = origin.clone();
        Box::pin(async move {
            if is_secure {
                let site = self.sites.iter().find(|site| site.name.as_str() == host);
                let site = site.filter(|_| port == HTTPS).ok_or(ResetCode::Forbidden)?;
                return self.connect_site(site).await;
            }
            let host = host.parse().map_err(|_| ResetCode::Forbidden)?;
            let tcp = self.reach(&Tcp(&self.policy), &Target { host, port }).await?;
            Ok(Box::new(tcp) as Box<dyn Connection>)
        })
    }
}

impl Shared {
    /// Connects to a site's origin, which has to show that it is.
    async fn connect_site(&self, site: &Upstream) -> Result<Box<dyn Connection>, ResetCode> {
        let tcp = self.reach(&Tcp(&self.policy), &site.origin).await?;
        let Some(client) = site.client.clone() else { return Ok(Box::new(tcp)) };
        let name = match &site.origin.host {
            Host::Name(name) => ServerName::try_from(name.clone()).ok(),
            Host::Ip(address) => Some(ServerName::from(*address)),
            // No setting names one.
            Host::Service(_) => None,
        };
        let connecting = TlsConnector::from(client).connect(name.ok_or(ResetCode::Internal)?, tcp);
        match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(tls)) => Ok(Box::new(tls)),
            Ok(Err(error)) => {
                self.quiet.warn("TLS to the origin of a site failed", &error);
                Err(ResetCode::Aborted)
            }
            Err(_) => Err(ResetCode::Timeout),
        }
    }
}
