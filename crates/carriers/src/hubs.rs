//! Calls to the hubs of an aircraft.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_anchor::hubs::Hubs;
use bentpipe_anchor::keeper::{self, Calls};
use bentpipe_config::AirConfig;
use bentpipe_net::Inherited;
use bentpipe_transport::Connector;
use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};

use crate::call::{radio, resolved};

/// Time for the address of a hub's name.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum time between calls.
const CALL_PAUSE: Duration = Duration::from_secs(1);

/// Keeps `hubs`, which began with the first hub of `config`, at a hub that answers. Runs in a task of
/// the current runtime while `hubs` are in use.
pub fn keep(hubs: &Hubs, config: &AirConfig) {
    let mut all = vec![config.clone()];
    all.extend(config.hubs.iter().map(|hub| {
        let mut other = config.clone();
        other.link.peer = hub.peer.clone();
        other.link.peer_public_key = hub.public_key;
        // Addresses of radios are those of the first hub.
        other.paths.iter_mut().for_each(|path| path.peer = None);
        other
    }));
    keeper::keep(hubs, Configured(all));
}

/// The air's configuration for each hub.
struct Configured(Vec<AirConfig>);

impl Calls for Configured {
    fn hubs(&self) -> usize {
        self.0.len()
    }

    fn call(&self, number: usize, patience: Duration) -> BoxFuture<'_, Option<Arc<dyn Connector>>> {
        let config = &self.0[number];
        Box::pin(async move {
            let pause = sleep(CALL_PAUSE);
            let answer = answering(config, patience).await;
            if answer.is_none() {
                pause.await;
            }
            answer
        })
    }
}

/// Calls the hub of `config`, and returns its link once it answers; `None` if it does not for `patience`.
async fn answering(config: &AirConfig, patience: Duration) -> Option<Arc<dyn Connector>> {
    let peer = &config.link.peer;
    let addresses = timeout(NAME_TIMEOUT, resolved(peer)).await;
    let addresses = addresses.ok().and_then(Result::ok).filter(|found| !found.is_empty())?;
    match radio(config, &mut Inherited::default(), &addresses) {
        Ok(air) => keeper::answered(air, patience).await,
        Err(error) => {
            tracing::warn!(%peer, %error, "the hub cannot be called");
            None
        }
    }
}
