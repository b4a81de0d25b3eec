//! Connections to origins for Split HTTP in the ground gateway.

use std::sync::Arc;

use bentpipe_flow::{ResetCode, Target};
use bentpipe_net::ip;
use bentpipe_prefetch::address::Origin;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Shared;
use bentpipe_config::Upstream;
use bentpipe_origin::tls::Failed;
use bentpipe_split_http::{Connection, Origins};

/// Port of sites with TLS.
const HTTPS: u16 = 443;

/// Connects to origins of an aircraft's pages with the same resolver and policy as for passengers'
/// flows. TLS origins are limited to configured sites.
pub struct PageOrigins<'a> {
    pub shared: &'a Shared,
    pub aircraft: [u8; 32],
}

impl Origins for PageOrigins<'_> {
    fn connect(&self, origin: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>> {
        let Origin { is_secure, host, port } = origin.clone();
        Box::pin(async move {
            if is_secure {
                let site = self.shared.site(&host).filter(|_| port == HTTPS);
                let site = site.ok_or(ResetCode::Forbidden)?;
                return self.connect_site(site).await;
            }
            // All connections of a page to one origin use the same source address.
            let from = self.shared.tcp(&self.aircraft, &host);
            let host = host.parse().map_err(|_| ResetCode::Forbidden)?;
            let target = Target { host, port };
            let tcp = self.shared.reach(&self.aircraft, &from, ip::TCP, &target).await?;
            Ok(Box::new(tcp) as Box<dyn Connection>)
        })
    }
}

impl PageOrigins<'_> {
    /// Connects to a site's origin and authenticates it.
    async fn connect_site(&self, site: &Upstream) -> Result<Box<dyn Connection>, ResetCode> {
        let shared = self.shared;
        let from = shared.tcp(&self.aircraft, &site.name.as_str());
        let tcp = shared.reach(&self.aircraft, &from, ip::TCP, &site.origin).await?;
        let Some(client) = site.client.clone() else { return Ok(Box::new(tcp)) };
        match shared.secure(site, client, tcp).await {
            Ok(tls) => Ok(Box::new(tls)),
            Err(Failed::Tls(_)) => Err(ResetCode::Aborted),
            Err(Failed::Late) => Err(ResetCode::Timeout),
        }
    }
}

impl Shared {
    /// Returns the configured site called `name`.
    fn site(&self, name: &str) -> Option<&Upstream> {
        self.sites.iter().find(|site| site.name.as_str() == name)
    }

    /// Performs the TLS handshake over `tcp`, which is connected to the origin of `site`.
    async fn secure(
        &self,
        site: &Upstream,
        client: Arc<ClientConfig>,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failed> {
        let to = (&site.name, &site.origin);
        let made = bentpipe_origin::tls::connect(client, to, tcp, self.connect_timeout).await;
        made.inspect_err(|failed| self.log.warn("a site cannot be asked", failed))
    }
}
