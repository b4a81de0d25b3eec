//! A token bucket.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Limits events to an average rate per second, with a burst.
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
    /// Creates a bucket with `per_second` tokens a second, which stores up to `seconds` worth of
    /// them.
    pub fn new(per_second: f64, seconds: f64) -> Self {
        let most = per_second * seconds;
        Self { per_second, most, state: Mutex::new(State { tokens: most, filled_at: None }) }
    }

    /// Takes one token if available.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock();
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
