//! The background task of a client or server. Its owner sees its end and its turns.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// A background task. Clones share it.
#[derive(Clone, Debug)]
pub struct Task(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `true` once the owner has requested the end.
    is_closing: AtomicBool,
    /// Turns taken on request.
    turns: AtomicU64,
    requested: Notify,
    /// `true` once the task has returned or panicked.
    ended: watch::Receiver<bool>,
}

impl Task {
    /// Runs `work` on the current tokio runtime.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (tell, ended) = watch::channel(false);
        let shared = Arc::new(Shared {
            is_closing: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            requested: Notify::new(),
            ended,
        });
        let running = tokio::spawn(run(work, shared.clone()));
        tokio::spawn(async move {
            // A task is cancelled only when its runtime shuts down, which is not a failure.
            if !running.await.is_err_and(|error| error.is_cancelled()) {
                tell.send_replace(true);
            }
        });
        Self(shared)
    }

    /// Notes that the owner ends the task on purpose.
    pub fn close(&self) {
        self.0.is_closing.store(true, Ordering::Relaxed);
    }

    /// Waits until the task has panicked, or has returned without [`Self::close`].
    pub async fn failed(&self) {
        let mut ended = self.0.ended.clone();
        if ended.wait_for(|ended| *ended).await.is_err()
            || self.0.is_closing.load(Ordering::Relaxed)
        {
            pending::<()>().await;
        }
    }

    /// Number of turns of the task. The call requests another turn, so that the next call returns
    /// more unless the task hangs.
    pub fn pulse(&self) -> u64 {
        self.0.requested.notify_one();
        self.0.turns.load(Ordering::Relaxed)
    }
}

async fn run(work: impl Future<Output = ()>, shared: Arc<Shared>) {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            () = &mut work => return,
            () = shared.requested.notified() => {
                shared.turns.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn has_failed(task: &Task) -> bool {
        timeout(Duration::from_secs(60), task.failed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_and_an_unexpected_end_are_failures() {
        assert!(has_failed(&Task::spawn(async { panic!("as the test wants it") })).await);
        assert!(has_failed(&Task::spawn(async {})).await);
        assert!(!has_failed(&Task::spawn(pending())).await);
        let closed = Task::spawn(async {});
        closed.close();
        assert!(!has_failed(&closed).await);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_increase_unless_the_task_hangs() {
        let task = Task::spawn(pending());
        for turns in 0..5 {
            assert_eq!(task.pulse(), turns);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let ended = Task::spawn(async {});
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((ended.pulse(), ended.pulse()), (0, 0));
    }
}
