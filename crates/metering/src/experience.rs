//! Waiting times of passengers, by class and by rule of the operator.
//!
//! An exchange begins when a client sends, and ends before the client sends again after an answer.
//! Its first-byte time begins with the last byte that the client sent before the answer, so that an
//! upload is not a wait. A flow of a browser has several exchanges: the handshake of TLS is one, and
//! each request on the connection is one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_schedule::Class;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of groups after which flows are counted for no rule: five classes with the names of 256
/// rules. Many reloads can exceed it.
pub const MAX_GROUPS: usize = 5 * 257;

/// Ends of the buckets of a histogram, in seconds. An exchange of up to 2 s satisfies, and one of up to
/// four times that is tolerated (Apdex).
pub const BUCKETS_S: [f64; 12] = [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0];

/// Place in [`BUCKETS_S`] of the longest exchange that satisfies.
const SATISFIED: usize = 6;

/// Place in [`BUCKETS_S`] of the longest exchange that is tolerated.
const TOLERATED: usize = 9;

/// Silence after which bytes from the server do not belong to the exchange: it sends unasked. Outages
/// of the link do not count.
const UNASKED: Duration = Duration::from_secs(10);

/// Flows with the same class, and the same rule that decided it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The class.
    pub class: Class,
    /// Name of the rule; empty if no rule matched.
    pub rule: Arc<str>,
}

/// Numbers of times, by bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Numbers up to the end of each bucket alone, and beyond the last.
    pub counts: [u64; BUCKETS_S.len() + 1],
    /// Sum of the times.
    pub sum: Duration,
}

/// Experience of a group since the gateway started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Times to the first byte of an answer.
    pub first_byte: Times,
    /// Times to the last byte of an answer.
    pub completion: Times,
    /// Exchanges that ended without an answer, though the client waited.
    pub failed: u64,
}

/// Experience of all groups.
#[derive(Debug, Default)]
pub struct Experience(Mutex<BTreeMap<Group, Waits>>);

/// Exchanges of a flow.
#[derive(Debug)]
pub struct Exchanges {
    group: Group,
    /// Rule of the flow if the ground confirms its name.
    claimed: Option<Arc<str>>,
    asked: Option<Instant>,
    answer: Option<Answer>,
    /// Length of all outages of the link when the exchange began.
    outages: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    first: Instant,
    last: Instant,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let place = BUCKETS_S.iter().position(|end| time.as_secs_f64() <= *end);
        self.counts[place.unwrap_or(BUCKETS_S.len())] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Number of all times.
    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Waits {
    /// Index of satisfaction from 0 to 1, as Apdex defines it: the share of exchanges that satisfied,
    /// plus half of those that were tolerated. Exchanges without an answer did neither. `None` without
    /// exchanges.
    pub fn index(&self) -> Option<f64> {
        let counts = &self.completion.counts;
        let satisfied: u64 = counts[..=SATISFIED].iter().sum();
        let tolerated: u64 = counts[SATISFIED + 1..=TOLERATED].iter().sum();
        let all = self.completion.all() + self.failed;
        (all > 0).then(|| (satisfied as f64 + tolerated as f64 / 2.0) / all as f64)
    }
}

impl Experience {
    /// Returns all groups.
    pub fn all(&self) -> Vec<(Group, Waits)> {
        self.0.lock().iter().map(|(group, waits)| (group.clone(), *waits)).collect()
    }

    fn change(&self, group: &Group, change: impl FnOnce(&mut Waits)) {
        let mut all = self.0.lock();
        if let Some(waits) = all.get_mut(group) {
            return change(waits);
        }
        let mut group = group.clone();
        if all.len() >= MAX_GROUPS {
            group.rule = Arc::default();
        }
        change(all.entry(group).or_default());
    }
}

impl Exchanges {
    /// Creates the exchanges of a flow, whose client has sent something if `asked`.
    pub fn new(group: Group, claimed: Option<Arc<str>>, asked: bool) -> Self {
        let (asked, outages) = (asked.then(Instant::now), Duration::ZERO);
        Self { group, claimed, asked, answer: None, outages }
    }

    /// Sets the length of all outages of the link so far.
    #[must_use]
    pub fn from_outages(mut self, outages: Duration) -> Self {
        self.outages = outages;
        self
    }

    /// The ground confirmed the client's claim, and the flow's class is `class`.
    pub fn confirm(&mut self, class: Class) {
        self.group.class = class;
        if let Some(rule) = self.claimed.take() {
            self.group.rule = rule;
        }
    }

    /// Moves the flow to `class`.
    pub fn reclass(&mut self, class: Class) {
        self.group.class = class;
    }

