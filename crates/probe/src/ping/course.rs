//! The method of a target's pings.
//!
//! Some cabins filter ICMP; without rights a laptop may not send it. A target therefore has several
//! methods. While the current one is silent, each ping has a scout beside it that tries another method. The
//! scout's method takes over if it is answered while the current one is not.

use std::time::Duration;

use crate::target::Method;

/// Silence after which scouts go out: one window of loss.
const SILENCE: Duration = Duration::from_secs(100);

/// Time that a method has for its first reply, before another may take over. Three pings are 6 s; a path
/// that loses 12 % of round trips loses all three once in 580 starts.
const GRACE: Duration = Duration::from_secs(6);

/// Interval of scouts by the preferred method, while another one is current.
const RETURN: Duration = Duration::from_secs(100);

/// State of the choice.
#[derive(Debug)]
pub struct Course {
    methods: Vec<Method>,
    current: usize,
    /// Start of the current method.
    since: Duration,
    answered: Option<Duration>,
    scouts: usize,
    returned: Duration,
}

impl Course {
    /// Begins with the first of `methods`, which may be used here. Without one there is no course.
    pub fn new(methods: Vec<Method>, now: Duration) -> Option<Self> {
        let empty = methods.is_empty();
        (!empty).then_some(Self {
            methods,
            current: 0,
            since: now,
            answered: None,
            scouts: 0,
            returned: now,
        })
    }

    /// The current method.
    pub fn method(&self) -> Method {
        self.methods[self.current]
    }

    /// Methods of the next ping: the current one, and that of a scout.
    pub fn next(&mut self, now: Duration) -> (Method, Option<Method>) {
        let current = self.method();
        if self.methods.len() < 2 {
            return (current, None);
        }
        if self.is_silent(now) {
            self.scouts += 1;
            let others: Vec<Method> =
                self.methods.iter().copied().filter(|method| *method != current).collect();
            return (current, Some(others[self.scouts % others.len()]));
        }
        let due = self.current != 0 && now >= self.returned + RETURN;
        if due {
            self.returned = now;
        }
        (current, due.then(|| self.methods[0]))
    }

    /// Notes a reply to a ping of `method`, and returns `true` if that method takes over.
    pub fn replied(&mut self, method: Method, now: Duration) -> bool {
        if method == self.method() {
            self.answered = Some(now);
            return false;
        }
        let Some(found) = self.methods.iter().position(|known| *known == method) else {
            return false;
        };
        let silent = self.is_silent(now) && now >= self.since + GRACE;
        // A method earlier in the list is preferred as soon as it works.
        if !silent && found > self.current {
            return false;
        }
        (self.current, self.since, self.returned) = (found, now, now);
        self.answered = Some(now);
        true
    }

    fn is_silent(&self, now: Duration) -> bool {
        self.answered.is_none_or(|at| now >= at + SILENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Method = Method::Tcp { port: 443 };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_method_gives_way_to_the_one_that_is_answered() {
        let mut course = Course::new(vec![Method::Icmp, TCP], s(0)).unwrap();
        assert_eq!(course.next(s(0)), (Method::Icmp, Some(TCP)));
        assert!(
            !course.replied(TCP, s(1)),
            "a proxy in the cabin answers TCP long before the ground answers ICMP"
        );
        assert!(!course.replied(TCP, s(3)));
        assert!(course.replied(TCP, s(6)));
        assert_eq!(course.next(s(8)), (TCP, None));
        assert_eq!(
            course.next(s(106)),
            (TCP, Some(Method::Icmp)),
            "the preferred method is tried again"
        );
        assert_eq!(course.next(s(108)).0, TCP);
        course.replied(TCP, s(107));
        assert!(course.replied(Method::Icmp, s(109)), "and taken when it works");
    }

    #[test]
    fn an_answered_method_stays() {
        let mut course = Course::new(vec![Method::Icmp, TCP], s(0)).unwrap();
        course.next(s(0));
        course.replied(Method::Icmp, s(1));
        assert_eq!(course.next(s(2)), (Method::Icmp, None));
        assert!(!course.replied(TCP, s(7)), "the scout of the first ping");
        assert_eq!(course.next(s(100)), (Method::Icmp, None));
        assert_eq!(course.next(s(101)), (Method::Icmp, Some(TCP)), "silent for a whole window");
    }

    #[test]
    fn one_method_has_no_scouts_and_none_has_no_course() {
        let mut course = Course::new(vec![TCP], s(0)).unwrap();
        assert_eq!(course.next(s(500)), (TCP, None));
        assert!(Course::new(Vec::new(), s(0)).is_none());
    }
}
