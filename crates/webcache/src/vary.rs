//! Selection among the responses under one key (RFC 9111 §4.1).

use http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderName, VARY};
use http::{HeaderMap, HeaderValue};

/// Maximum number of fields in Vary. A response with more is not stored.
pub const MAX_VARY_FIELDS: usize = 16;

/// Fields that a response varies by, and their values in its request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(pub(crate) Vec<(HeaderName, Option<Vec<u8>>)>);

impl Selection {
    /// Creates the selection of a response to `request`. Returns `None` if the response cannot be
    /// reused: it has `Vary: *`, or varies by a field that identifies a person.
    pub fn new(response: &HeaderMap, request: &HeaderMap) -> Option<Self> {
        let mut fields = Vec::new();
        for value in response.get_all(VARY) {
            for name in value.as_bytes().split(|byte| *byte == b',') {
                let name = name.trim_ascii();
                if name.is_empty() {
                    continue;
                }
                // `*` is a valid field name, so it is checked below.
                let name = HeaderName::from_bytes(name).ok()?;
                if fields.iter().any(|(known, _)| *known == name) {
                    continue;
                }
                let value = normal(&name, request);
                let personal = name == COOKIE || name == AUTHORIZATION;
                if (personal && value.is_some())
                    || name.as_str() == "*"
                    || fields.len() == MAX_VARY_FIELDS
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

/// Normalized value of the field `name`: equivalent values have the same form.
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
    // Order and case do not matter, weights do (RFC 9110 §12.5.3, §12.5.4).
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

/// Trims whitespace, and collapses inner whitespace into one space.
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
    fn equivalent_values_match() {
        let gzip = [("accept-encoding", "gzip, deflate;q=0.5")];
        assert!(fits("Accept-Encoding", &gzip, &[("accept-encoding", "Deflate; q=0.5,GZIP")]));
        let two_lines = [("accept-encoding", "gzip"), ("accept-encoding", "deflate;q=0.5")];
        assert!(fits("accept-encoding", &gzip, &two_lines));
        assert!(fits("x", &[], &[]) && fits("X-A", &[("x-a", "1,  2")], &[("x-a", " 1 ,2")]));
    }

    #[test]
    fn different_values_do_not_match() {
        assert!(!fits("accept-encoding", &[("accept-encoding", "gzip")], &[]));
        assert!(!fits("x-a", &[("x-a", "1, 2")], &[("x-a", "2, 1")]));
        assert!(!fits("x-a", &[("x-a", "a")], &[("x-a", "A")]));
        assert!(!fits("x-a, x-b", &[("x-a", "1")], &[("x-a", "1"), ("x-b", "1")]));
        assert!(!fits("x-a", &[], &[("x-a", "")]), "absent is not empty");
    }

    #[test]
    fn vary_by_everything_or_by_person_is_not_selectable() {
        let request = map(&[("cookie", "id=1")]);
        for vary in ["*", "accept, *", "Cookie", "\u{e9}", "a b"] {
            assert_eq!(Selection::new(&map(&[("vary", vary)]), &request), None, "{vary}");
        }
        let anonymous = Selection::new(&map(&[("vary", "cookie")]), &map(&[])).unwrap();
        assert!(anonymous.fits(&map(&[])) && !anonymous.fits(&request));
        let many: Vec<String> = (0..=MAX_VARY_FIELDS).map(|n| format!("x-{n}")).collect();
        assert_eq!(Selection::new(&map(&[("vary", &many.join(","))]), &map(&[])), None);
    }

    proptest! {
        #[test]
        fn a_request_matches_its_own_response(vary in "[a-z*, -]{0,20}", value in "[ -~]{0,20}") {
            let request = map(&[("a", &value), ("accept-encoding", &value)]);
            if let Some(selection) = Selection::new(&map(&[("vary", &vary)]), &request) {
                prop_assert!(selection.fits(&request));
            }
        }
    }
}
