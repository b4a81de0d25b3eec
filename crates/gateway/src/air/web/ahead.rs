//! Fetches before passengers ask: from the place that they would use.

use std::sync::Arc;

use bentpipe_link::{Class, Target};
use bentpipe_prefetch::address::Address;
use bentpipe_webcache::{Cache, Origin};
use http::HeaderValue;

use super::origins::{Asker, Asks};
use super::{Destination, Web};
use crate::air::intake::Intake;
use crate::config::Preload;
use crate::far::Reach;
use crate::preload::{Preloader, Sources};

/// The origins, asked by flows of this gateway's own.
pub struct Ahead {
    intake: Arc<Intake>,
    web: Arc<Web>,
    class: Class,
}

impl Ahead {
    /// Preloader of `config`.
    pub fn preloader(config: &Preload, intake: Arc<Intake>, web: Arc<Web>) -> Preloader {
        let (cache, counters) = (web.cache.clone(), intake.counters.clone());
        let sites = web.sites().iter().map(|site| site.name.clone()).collect();
        let clock = cache.clock();
        let sources = Arc::new(Self { intake, web, class: config.class });
        Preloader::new(config.settings(sites), cache, sources, clock, counters)
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
        let asks = Asks::Preload(self.class);
        let asker = Asker::new(self.intake.clone(), asks, self.web.origins.clone(), to);
        Some(Arc::new(asker))
    }

    fn is_reachable(&self) -> bool {
        self.intake.far.reach() == Reach::Up
    }
}

/// Lets go of what an earlier configuration had fetched ahead: nothing else pins.
pub async fn let_go(web: Arc<Web>) {
    let cache: &Cache = &web.cache;
    cache.settle().await;
    for key in cache.pinned() {
        cache.unpin(&key);
    }
}
