//! Rate-limited logging.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Minimum time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Logs one line per `INTERVAL` and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<(Option<Instant>, u64)>);

impl RateLimitedLog {
    /// Logs a failure of this gateway.
    pub fn warn(&self, what: &str, error: &dyn Display) {
        if let Some(unsaid) = self.turn() {
            tracing::warn!(%error, unsaid, "{what}");
        }
    }

    /// Logs that a client was refused.
    pub fn refused(&self, client: IpAddr, why: &str) {
        if let Some(unsaid) = self.turn() {
            tracing::info!(%client, unsaid, "client refused: {why}");
        }
    }

    /// Number of suppressed lines, if one may be logged now.
    pub fn turn(&self) -> Option<u64> {
        let mut state = self.0.lock();
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
        let log = RateLimitedLog::default();
        assert_eq!(log.turn(), Some(0));
        assert_eq!((log.turn(), log.turn()), (None, None));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(log.turn(), Some(2));
        assert_eq!(log.turn(), None);
    }
}
