//! Names to look up: a dated list, and unique names.

use thiserror::Error;

use crate::random::Random;
use crate::target::Family;

/// Identifier of the built-in list, as in records.
pub const BUILT_IN_ID: &str = "bentpipe-100-2026-11-27";

/// Maximum number of names of a list. A round of 1,000 pairs at 0.8 s each takes 13 minutes with one in flight.
pub const MAX_NAMES: usize = 1000;

/// A list of names with an identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    /// Identifier in records.
    pub id: String,
    /// The names.
    pub names: Vec<String>,
}

/// Fault of a list.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ListFault {
    /// A line that is not a name.
    #[error(
        "line {line}: `{text}` is not a domain name. Write one name a line, such as example.com"
    )]
    Name {
        /// Number of the line, from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// Too many or no names.
    #[error("the list has {0} names, and may have 1 to {MAX_NAMES}")]
    Size(usize),
}

impl NameList {
    /// The built-in list: 100 well-known names, chosen by hand on the date of its identifier. It is not a
    /// ranking. It stays as it is, so that flights compare.
    pub fn built_in() -> Self {
        let names = include_str!("names.txt").lines().map(str::to_owned).collect();
        Self { id: BUILT_IN_ID.into(), names }
    }

    /// Parses a list: one name a line; `#` begins a comment.
    pub fn parse(id: &str, text: &str) -> Result<Self, ListFault> {
        let mut names = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let name = line.split('#').next().unwrap_or_default().trim();
            if name.is_empty() {
                continue;
            }
            if super::message::query(0, name, Family::V4).is_err() || !name.contains('.') {
                let text = name.chars().take(40).collect();
                return Err(ListFault::Name { line: index + 1, text });
            }
            names.push(name.to_owned());
        }
        match names.len() {
            1..=MAX_NAMES => Ok(Self { id: id.into(), names }),
            other => Err(ListFault::Size(other)),
        }
    }

    /// A name below a random one of the list that nobody has asked for. 64 random bits do not repeat.
    pub fn unique(&self, random: &mut Random) -> String {
        let index = random.next_u64() as usize % self.names.len().max(1);
        let parent = self.names.get(index).map_or("example.com", String::as_str);
        format!("probe-{:016x}.{parent}", random.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_has_a_hundred_names() {
        let list = NameList::built_in();
        let distinct: std::collections::BTreeSet<_> = list.names.iter().collect();
        assert_eq!((list.names.len(), distinct.len()), (100, 100));
        let text = list.names.join("\n");
        assert_eq!(NameList::parse(BUILT_IN_ID, &text).unwrap(), list, "all are names");
    }

    #[test]
    fn a_list_of_ones_own() {
        let list =
            NameList::parse("mine", "# sites\nexample.com\n\n  www.example.org # twice\n").unwrap();
        assert_eq!(list.names, ["example.com", "www.example.org"]);
        let error = NameList::parse("mine", "example.com\nnot a name").unwrap_err();
        assert!(error.to_string().starts_with("line 2: `not a name`"), "{error}");
        assert_eq!(NameList::parse("mine", "# none"), Err(ListFault::Size(0)));
    }

    #[test]
    fn unique_names_are_names_and_do_not_repeat() {
        let (list, mut random) = (NameList::built_in(), Random::new(5));
        let names: std::collections::BTreeSet<_> =
            (0..1000).map(|_| list.unique(&mut random)).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| super::super::message::query(1, name, Family::V4).is_ok()));
    }
}
