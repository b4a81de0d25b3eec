//! The choice of an aircraft's hub: another one is called when the present one is silent or stops.

use std::convert::Infallible;
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

/// Poll interval of the present hub, which is doubtful for a round trip before it is out.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time for a hub to answer if there are others to call …
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// … and if there are none. Its name is looked up again then.
const ONLY_CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Interval of calls to the first hub while the aircraft is at another one.
const RETURN_INTERVAL: Duration = Duration::from_secs(60);

/// Calls an aircraft's hubs.
pub trait Calls: Send + Sync + 'static {
    /// Number of hubs, at least one.
    fn hubs(&self) -> usize;

    /// Calls the hub `number`. Returns its link once it answers, or `None` after about `patience` without
    /// an answer.
    fn call(&self, number: usize, patience: Duration) -> BoxFuture<'_, Option<Arc<dyn Connector>>>;
}

/// Moves `hubs`, which began with hub 0, to the next one when the present hub is silent or about to
/// stop, and back to hub 0 when that answers again. Runs in a task of the current runtime while `hubs`
/// are in use.
pub fn keep(hubs: &Hubs, calls: impl Calls) {
    hubs.note_others();
    tokio::spawn(follow(hubs.watch(), calls));
}

/// Waits until a hub answers on its link. Returns the link, or `None` if the hub does not answer for
/// `patience`.
pub async fn answered(link: impl Connector, patience: Duration) -> Option<Arc<dyn Connector>> {
    let mut reach = link.watch_reach();
    let up = async { reach.wait_for(|reach| *reach == Reach::Up).await.is_ok() };
    let is_up = timeout(patience, up).await.unwrap_or(false);
    is_up.then(|| Arc::new(link) as Arc<dyn Connector>)
}

/// Answer to a call, or the lack of one.
type Answer = Option<Arc<dyn Connector>>;

/// Call to the next hub while the present one is doubtful, so that the answer is there once it is out.
struct EarlyCall<'a, C> {
    calls: &'a C,
    number: usize,
    call: Option<BoxFuture<'a, Answer>>,
    answer: Option<Answer>,
}

impl<'a, C: Calls> EarlyCall<'a, C> {
    fn new(calls: &'a C, number: usize) -> Self {
        Self { calls, number, call: None, answer: None }
    }

    /// Calls while `hub` is doubtful, and forgets the answer when it is not. Never returns.
    async fn watch(&mut self, hub: &dyn Connector) -> Infallible {
        loop {
            sleep(POLL_INTERVAL).await;
            if !hub.is_doubtful() {
                (self.call, self.answer) = (None, None);
                continue;
            }
            if self.answer.is_none() {
                let call = self.call.take().unwrap_or_else(|| self.begin());
                let call = self.call.insert(call);
                // Until the next poll.
                if let Ok(answer) = timeout(POLL_INTERVAL, call).await {
                    (self.call, self.answer) = (None, Some(answer));
                }
            }
        }
    }

    fn begin(&self) -> BoxFuture<'a, Answer> {
        let patience = if self.calls.hubs() > 2 { CALL_TIMEOUT } else { ONLY_CALL_TIMEOUT };
        self.calls.call(self.number, patience)
    }

    /// The answer, or that of a new call.
    async fn answer(mut self) -> Answer {
        match (self.answer.take(), self.call.take()) {
            (Some(answer), _) => answer,
            (None, Some(call)) => call.await,
            (None, None) => self.begin().await,
        }
    }
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
        let mut early = EarlyCall::new(&calls, next(candidate, present, calls.hubs()));
        let reason = tokio::select! {
            never = early.watch(&*hub) => match never {},
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
        candidate = if reason == Reason::Return { 0 } else { early.number };
        tracing::info!(hub = candidate, "calling another hub");
        let answer = match reason {
            Reason::Return => calls.call(candidate, CALL_TIMEOUT).await,
            // The present hub may be back before another one answers.
            Reason::Departure => timeout(CALL_TIMEOUT, early.answer()).await.unwrap_or_default(),
            Reason::Silence => tokio::select! {
                biased;
                // The present hub is back, and its flows need no other.
                Ok(_) = reach.wait_for(|reach| *reach == Reach::Up) => continue,
                answer = early.answer() => answer,
            },
        };
        match answer {
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use bentpipe_flow::OpenDatagrams;
    use bentpipe_transport::{FlowDatagrams, OpenError};

    use super::*;

    /// A hub that opens no flows.
    struct Silent {
        reach: watch::Receiver<Reach>,
        is_doubtful: AtomicBool,
    }

    impl Silent {
        fn new() -> (watch::Sender<Reach>, Arc<Self>) {
            let (sender, reach) = watch::channel(Reach::Up);
            (sender, Arc::new(Self { reach, is_doubtful: AtomicBool::new(false) }))
        }
    }

    impl Connector for Silent {
        fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
            Box::pin(pending())
        }

        fn open_datagrams(
            &self,
            _: OpenDatagrams,
        ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
            Box::pin(pending())
        }

        fn watch_reach(&self) -> watch::Receiver<Reach> {
            self.reach.clone()
        }

        fn is_doubtful(&self) -> bool {
            self.is_doubtful.load(Relaxed)
        }
    }

    /// A second hub that answers after a round trip.
    struct Second {
        hub: Arc<dyn Connector>,
        calls: Arc<AtomicUsize>,
    }

    const ROUND_TRIP: Duration = Duration::from_millis(760);

    impl Calls for Second {
        fn hubs(&self) -> usize {
            2
        }

        fn call(&self, number: usize, _: Duration) -> BoxFuture<'_, Answer> {
            assert_eq!(number, 1);
            self.calls.fetch_add(1, Relaxed);
            Box::pin(async move {
                sleep(ROUND_TRIP).await;
                Some(self.hub.clone())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_hub_has_answered_when_the_present_one_is_out() {
        let (reach, first) = Silent::new();
        let (_reach, second) = Silent::new();
        let calls = Arc::<AtomicUsize>::default();
        let hubs = Hubs::new(first.clone());
        let is_second = || Arc::ptr_eq(&hubs.hub(), &(second.clone() as Arc<dyn Connector>));
        keep(&hubs, Second { hub: second.clone(), calls: calls.clone() });
        sleep(Duration::from_secs(10)).await;
        assert_eq!(calls.load(Relaxed), 0);
        // It returns before it is out.
        first.is_doubtful.store(true, Relaxed);
        sleep(ROUND_TRIP * 2).await;
        first.is_doubtful.store(false, Relaxed);
        sleep(ROUND_TRIP).await;
        assert_eq!((calls.load(Relaxed), is_second()), (1, false));
        first.is_doubtful.store(true, Relaxed);
        sleep(ROUND_TRIP + POLL_INTERVAL * 2).await;
        assert!(!is_second());
        reach.send_replace(Reach::Out);
        sleep(Duration::from_millis(1)).await;
        assert_eq!((calls.load(Relaxed), is_second()), (2, true));
    }

    #[test]
    fn all_hubs_but_the_present_one_are_called_in_turn() {
        assert_eq!(next(0, 0, 2), 1);
        assert_eq!(next(1, 0, 2), 1);
        assert_eq!([next(0, 0, 3), next(1, 0, 3), next(2, 0, 3)], [1, 2, 1]);
        assert_eq!([next(1, 1, 3), next(2, 1, 3), next(0, 1, 3)], [2, 0, 2]);
    }
}
