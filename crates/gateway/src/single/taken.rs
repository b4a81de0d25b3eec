//! Whether the ground takes packed heads: an older one does not, nor one without Split HTTP.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_link::ResetCode;
use tokio::time::Instant;

/// How long nothing is packed for a ground that seems to take none: it may be replaced, or told otherwise.
pub const UNSERVED_FOR: Duration = Duration::from_secs(600);

/// What is known of the ground. What it does not know it ends before anything of it reaches an origin, with
/// one of [`REFUSALS`]; but so ends a flow too that the ground's policy forbids or an origin breaks off. What
/// it takes does not change within a session. So until the ground has answered a packed request of the session
/// only what can be asked twice is packed, and asked again plainly where it is refused; afterwards a refusal is
/// the destination's.
#[derive(Debug, Default)]
pub struct Taken(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last session in which the ground has answered.
    known_in: Option<u64>,
    unserved_until: Option<Instant>,
    /// Whether the log has told that the ground takes none.
    is_told: bool,
}

/// A request that is packed, and in which session that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedPacked {
    session: Option<u64>,
}

/// How a ground ends what it does not know: without Split HTTP, and with an older one.
const REFUSALS: [ResetCode; 2] = [ResetCode::Forbidden, ResetCode::Aborted];

impl Taken {
    /// How a request should be packed, if it should, that may be sent again plainly, if need be, or may not.
    pub fn ask(&self, may_repeat: bool, session: Option<u64>, now: Instant) -> Option<AskedPacked> {
        let (state, asked) = (self.lock(), AskedPacked { session });
        let is_unserved = state.unserved_until.is_some_and(|until| now < until);
        let packs = if may_repeat { !is_unserved } else { state.is_known_to(asked) };
        packs.then_some(asked)
    }

    /// The ground has answered it.
    pub fn answered(&self, asked: AskedPacked) {
        let mut state = self.lock();
        let known_in = state.known_in.max(asked.session);
        *state = State { known_in, ..State::default() };
    }

    /// Whether that it ended with `code`, before anything came, may be because the ground does not know it.
    pub fn is_refusal(&self, asked: AskedPacked, code: ResetCode) -> bool {
        REFUSALS.contains(&code) && !self.lock().is_known_to(asked)
    }

    /// What was refused has been answered plainly: it was the ground, then, or at least nothing says otherwise.
    /// Unless another was answered meanwhile, or this is another session.
    pub fn answered_plainly(&self, asked: AskedPacked, session: Option<u64>, now: Instant) {
        let is_known = self.lock().is_known_to(asked);
        if !is_known && asked.session == session {
            self.unserved(now);
        }
    }

    /// The ground takes none: none is packed for a while.
    pub fn unserved(&self, now: Instant) {
        let mut state = self.lock();
        state.known_in = None;
        state.unserved_until = Some(now + UNSERVED_FOR);
        if !std::mem::replace(&mut state.is_told, true) {
            tracing::info!(
                "the ground does not seem to take packed heads of single requests: it has no [split-http], or is \
                 older than this gateway; they cross as they are, and it is asked again in 10 minutes"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the ground is known to take what was asked like that.
    fn is_known_to(&self, asked: AskedPacked) -> bool {
        asked.session.is_some() && self.known_in == asked.session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_repeated_waits_for_an_answer_in_the_session() {
        let (taken, now) = (Taken::default(), Instant::now());
        let may = |session| [true, false].map(|repeat| taken.ask(repeat, session, now).is_some());
        assert_eq!(may(Some(1)), [true, false]);
        taken.answered(taken.ask(true, Some(1), now).unwrap());
        assert_eq!(may(Some(1)), [true, true]);
        assert_eq!(may(Some(2)), [true, false], "that may be another ground");
        assert_eq!(may(None), [true, false]);
        let (first, second) = (taken.ask(true, Some(1), now), taken.ask(true, Some(2), now));
        taken.answered(second.unwrap());
        taken.answered(first.unwrap());
        assert_eq!(may(Some(2)), [true, true], "what comes late takes nothing back");
        taken.unserved(now);
        assert_eq!(may(Some(2)), [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ground_that_has_answered_does_not_refuse() {
        let (taken, now) = (Taken::default(), Instant::now());
        let asked = |session| taken.ask(true, session, now).unwrap();
        let first = asked(Some(1));
        assert!(!taken.is_refusal(first, ResetCode::Refused), "that was the origin");
        for code in REFUSALS {
            assert!(taken.is_refusal(first, code) && taken.is_refusal(asked(None), code));
        }
        taken.answered(first);
        for code in REFUSALS {
            assert!(!taken.is_refusal(first, code));
            assert!(taken.is_refusal(asked(Some(2)), code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_plainly_alone_is_not_packed_for_a_while() {
        let (taken, now) = (Taken::default(), Instant::now());
        let may = |at| taken.ask(true, Some(2), at).is_some();
        let asked = |session| taken.ask(true, Some(session), now).unwrap();
        let (before, first) = (asked(1), asked(2));
        taken.answered_plainly(before, Some(2), now);
        assert!(may(now), "that was another session");
        taken.answered(first);
        taken.answered_plainly(first, Some(2), now);
        assert!(may(now), "another was answered meanwhile");
        let third = asked(3);
        taken.answered_plainly(third, Some(3), now);
        assert!(!may(now) && may(now + UNSERVED_FOR));
        taken.answered(third);
        assert!(may(now));
    }
}
