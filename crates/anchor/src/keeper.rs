//! The choice of an aircraft's hub: another one is called when the present one is silent or stops.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{Class, ResetCode};
use bentpipe_transport::{Connector, FlowStream, Open, Reach};
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::air::anchor;
use crate::hubs::{Hubs, HubsWatch};
use crate::wire::Control;

/// Time for which a hub may be down, before or between its sessions, until the next is called. A
/// silent session is out after 2 s or three round trips ([`Reach::Out`]), and then there is no more to
/// wait for.
const DOWN_WAIT: Duration = Duration::from_secs(5);

/// Pause before a hub is asked (again) to announce its end.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Time for a hub to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of calls to the first hub while the aircraft is at another one.
const RETURN_INTERVAL: Duration = Duration::from_secs(60);

/// Calls an aircraft's hubs.
pub trait Calls: Send + Sync + 'static {
    /// Number of hubs, at least one.
    fn hubs(&self) -> usize;

    /// Calls the hub `number`. Returns its link once it answers, and `None` if it does not, after a
    /// limited time that is not zero.
    fn call(&self, number: usize) -> BoxFuture<'_, Option<Arc<dyn Connector>>>;
}

/// Moves `hubs`, which began with hub 0, to the next one when the present hub is silent or about to
/// stop, and back to hub 0 when that answers again. Runs in a task of the current runtime while `hubs`
/// are in use.
pub fn keep(hubs: &Hubs, calls: impl Calls) {
    hubs.note_others();
    tokio::spawn(follow(hubs.watch(), calls));
}

/// Waits until a hub answers on its link. Returns the link, or `None` if the hub does not answer.
pub async fn answered(link: impl Connector) -> Option<Arc<dyn Connector>> {
    let mut reach = link.watch_reach();
    let up = async { reach.wait_for(|reach| *reach == Reach::Up).await.is_ok() };
    let is_up = timeout(CALL_TIMEOUT, up).await.unwrap_or(false);
    is_up.then(|| Arc::new(link) as Arc<dyn Connector>)
}

/// Reason for another hub.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Silence,
    Departure,
    Return,
}

async fn follow(watch: HubsWatch, calls: impl Calls) {
    let (mut present, mut candidate) = (0, 0);
    // Stream on which the present hub has announced its end. The hub waits for the stream's end.
    let mut leaving: Option<Box<dyn FlowStream>> = None;
    loop {
        let Some(hubs) = watch.hubs() else { return };
        let (mut reach, hub) = (hubs.watch_reach(), hubs.hub());
        drop(hubs);
        let reason = tokio::select! {
            () = sleep(WATCH_PAUSE), if leaving.is_some() => Reason::Departure,
            is_silent = silence(&mut reach) => match is_silent {
                true => Reason::Silence,
                false => return,
            },
            stream = departure(&*hub), if leaving.is_none() => {
                leaving = Some(stream);
                Reason::Departure
            }
            () = sleep(RETURN_INTERVAL), if present != 0 => Reason::Return,
        };
        drop(hub);
        candidate = match reason {
            Reason::Return => 0,
            Reason::Silence | Reason::Departure => next(candidate, present, calls.hubs()),
        };
        tracing::info!(hub = candidate, "calling another hub");
        let answer = calls.call(candidate).await;
        let is_back = reason == Reason::Silence && *reach.borrow() == Reach::Up;
        match answer {
            // The present hub is back, and its flows need no other.
            Some(_) if is_back => {}
            Some(air) => {
                let Some(hubs) = watch.hubs() else { return };
                tracing::info!(hub = candidate, "the flows go on at another hub");
                hubs.change_to(air);
                present = candidate;
                leaving = None;
            }
            None => tracing::info!(hub = candidate, "the hub does not answer"),
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

/// Waits until the hub announces its end. Returns the stream that tells the hub of ours. Never returns
/// for a hub that makes no announcements.
async fn departure(hub: &dyn Connector) -> Box<dyn FlowStream> {
    loop {
        sleep(WATCH_PAUSE).await;
        if hub.reach() != Reach::Up {
            continue;
        }
        let mut record = Vec::new();
        Control::Watch.put(&mut record);
        let open = Open {
            target: anchor(),
            class: Class::BestEffort,
            passenger: 0,
            claim: None,
            first: Bytes::from(record),
        };
        let Ok(mut stream) = hub.open(open).await else { continue };
        match stream.read(&mut [0]).await {
            Ok(0) => return stream,
            // With the session. The next one has its own.
            Err(_) if stream.reset_code() == Some(ResetCode::Lost) => continue,
            Ok(_) | Err(_) => {}
        }
        // An earlier version, which knows no such stream.
        tracing::debug!("the hub does not announce its end");
        return pending().await;
    }
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
