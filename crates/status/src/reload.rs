//! A configuration for a running gateway, and the answer.

use tokio::sync::oneshot;

/// Settings that the gateway could not change and that wait, one line each; or the error for which
/// nothing has changed.
pub type Outcome = Result<Vec<String>, String>;

/// A configuration that a running gateway is to apply.
#[derive(Debug)]
pub struct Reload<C> {
    /// The configuration.
    pub config: C,
    answer: oneshot::Sender<Outcome>,
}

impl<C> Reload<C> {
    /// Creates a request; the receiver gets its outcome.
    pub fn new(config: C) -> (Self, oneshot::Receiver<Outcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { config, answer }, outcome)
    }

    /// Answers the request.
    pub fn answer(self, outcome: Outcome) {
        // Nobody may wait for it any more.
        let _ = self.answer.send(outcome);
    }
}
