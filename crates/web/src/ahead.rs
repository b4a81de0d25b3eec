//! Origins of the preload: those that passengers' requests would use.

use std::sync::Arc;

use bentpipe_flow::Target;
use bentpipe_link::Class;
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Cache, Origin};
use futures_util::future::BoxFuture;
use http::HeaderValue;

use super::origins::{OriginClient, Requester};
use super::{Destination, Web};
use bentpipe_config::Preload;
use bentpipe_preload::{Preloader, Sources};
use bentpipe_transport::{Reach, wait_for_reach};
use bentpipe_uplink::Uplink;

/// Origins, reached by the gateway's own flows.
pub struct Ahead {
    uplink: Arc<Uplink>,
    web: Arc<Web>,
    class: Class,
}

impl Ahead {
    /// Creates the preloader of `config`.
    pub fn preloader(config: &Preload, uplink: Arc<Uplink>, web: Arc<Web>) -> Preloader {
        let (cache, counters) = (web.cache.clone(), uplink.counters.clone());
        let sources = Arc::new(Self { uplink, web, class: config.class });
        Preloader::new(config.settings.clone(), cache, sources, counters)
    }
}

impl Sources for Ahead {
    fn origin(&self, address: &Address) -> Option<Arc<dyn Origin>> {
        let origin = address.origin();
        let site = match origin.is_secure {
            true => Some(self.web.site(&origin.host)?),
            false => None,
        };
        let named = Target { host: origin.host.parse().ok()?, port: origin.port };
        let host = HeaderValue::from_str(address.authority()).ok()?;
        let to = Destination { named: Some(named), dialled: None, host, site };
        let requester = Requester::Preload(self.class);
        let client = OriginClient::new(self.uplink.clone(), requester, self.web.sources(), to);
        Some(Arc::new(client))
    }

    fn reachable(&self) -> BoxFuture<'_, ()> {
        Box::pin(wait_for_reach(&*self.uplink.connector, |reach| reach == Reach::Up))
    }
}

/// Unpins what an earlier configuration preloaded. Nothing else pins objects.
pub async fn unpin_all(web: Arc<Web>) {
    let cache: &Cache = &web.cache;
    cache.settle().await;
    for key in cache.pinned() {
        cache.unpin(&key);
    }
}
