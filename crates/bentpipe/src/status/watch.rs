//! Messages while a file is watched: each new content, and missing updates.

use std::time::Duration;

use bentpipe_gateway::status::Document;

use super::table;

/// Interval at which a terminal shows the time without updates.
const AGAIN: Duration = Duration::from_secs(1);

/// Result of reading the file.
pub enum Found {
    /// The file.
    Document(Document),
    /// The file cannot be read, for this reason.
    Nothing(String),
}

/// Change to show.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A new document, available from `Watch::last`.
    New,
    /// No new document for this long, although one was due.
    Quiet(Duration),
    /// The file is gone; the text explains why.
    Gone(String),
}

/// Last document shown, and last message.
pub struct Watch {
    last: Document,
    /// Age of the document when it was read, by the system's clock, which may jump.
    age: Duration,
    /// Time when it was read, by a monotonic clock.
    seen: Duration,
    /// Time of the last message about a missing update.
    said: Option<Duration>,
    is_gone: bool,
    repeats: bool,
}

impl Watch {
    /// Creates a watch. `first` has been shown at time 0, when it was `age` old. With `repeats`,
    /// the message about a missing update is repeated.
    pub fn new(first: Document, age: Duration, repeats: bool) -> Self {
        let said = (age >= table::patience(&first)).then_some(Duration::ZERO);
        Self { last: first, age, seen: Duration::ZERO, said, is_gone: false, repeats }
    }

    /// The latest document.
    pub fn last(&self) -> &Document {
        &self.last
    }

    /// Processes a read of the file at `now`.
    pub fn look(&mut self, found: Found, now: Duration) -> Option<News> {
        let document = match found {
            Found::Document(document) => document,
            Found::Nothing(_) if self.is_gone => return None,
            Found::Nothing(why) => {
                self.is_gone = true;
                return Some(News::Gone(why));
            }
        };
        self.is_gone = false;
        if document.written_unix_ms != self.last.written_unix_ms {
            (self.age, self.seen, self.said) = (Duration::ZERO, now, None);
            self.last = document;
            return Some(News::New);
        }
        let quiet = self.age + now.saturating_sub(self.seen);
        let again = match self.said {
            None => quiet >= table::patience(&self.last),
            Some(said) => self.repeats && now >= said + AGAIN,
        };
        again.then(|| {
            self.said = Some(now);
            News::Quiet(quiet)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a gateway that writes every five seconds.
    fn written(unix_s: u64) -> Document {
        let json = format!(
            "{{\"schema\": 1, \"gateway\": \"air\", \"version\": \"1\", \"written_unix_ms\": {}, \
             \"interval_ms\": 5000, \"uptime_us\": 1, \"detail\": \"classes\", \"counters\": {{}}, \
             \"sessions\": []}}",
            unix_s * 1000
        );
        serde_json::from_str(&json).unwrap()
    }

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_gateway_that_has_died_is_told_and_one_that_is_back() {
        for repeats in [false, true] {
            let mut watch = Watch::new(written(100), s(1), repeats);
            let mut look = |unix_s, now| watch.look(Found::Document(written(unix_s)), now);
            assert_eq!(look(100, s(9)), None);
            assert_eq!(look(100, s(11)), Some(News::Quiet(s(12))), "it was a second old");
            assert_eq!(look(100, s(12)), repeats.then_some(News::Quiet(s(13))));
            assert_eq!(look(107, s(13)), Some(News::New));
            assert_eq!(look(107, s(23)), None);
            assert_eq!(look(107, s(24)), Some(News::Quiet(s(11))));
        }
    }

    #[test]
    fn a_gateway_that_has_stopped_is_told_once() {
        let mut watch = Watch::new(written(100), s(1), true);
        let gone = || Found::Nothing("gone".to_owned());
        assert_eq!(watch.look(gone(), s(1)), Some(News::Gone("gone".to_owned())));
        assert_eq!(watch.look(gone(), s(100)), None);
        assert_eq!(watch.look(Found::Document(written(101)), s(101)), Some(News::New));
        assert_eq!(watch.last().written_unix_ms, 101_000);
        assert_eq!(watch.look(gone(), s(102)), Some(News::Gone("gone".to_owned())));
    }

    #[test]
    fn an_old_file_that_is_shown_first_says_so_itself() {
        let mut watch = Watch::new(written(100), s(3600), false);
        assert_eq!(watch.look(Found::Document(written(100)), s(60)), None);
    }
}
