//! Connections of the ground's half of Split HTTP.

use std::sync::Arc;

use bentpipe_link::{ResetCode, Target};
use bentpipe_prefetch::address::Origin;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Shared, Tcp};
use crate::config::Upstream;
use crate::net::ip;
use crate::origin_tls::{self, Failed};
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
                let site = self.site(&host).filter(|_| port == HTTPS);
                let site = site.ok_or(ResetCode::Forbidden)?;
                return self.connect_site(site).await;
            }
            // All of a page's connections to one origin leave from one address.
            let from = Tcp::of(self, &host);
            let host = host.parse().map_err(|_| ResetCode::Forbidden)?;
            let tcp = self.reach(&from, ip::TCP, &Target { host, port }).await?;
            Ok(Box::new(tcp) as Box<dyn Connection>)
        })
    }
}

impl Shared {
    /// The site that aircraft call `name`.
    pub(super) fn site(&self, name: &str) -> Option<&Upstream> {
        self.sites.iter().find(|site| site.name.as_str() == name)
    }

    /// Connects to a site's origin, which has to show that it is.
    async fn connect_site(&self, site: &Upstream) -> Result<Box<dyn Connection>, ResetCode> {
        let tcp = self.reach(&Tcp::of(self, &site.name.as_str()), ip::TCP, &site.origin).await?;
        let Some(client) = site.client.clone() else { return Ok(Box::new(tcp)) };
        match self.secure(site, client, tcp).await {
            Ok(tls) => Ok(Box::new(tls)),
            Err(Failed::Tls(_)) => Err(ResetCode::Aborted),
            Err(Failed::Late) => Err(ResetCode::Timeout),
        }
    }

    /// Makes TLS over `tcp`, which leads to the origin of `site`.
    pub(super) async fn secure(
        &self,
        site: &Upstream,
        client: Arc<ClientConfig>,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failed> {
        let to = (&site.name, &site.origin);
        let made = origin_tls::connect(client, to, tcp, self.connect_timeout).await;
        made.inspect_err(|failed| self.quiet.warn("a site cannot be asked", failed))
    }
}
