//! A beginning without anything known: the ground is asked for what this aircraft used to ask for.

use std::time::Duration;

use super::{Action, Front};
use crate::answer::{Answer, Kind, key_of};
use crate::cache::{Ahead, State};
use crate::push;

/// The ground is told again after this where nothing came, so often in all.
const AGAIN: Duration = Duration::from_secs(3);
const TRIES: u32 = 5;

/// Part of the ground's push that is still accepted.
pub struct WarmStart {
    left_bytes: usize,
    tries: u32,
    /// Time at which the ground is told, until it has heard it.
    due: Option<Duration>,
}

impl<C> Front<C> {
    /// Everything that outlived an earlier run has been taken back. Where that is nothing, the ground is
    /// told, which may push what is asked for often here.
    pub fn begin(&mut self, now: Duration) {
        let left_bytes = self.settings.warm_start_bytes as usize;
        if left_bytes > 0 && self.cache.len() == 0 {
            self.warm_start = Some(WarmStart { left_bytes, tries: 0, due: Some(now) });
        }
    }

    pub(super) fn warm_start_due(&self) -> Option<Duration> {
        self.warm_start.as_ref()?.due
    }

    pub(super) fn say_that_it_begins(&mut self, now: Duration) {
        let Some(warm) = self.warm_start.as_mut().filter(|it| it.due.is_some_and(|at| at <= now))
        else {
            return;
        };
        warm.due = (warm.tries < TRIES).then_some(now + AGAIN);
        if self.is_up && warm.tries < TRIES {
            warm.tries += 1;
            let message = push::beginning(self.settings.warm_start_bytes, false);
            self.counts.bytes_to_ground += message.len() as u64;
            self.actions.push_back(Action::Say(message));
        }
    }

    /// The ground has sent an answer unasked, or has heard that this begins. Nothing is taken that was
    /// not offered to be, and nothing in the place of what still counts.
    pub(super) fn pushed(&mut self, message: Option<Vec<u8>>, now: Duration) {
        let Some(warm) = &mut self.warm_start else {
            self.counts.unasked += 1;
            return;
        };
        warm.due = None;
        let Some(message) = message else { return };
        let left = warm.left_bytes.checked_sub(message.len());
        let answer = key_of(&message).map_err(Into::into).and_then(|key| {
            let answer = Answer::parse(&key, &message)?;
            Ok::<_, crate::NotAnAnswer>((key, answer))
        });
        let (Some(left), Ok((key, answer))) = (left, answer) else {
            self.counts.unasked += 1;
            return;
        };
        warm.left_bytes = left;
        self.counts.pushed += 1;
        self.counts.push_bytes += message.len() as u64;
        self.counts.bytes_from_ground += message.len() as u64;
        let entry = self.cache.get(&key);
        let is_known = entry.is_some_and(|entry| entry.state(now, &self.settings) == State::Fresh);
        if is_known || answer.kind == Kind::Failure || answer.lifetime_s == 0 {
            self.counts.push_wasted += 1;
        } else {
            self.store(&key, answer, now, Some(Ahead::Pushed));
        }
    }
}
