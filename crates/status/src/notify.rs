//! Notifications to the service manager: ready, alive and stopping (`sd_notify(3)`), and the
//! descriptor that it keeps for the next process.
//!
//! Nothing is sent without `NOTIFY_SOCKET`, and no watchdog notification without `WATCHDOG_USEC`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bentpipe_net::handover;
use sd_notify::NotifyState;
use tokio::time::sleep;

/// Number of watchdog notifications within its limit.
const FEEDS_PER_LIMIT: u32 = 4;

/// Reports that the gateway is serving.
pub fn ready() {
    tell(NotifyState::Ready);
}

/// Reports that the gateway is stopping; open flows may finish.
pub fn stopping() {
    tell(NotifyState::Stopping);
}

/// Returns `true` if the service manager keeps descriptors for the next process. systemd sets FDSTORE
/// from version 254 on; the unit sets it for earlier ones.
pub fn keeps_descriptors() -> bool {
    let has = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    has("NOTIFY_SOCKET") && has("FDSTORE")
}

/// Has the service manager forget the descriptor of a handover, which this process has taken. Otherwise
/// the next process would get it again, also after a crash.
pub fn forget_handover() {
    let states = [NotifyState::FdStoreRemove, NotifyState::FdName(handover::NAME)];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!(%error, "the service manager keeps an old handover");
    }
}

/// Gives the service manager the descriptor of a handover. The next process inherits it.
pub fn store_handover(packed: OwnedFd) -> io::Result<()> {
    // Otherwise systemd drops a socket whose other end is closed.
    let keep = NotifyState::Custom("FDPOLL=0");
    let states = [NotifyState::FdStore, NotifyState::FdName(handover::NAME), keep];
    sd_notify::notify_with_fds(&states, &[packed.as_fd()])
}

/// Feeds the watchdog, if there is one, as long as all values of `pulses` increase. Never returns.
pub async fn feed_watchdog(pulses: impl Fn() -> Vec<u64>) {
    match sd_notify::watchdog_enabled() {
        Some(limit) => feed(limit, pulses, || tell(NotifyState::Watchdog)).await,
        None => std::future::pending().await,
    }
}

async fn feed(limit: Duration, pulses: impl Fn() -> Vec<u64>, mut tell: impl FnMut()) {
    let mut last = Vec::new();
    loop {
        let now = pulses();
        // A new transport has no earlier pulse.
        if now.len() != last.len() || now.iter().zip(&last).all(|(now, last)| now > last) {
            tell();
        }
        last = now;
        sleep(limit / FEEDS_PER_LIMIT).await;
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::time::timeout;

    /// Number of notifications within ten limits of the watchdog, with these pulses at each poll.
    async fn fed(pulses: impl Fn(u64) -> Vec<u64>) -> u32 {
        let (looks, fed) = (Cell::new(0), Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            pulses(looks.get())
        };
        let limit = Duration::from_secs(30);
        // The poll that is due at the end belongs to the next limit.
        let span = limit * 10 - Duration::from_secs(1);
        let _ = timeout(span, feed(limit, look, || fed.set(fed.get() + 1))).await;
        fed.get()
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_while_every_transport_moves() {
        assert_eq!(fed(|look| vec![look, 3 * look]).await, 40);
        assert_eq!(fed(|_| vec![]).await, 40, "nothing can hang where there is nothing");
        assert_eq!(fed(|look| vec![look, look.min(8)]).await, 8, "one hangs");
        assert_eq!(fed(|_| vec![7]).await, 1, "it hung from the first");
        assert_eq!(fed(|look| if look < 5 { vec![] } else { vec![look] }).await, 40);
    }
}
