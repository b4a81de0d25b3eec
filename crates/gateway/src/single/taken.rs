//! Whether the ground takes packed heads: an older one does not, nor one without Split HTTP.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_link::ResetCode;
use tokio::time::Instant;

/// How long it counts that the ground has answered, or that it takes none: it may be replaced, or told
/// otherwise.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// What is known of the ground. What it does not know it ends before anything of it reaches an origin, with
/// one of [`REFUSALS`]; but so ends a flow too that the ground's policy forbids or an origin breaks off. So
/// what can be asked twice is asked packed until the ground has refused it and given it plainly, and what
/// cannot only once the ground has answered.
#[derive(Debug, Default)]
pub struct Taken(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known_until: Option<Instant>,
    unserved_until: Option<Instant>,
    /// Whether the log has told that the ground takes none.
    is_told: bool,
}

/// How a ground ends what it does not know: without Split HTTP, and with an older one.
const REFUSALS: [ResetCode; 2] = [ResetCode::Forbidden, ResetCode::Aborted];

impl Taken {
    /// Whether a request should be packed that may be sent again plainly, if need be, or may not.
    pub fn may_pack(&self, may_repeat: bool, now: Instant) -> bool {
        let state = self.lock();
        let lasts = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if may_repeat { !lasts(state.unserved_until) } else { lasts(state.known_until) }
    }

    /// The ground has answered one.
    pub fn answered(&self, now: Instant) {
        *self.lock() = State { known_until: Some(now + REMEMBERED_FOR), ..State::default() };
    }

    /// One ended with `code` before anything came. Says whether that may be because the ground does not know it:
    /// until it answers another one, nothing is packed that cannot be sent again.
    pub fn is_refusal(&self, code: ResetCode) -> bool {
        let refused = REFUSALS.contains(&code);
        if refused {
            self.lock().known_until = None;
        }
        refused
    }

    /// What was refused has been answered plainly: it was the ground, then, and not where it led; unless
    /// another was answered meanwhile.
    pub fn answered_plainly(&self, now: Instant) {
        if self.lock().known_until.is_none() {
            self.unserved(now);
        }
    }

    /// The ground takes none: none is packed for a while.
    pub fn unserved(&self, now: Instant) {
        let mut state = self.lock();
        state.known_until = None;
        state.unserved_until = Some(now + REMEMBERED_FOR);
        if !std::mem::replace(&mut state.is_told, true) {
            tracing::info!(
                "the ground does not take packed heads of single requests: it has no [split-http], or is older \
                 than this gateway; they cross as they are"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_repeated_waits_for_an_answer() {
        let (taken, now) = (Taken::default(), Instant::now());
        let may = |at| [taken.may_pack(true, at), taken.may_pack(false, at)];
        assert_eq!(may(now), [true, false]);
        taken.answered(now);
        assert_eq!(may(now), [true, true]);
        assert_eq!(may(now + REMEMBERED_FOR), [true, false]);
        assert!(!taken.is_refusal(ResetCode::Refused));
        assert_eq!(may(now), [true, true], "that was the origin");
        assert!(taken.is_refusal(ResetCode::Forbidden));
        assert_eq!(may(now), [true, false]);
        taken.answered(now);
        taken.answered_plainly(now);
        assert_eq!(may(now), [true, true], "another was answered meanwhile");
        assert!(taken.is_refusal(ResetCode::Aborted));
        taken.answered_plainly(now);
        assert_eq!(may(now), [false, false]);
        assert_eq!(may(now + REMEMBERED_FOR), [true, false]);
        taken.answered(now);
        taken.unserved(now);
        assert_eq!(may(now), [false, false]);
    }
}
