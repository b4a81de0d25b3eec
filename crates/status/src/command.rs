//! A command for a running gateway, and the answer.

use bentpipe_flow::Target;
use tokio::sync::oneshot;

/// Lines for the operator, or the error for which nothing was done.
pub type Outcome = Result<Vec<String>, String>;

/// Content of a command.
#[derive(Debug)]
pub enum Asked<C> {
    /// Apply this configuration. The lines are the settings that could not be changed and that wait.
    Config(C),
    /// Say by which egress a destination is reached, and why.
    Explain(Target),
}

/// A command for a running gateway.
#[derive(Debug)]
pub struct Command<C> {
    /// Its content.
    pub asked: Asked<C>,
    answer: oneshot::Sender<Outcome>,
}

impl<C> Command<C> {
    /// Creates a command; the receiver gets its outcome.
    pub fn new(asked: Asked<C>) -> (Self, oneshot::Receiver<Outcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { asked, answer }, outcome)
    }

    /// Answers the command.
    pub fn answer(self, outcome: Outcome) {
        // Nobody may wait for it any more.
        let _ = self.answer.send(outcome);
    }
}
