//! Messages while a file is watched: each new content, and its absence.

use std::time::Duration;

use bentpipe_gateway::status::Document;

use super::table;

/// Interval at which a terminal shows again for how long nothing came.
const AGAIN: Duration = Duration::from_secs(1);

/// Result of reading the file.
pub enum Found {
    /// The file.
    Document(Document),
    /// None, and why.
    Nothing(String),
}

/// News to show.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A new file, now the last.
    New,
    /// None for so long, although there should have been.
    Quiet(Duration),
    /// The file has gone, with what is to be said of that.
    Gone(String),
}

/// Last content shown, and last message.
pub struct Watch {
    last: Document,
    /// Its age when it was seen, by this machine's calendar, which may jump …
    age: Duration,
    /// … and when that was, by a clock that does not.
    seen: Duration,
    /// Time of the last message that nothing came.
    said: Option<Duration>,
    is_gone: bool,
    repeats: bool,
}

impl Watch {
    /// `first` was shown, `age` old, at the time 0. With `repeats` it is said again and again for how
    /// long nothing has come.
    pub fn new(first: Document, age: Duration, repeats: bool) -> Self {
        let said = (age >= table::patience(&first)).then_some(Duration::ZERO);
        Self { last: first, age, seen: Duration::ZERO, said, is_gone: false, repeats }
    }

    /// The newest file.
    pub fn last(&self) -> &Document {
        &self.last
    }

    /// Looks at what was found at `now`.
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
