//! Support of the ground for packed heads: an older one has none, nor one without Split HTTP.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_link::ResetCode;
use tokio::time::Instant;

/// Time for which nothing is packed for a ground that seems to have no support: it may be replaced,
/// or configured otherwise.
pub(super) const UNSERVED_FOR: Duration = Duration::from_secs(600);

/// Knowledge of the ground. It ends an unknown request before anything of it reaches an origin,
/// with one of [`REFUSALS`]. But a flow that the ground's policy forbids or an origin breaks off
/// ends in the same way. The ground's support does not change within a session. Until the ground
/// has answered a packed request of the session, only repeatable requests are packed, and repeated
/// plainly if they are refused. Afterwards a refusal is the destination's.
#[derive(Debug, Default)]
pub struct Taken(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last session in which the ground has answered.
    known_in: Session,
    unserved_until: Option<Instant>,
    /// `true` once the log has told that the ground has no support.
    is_told: bool,
}

/// The number of the session with the ground, where there is one.
pub type Session = Option<u64>;

/// Reset codes by which a ground ends unknown requests: without Split HTTP, and with an older one.
const REFUSALS: [ResetCode; 2] = [ResetCode::Forbidden, ResetCode::Aborted];

impl Taken {
    /// Returns `true` if a request should be packed, which may or may not be repeated plainly.
    pub fn packs(&self, may_repeat: bool, session: Session, now: Instant) -> bool {
        let state = self.lock();
        let is_unserved = state.unserved_until.is_some_and(|until| now < until);
        if may_repeat { !is_unserved } else { state.is_known_in(session) }
    }

    /// The ground has answered one that was packed in that session.
    pub fn answered(&self, session: Session) {
        let mut state = self.lock();
        let known_in = state.known_in.max(session);
        *state = State { known_in, ..State::default() };
    }

    /// Returns `true` if the end of a packed request of that session with `code`, before anything
    /// came, may mean that the ground does not know it.
    pub fn is_refusal(&self, session: Session, code: ResetCode) -> bool {
        REFUSALS.contains(&code) && !self.lock().is_known_in(session)
    }

    /// Notes that a request refused in the session `asked_in` has been answered plainly: it was the
    /// ground, then, or at least nothing says otherwise. It changes nothing if another was answered
    /// meanwhile, or if this is another session. Returns `true` if the log is to tell.
    pub fn answered_plainly(&self, asked_in: Session, session: Session, now: Instant) -> bool {
        let is_known = self.lock().is_known_in(asked_in);
        !is_known && asked_in == session && self.unserved(now)
    }

    /// The ground takes none: none is packed for a while. Says whether the log is to tell.
    pub fn unserved(&self, now: Instant) -> bool {
        let mut state = self.lock();
        state.known_in = None;
        state.unserved_until = Some(now + UNSERVED_FOR);
        !std::mem::replace(&mut state.is_told, true)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns `true` if the ground is known to support packed requests in that session.
    fn is_known_in(&self, session: Session) -> bool {
        session.is_some() && self.known_in == session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_repeated_waits_for_an_answer_in_the_session() {
        let (taken, now) = (Taken::default(), Instant::now());
        let may = |session| [true, false].map(|repeat| taken.packs(repeat, session, now));
        assert_eq!(may(Some(1)), [true, false]);
        taken.answered(Some(1));
        assert_eq!(may(Some(1)), [true, true]);
        assert_eq!(may(Some(2)), [true, false], "that may be another ground");
        assert_eq!(may(None), [true, false]);
        taken.answered(Some(2));
        taken.answered(Some(1));
        assert_eq!(may(Some(2)), [true, true], "what comes late takes nothing back");
        assert!(taken.unserved(now) && !taken.unserved(now), "it is told once");
        assert_eq!(may(Some(2)), [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ground_that_has_answered_does_not_refuse() {
        let taken = Taken::default();
        assert!(!taken.is_refusal(Some(1), ResetCode::Refused), "that was the origin");
        for code in REFUSALS {
            assert!(taken.is_refusal(Some(1), code) && taken.is_refusal(None, code));
        }
        taken.answered(Some(1));
        for code in REFUSALS {
            assert!(!taken.is_refusal(Some(1), code));
            assert!(taken.is_refusal(Some(2), code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_plainly_alone_is_not_packed_for_a_while() {
        let (taken, now) = (Taken::default(), Instant::now());
        let may = |at| taken.packs(true, Some(2), at);
        taken.answered_plainly(Some(1), Some(2), now);
        assert!(may(now), "that was another session");
        taken.answered(Some(2));
        taken.answered_plainly(Some(2), Some(2), now);
        assert!(may(now), "another was answered meanwhile");
        assert!(taken.answered_plainly(Some(3), Some(3), now));
        assert!(!may(now) && may(now + UNSERVED_FOR));
        taken.answered(Some(3));
        assert!(may(now));
    }
}
