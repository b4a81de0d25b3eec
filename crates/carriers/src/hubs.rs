//! An aircraft's hubs: the next is called when the present one is silent.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_anchor::hubs::{Hubs, HubsWatch};
use bentpipe_config::AirConfig;
use bentpipe_net::Inherited;
use bentpipe_transport::{Connector, Reach};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::TransportError;
use crate::call::{radio, resolved};

/// Time for which a hub may be down, before or between its sessions, until the next is called. A
/// silent session is out after 2 s or three round trips ([`Reach::Out`]), and then there is no more to
/// wait for.
const DOWN_WAIT: Duration = Duration::from_secs(5);

/// Time for a hub to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a hub that could not be called.
const CALL_PAUSE: Duration = Duration::from_secs(1);

/// Interval of calls to the first hub while the aircraft is at another one.
const RETURN_INTERVAL: Duration = Duration::from_secs(60);

/// Moves `hubs`, which began with the first hub of `config`, to the next one when the present hub is
/// silent, and back to the first when that answers again. Runs in a task of the current runtime while
/// `hubs` are in use.
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
    tokio::spawn(follow(hubs.watch(), all));
}

async fn follow(watch: HubsWatch, all: Vec<AirConfig>) {
    let (mut present, mut candidate) = (0, 0);
    loop {
        let Some(mut reach) = watch.hubs().map(|hubs| hubs.watch_reach()) else { return };
        let is_return = tokio::select! {
            is_silent = silence(&mut reach) => match is_silent {
                true => false,
                false => return,
            },
            () = sleep(RETURN_INTERVAL), if present != 0 => true,
        };
        candidate = if is_return { 0 } else { next(candidate, present, all.len()) };
        let called = &all[candidate];
        let peer = &called.link.peer;
        tracing::info!(%peer, "calling another hub");
        let answer = answering(called).await;
        let is_back = *reach.borrow() == Reach::Up;
        match answer {
            // The present hub is back, and its flows need no other.
            Ok(Some(_)) if !is_return && is_back => {}
            Ok(Some(air)) => {
                let Some(hubs) = watch.hubs() else { return };
                tracing::info!(%peer, "the flows go on at another hub");
                hubs.change_to(air);
                present = candidate;
            }
            Ok(None) => tracing::info!(%peer, "the hub does not answer"),
            Err(error) => {
                tracing::warn!(%peer, %error, "the hub cannot be called");
                sleep(CALL_PAUSE).await;
            }
        }
    }
}

/// The hub to call after `candidate`: the next of `count` that is not the present one.
fn next(candidate: usize, present: usize, count: usize) -> usize {
    let next = (candidate + 1) % count;
    if next == present { (next + 1) % count } else { next }
}

/// Waits until the present hub is silent. Returns `false` if nobody uses it any more.
async fn silence(reach: &mut watch::Receiver<Reach>) -> bool {
    loop {
        let now = *reach.borrow_and_update();
        let changed = match now {
            Reach::Out => return true,
            Reach::Up => reach.changed().await,
            Reach::Down => match timeout(DOWN_WAIT, reach.changed()).await {
                Ok(changed) => changed,
                Err(_) => return true,
            },
        };
        if changed.is_err() {
            return false;
        }
    }
}

/// Calls the hub of `config`, and returns its link once it answers; `None` if it does not.
async fn answering(config: &AirConfig) -> Result<Option<Arc<dyn Connector>>, TransportError> {
    let addresses = timeout(CALL_TIMEOUT, resolved(&config.link.peer)).await;
    let addresses = addresses.ok().and_then(Result::ok).unwrap_or_default();
    if addresses.is_empty() {
        sleep(CALL_PAUSE).await;
        return Ok(None);
    }
    let air = radio(config, &mut Inherited::default(), &addresses)?;
    let mut reach = air.watch_reach();
    let up = async { reach.wait_for(|reach| *reach == Reach::Up).await.is_ok() };
    let is_up = match timeout(CALL_TIMEOUT, up).await {
        Ok(false) => {
            // Its task has ended.
            sleep(CALL_PAUSE).await;
            false
        }
        answered => answered.unwrap_or(false),
    };
    Ok(is_up.then(|| Arc::new(air) as Arc<dyn Connector>))
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn all_hubs_but_the_present_one_are_called_in_turn() {
        assert_eq!(next(0, 0, 2), 1);
        assert_eq!(next(1, 0, 2), 1);
        assert_eq!([next(0, 0, 3), next(1, 0, 3), next(2, 0, 3)], [1, 2, 1]);
        assert_eq!([next(1, 1, 3), next(2, 1, 3), next(0, 1, 3)], [2, 0, 2]);
    }
}
