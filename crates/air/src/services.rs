//! On-board services, and the selection of one for each connection.

use std::sync::Arc;

use bentpipe_flow::Target;
use bentpipe_link::{SettingsError, SnapshotLimits};
use bentpipe_split_http::AirPages;
use bytes::Bytes;
use tokio::net::TcpStream;

use super::passengers::FlowPermit;
use bentpipe_config::AirConfig;
use bentpipe_resolver::Resolver;
use bentpipe_status::Session;
use bentpipe_uplink::Uplink;
use bentpipe_web::detect::tls::hello;
use bentpipe_web::{Web, site};

/// State of the listeners and of the on-board services.
pub struct Services {
    pub uplink: Arc<Uplink>,
    /// The resolver, if there is one.
    pub resolver: Option<Arc<Resolver>>,
    /// The HTTP cache, if there is one.
    pub web: Option<Arc<Web>>,
    /// State of Split HTTP, if configured.
    pub pages: Option<Arc<AirPages>>,
}

impl Services {
    /// Applies `config` while flows are open: rules, certificates and lifetimes of DNS answers
    /// apply to new flows, classes also to open ones. Changes nothing if the link rejects the
    /// classes.
    pub fn apply(&self, config: &AirConfig) -> Result<(), SettingsError> {
        self.uplink.apply(config)?;
        if let (Some(resolver), Some(dns)) = (&self.resolver, &config.dns) {
            resolver.apply(dns);
        }
        if let Some(web) = &self.web {
            web.set_certificates(config);
        }
        Ok(())
    }

    /// Returns the session with the ground gateway for the status file, if there is one.
    pub fn status(&self, most: SnapshotLimits) -> Vec<Session> {
        if let Some(web) = &self.web {
            web.tell(&self.uplink.counters);
        }
        self.uplink.status(most)
    }

    /// Returns the resolver if it answers queries to other resolvers.
    pub fn intercepting(&self) -> Option<&Arc<Resolver>> {
        self.resolver.as_ref().filter(|resolver| resolver.intercepts)
    }

    /// Serves the connection if its hello names a site; otherwise carries it to `dialled`
    /// unchanged. `read` was already read from it.
    pub async fn carry(
        &self,
        tcp: TcpStream,
        dialled: Target,
        permit: Arc<FlowPermit>,
        read: Bytes,
    ) {
        let (uplink, web) = (&self.uplink, self.web.as_ref());
        let Some(web) = web.filter(|web| dialled.port == site::PORT && web.has_sites()) else {
            return uplink.carry(tcp, dialled, &permit, read).await;
        };
        let (read, named) = hello(&tcp, read).await;
        match named.and_then(|name| web.site(&name)) {
            Some(site) => site::serve(tcp, read, site, permit, uplink.clone(), web.clone()).await,
            None => uplink.carry(tcp, dialled, &permit, read).await,
        }
    }
}
