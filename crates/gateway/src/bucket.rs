//! A token bucket.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// So many per second on average, and a burst at a stretch.
pub struct Bucket {
    per_second: f64,
    most: f64,
    state: Mutex<State>,
}

struct State {
    tokens: f64,
    filled_at: Option<Instant>,
}

impl Bucket {
    /// `per_second` tokens, of which at most `seconds` worth are saved up.
    pub fn new(per_second: f64, seconds: f64) -> Self {
        let most = per_second * seconds;
        Self { per_second, most, state: Mutex::new(State { tokens: most, filled_at: None }) }
    }

    /// Takes one, if there is one.
    pub fn take(&self) -> bool {
        // A panic cannot leave the bucket half-changed.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = state.filled_at.map_or(0.0, |at| (now - at).as_secs_f64());
        state.filled_at = Some(now);
        state.tokens = (state.tokens + since * self.per_second).min(self.most);
        let enough = state.tokens >= 1.0;
        if enough {
            state.tokens -= 1.0;
        }
        enough
    }
}