    /// Notes that the client sent something at `now`. `outages` returns the length of all outages.
    pub fn ask(&mut self, now: Instant, outages: impl FnOnce() -> Duration, all: &Experience) {
        if self.asked.is_none() || self.answer.is_some() {
            self.outages = outages();
        }
        self.finish(all);
        self.asked = Some(now);
    }

    /// Notes that the client received something at `now`.
    pub fn answer(&mut self, now: Instant, outages: impl FnOnce() -> Duration) {
        match &mut self.answer {
            None if self.asked.is_some() => self.answer = Some(Answer { first: now, last: now }),
            None => {}
            Some(answer) => {
                let silent = now - answer.last;
                if silent <= UNASKED || silent <= UNASKED + outages().saturating_sub(self.outages) {
                    answer.last = now;
                }
            }
        }
    }

    /// Ends the flow. It `failed` if something other than the client ended it, so that a client who still
    /// waits gets no answer.
    pub fn end(&mut self, failed: bool, all: &Experience) {
        self.finish(all);
        if failed && self.asked.take().is_some() {
            all.change(&self.group, |waits| waits.failed += 1);
        }
    }

    /// Counts the exchange if it was answered.
    fn finish(&mut self, experience: &Experience) {
        let (Some(asked), Some(answer)) = (self.asked, self.answer.take()) else { return };
        self.asked = None;
        experience.change(&self.group, |waits| {
            waits.first_byte.add(answer.first - asked);
            waits.completion.add(answer.last - asked);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(rule: &str) -> Group {
        Group { class: Class::BestEffort, rule: rule.into() }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// No outage.
    fn none() -> Duration {
        Duration::ZERO
    }

    #[test]
    fn an_outage_is_a_part_of_the_wait() {
        let (experience, start) = (Experience::default(), Instant::now());
        let mut flow = Exchanges::new(group(""), None, false);
        flow.ask(start, || seconds(100.0), &experience);
        flow.answer(start + seconds(1.0), none);
        flow.answer(start + seconds(31.0), || seconds(125.0));
        flow.end(true, &experience);
        assert_eq!(experience.all()[0].1.completion.sum, seconds(31.0));
    }

    #[test]
    fn each_request_on_a_connection_is_an_exchange() {
        let (experience, start) = (Experience::default(), Instant::now());
        let mut flow = Exchanges::new(group("news"), None, false);
        let at = |time: f64| start + seconds(time);
        // An upload of 5 s, and its answer in two parts.
        flow.ask(at(0.0), none, &experience);
        flow.ask(at(5.0), none, &experience);
        flow.answer(at(5.7), none);
        flow.answer(at(8.0), none);
        flow.ask(at(20.0), none, &experience);
        flow.answer(at(20.6), none);
        // The server sends unasked.
        flow.answer(at(80.0), none);
        flow.end(false, &experience);
        let [(found, waits)] = &experience.all()[..] else { panic!("one group") };
        assert_eq!(found, &group("news"));
        assert_eq!(waits.first_byte.counts[3], 2);
        assert_eq!((waits.completion.counts[3], waits.completion.counts[7]), (1, 1));
        assert_eq!((waits.completion.sum, waits.failed), (seconds(0.6 + 3.0), 0));
        assert_eq!(waits.index(), Some(0.75));
    }

    #[test]
    fn a_client_that_waits_in_vain_is_counted_and_one_that_gives_up_is_not() {
        let experience = Experience::default();
        let waiting = || Exchanges::new(group(""), None, true);
        waiting().end(false, &experience);
        assert_eq!(experience.all(), []);
        waiting().end(true, &experience);
        let mut idle = waiting();
        idle.answer(Instant::now(), none);
        idle.end(true, &experience);
        let waits = experience.all()[0].1;
        assert_eq!((waits.failed, waits.completion.all(), waits.index()), (1, 1, Some(0.5)));
    }

    #[test]
    fn a_confirmed_name_moves_a_flow_to_its_rule() {
        let experience = Experience::default();
        let mut flow = Exchanges::new(group(""), Some("video".into()), true);
        flow.confirm(Class::LowerEffort);
        flow.end(true, &experience);
        let expected = Group { class: Class::LowerEffort, rule: "video".into() };
        assert_eq!(experience.all()[0].0, expected);
    }

    #[test]
    fn groups_are_bounded() {
        let experience = Experience::default();
        for number in 0..2 * MAX_GROUPS {
            Exchanges::new(group(&format!("rule {number}")), None, true).end(true, &experience);
        }
        let all = experience.all();
        assert_eq!(all.len(), MAX_GROUPS + 1);
        assert_eq!(all[0].0, group(""));
        assert_eq!(all[0].1.failed, MAX_GROUPS as u64);
    }
}
