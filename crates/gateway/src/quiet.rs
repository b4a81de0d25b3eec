//! A log that a flood cannot fill.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// At most one line in this time, whatever happens.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one line through per [`INTERVAL`] and counts the others.
#[derive(Debug, Default)]
pub struct Quiet(Mutex<(Option<Instant>, u64)>);

impl Quiet {
    /// Says that something of ours failed.
    pub fn warn(&self, what: &str, error: &dyn Display) {
        if let Some(unsaid) = self.turn() {
            tracing::warn!(%error, unsaid, "{what}");
        }
    }

    /// Says that a client was refused.
    pub fn refused(&self, client: IpAddr, why: &str) {
        if let Some(unsaid) = self.turn() {
            tracing::info!(%client, unsaid, "client refused: {why}");
        }
    }

    /// Number of suppressed lines, if one may be logged now.
    pub fn turn(&self) -> Option<u64> {
        // A panic cannot leave the pair half-changed.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.0.is_some_and(|said_at| now - said_at < INTERVAL) {
            state.1 += 1;
            return None;
        }
        let (_, unsaid) = std::mem::replace(&mut *state, (Some(now), 0));
        Some(unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_per_interval() {
        let quiet = Quiet::default();
        assert_eq!(quiet.turn(), Some(0));
        assert_eq!((quiet.turn(), quiet.turn()), (None, None));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(quiet.turn(), Some(2));
        assert_eq!(quiet.turn(), None);
    }
}
