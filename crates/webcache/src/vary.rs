//! Choice among several answers for a request (RFC 9111 §4.1).

use http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderName, VARY};
use http::{HeaderMap, HeaderValue};

/// The most fields an answer may vary by; beyond, it is not stored.
pub const MOST_FIELDS: usize = 16;

/// The fields that an answer varies by, with what the request said that it answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(pub(crate) Vec<(HeaderName, Option<Vec<u8>>)>);

impl Selection {
    /// Selection key of `response`, which answers `request`; `None` if nothing can select it:
    /// `Vary: *`, or a field that identifies somebody.
    pub fn new(response: &HeaderMap, request: &HeaderMap) -> Option<Self> {
        let mut fields = Vec::new();
        for value in response.get_all(VARY) {
            for name in value.as_bytes().split(|byte| *byte == b',') {
                let name = name.trim_ascii();
                if name.is_empty() {
                    continue;
                }
                // `*` is no name either.
                let name = HeaderName::from_bytes(name).ok()?;
                if fields.iter().any(|(known, _)| *known == name) {
                    continue;
                }
                let value = normal(&name, request);
                let personal = name == COOKIE || name == AUTHORIZATION;
                if (personal && value.is_some())
                    || name.as_str() == "*"
                    || fields.len() == MOST_FIELDS
                {
                    return None;
                }
                fields.push((name, value));
            }
        }
        Some(Self(fields))
    }

    /// Returns `true` if `request` has the same values in these fields.
    pub fn fits(&self, request: &HeaderMap) -> bool {
        self.0.iter().all(|(name, value)| normal(name, request) == *value)
    }
}

/// All that `request` says in the field `name`, in a form that is the same for the same meaning.
fn normal(name: &HeaderName, request: &HeaderMap) -> Option<Vec<u8>> {
    let values: Vec<&HeaderValue> = request.get_all(name).iter().collect();
    if values.is_empty() {
        return None;
    }
    let mut parts: Vec<Vec<u8>> = values
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(squeezed)
        .filter(|part| !part.is_empty())
        .collect();
    // Their order says nothing, their weights do (RFC 9110 §12.5.3, §12.5.4), and they have no case.
    if *name == ACCEPT_ENCODING || *name == ACCEPT_LANGUAGE {
        for part in &mut parts {
            part.make_ascii_lowercase();
            part.retain(|byte| !byte.is_ascii_whitespace());
        }
        parts.sort();
        parts.dedup();
    }
    Some(parts.join(&b','))
}

/// Without space around it, and with one space for several within.
fn squeezed(part: &[u8]) -> Vec<u8> {
    let words = part.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn fits(vary: &str, first: &[(&str, &str)], second: &[(&str, &str)]) -> bool {
        Selection::new(&map(&[("vary", vary)]), &map(first)).unwrap().fits(&map(second))
    }

    #[test]
    fn the_same_meaning_fits() {
        let gzip = [("accept-encoding", "gzip, deflate;q=0.5")];
        assert!(fits("Accept-Encoding", &gzip, &[("accept-encoding", "Deflate; q=0.5,GZIP")]));
        let two_lines = [("accept-encoding", "gzip"), ("accept-encoding", "deflate;q=0.5")];
        assert!(fits("accept-encoding", &gzip, &two_lines));
        assert!(fits("x", &[], &[]) && fits("X-A", &[("x-a", "1,  2")], &[("x-a", " 1 ,2")]));
    }

    #[test]
    fn another_meaning_does_not() {
        assert!(!fits("accept-encoding", &[("accept-encoding", "gzip")], &[]));
        assert!(!fits("x-a", &[("x-a", "1, 2")], &[("x-a", "2, 1")]));
        assert!(!fits("x-a", &[("x-a", "a")], &[("x-a", "A")]));
        assert!(!fits("x-a, x-b", &[("x-a", "1")], &[("x-a", "1"), ("x-b", "1")]));
        assert!(!fits("x-a", &[], &[("x-a", "")]), "absent is not empty");
    }

    #[test]
    fn nothing_selects_what_varies_by_everything_or_by_who_asks() {
        let request = map(&[("cookie", "id=1")]);
        for vary in ["*", "accept, *", "Cookie", "\u{e9}", "a b"] {
            assert_eq!(Selection::new(&map(&[("vary", vary)]), &request), None, "{vary}");
        }
        let anonymous = Selection::new(&map(&[("vary", "cookie")]), &map(&[])).unwrap();
        assert!(anonymous.fits(&map(&[])) && !anonymous.fits(&request));
        let many: Vec<String> = (0..=MOST_FIELDS).map(|n| format!("x-{n}")).collect();
        assert_eq!(Selection::new(&map(&[("vary", &many.join(","))]), &map(&[])), None);
    }

    proptest! {
        #[test]
        fn a_request_always_fits_the_answer_to_itself(vary in "[a-z*, -]{0,20}", value in "[ -~]{0,20}") {
            let request = map(&[("a", &value), ("accept-encoding", &value)]);
            if let Some(selection) = Selection::new(&map(&[("vary", &vary)]), &request) {
                prop_assert!(selection.fits(&request));
            }
        }
    }
}
