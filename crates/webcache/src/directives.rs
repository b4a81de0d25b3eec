//! Cache-Control (RFC 9111 §5.2) and CDN-Cache-Control (RFC 9213), read so that what is malformed allows less.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

/// Field for caches that answer for origins (RFC 9213 §3.1), which this one does for its passengers.
const CDN_CACHE_CONTROL: &str = "cdn-cache-control";

/// RFC 9111 §1.2.2: more seconds than these mean "for ever".
const MOST_SECONDS: u64 = 1 << 31;

/// Tells if a request wants what is stored or nothing (RFC 9111 §5.2.1.7).
pub fn is_only_if_cached(request: &HeaderMap) -> bool {
    Directives::of_request(request).only_if_cached
}

/// Cache directives of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directives {
    /// Nothing of it is kept.
    pub no_store: bool,
    /// It is used only after asking the origin. The form with field names counts as the plain one.
    pub no_cache: bool,
    /// It is for one person. The form with field names counts as the plain one.
    pub private: bool,
    /// It is for everybody.
    pub public: bool,
    /// It is never used stale.
    pub must_revalidate: bool,
    /// The same, said to shared caches.
    pub proxy_revalidate: bool,
    /// It is kept only by caches that know its status.
    pub must_understand: bool,
    /// In requests: the origin is not to be asked.
    pub only_if_cached: bool,
    /// Seconds that it is fresh; in requests, the most that it may be old.
    pub max_age: Option<u64>,
    /// The same for shared caches, instead.
    pub s_maxage: Option<u64>,
    /// In requests: how many seconds it must still be fresh.
    pub min_fresh: Option<u64>,
    /// In requests: how many seconds it may be stale.
    pub max_stale: Option<u64>,
    /// Seconds for which it may be used stale while it is validated (RFC 5861 §3).
    pub stale_while_revalidate: Option<u64>,
    /// Seconds for which it may be used stale when the origin fails (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
    /// They come from a targeted field: Cache-Control and Expires say nothing to this cache (RFC 9213 §2.2).
    pub is_targeted: bool,
}

impl Directives {
    /// Directives of a response: its targeted field, if that is valid and not empty, or
    /// Cache-Control.
    pub fn of_response(headers: &HeaderMap) -> Self {
        Self::targeted(headers).unwrap_or_else(|| Self::of_cache_control(headers))
    }

    /// RFC 9213 §2: the field is a Dictionary of RFC 8941, and one that is none, or empty, is ignored.
    fn targeted(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(CDN_CACHE_CONTROL).iter().map(http::HeaderValue::as_bytes);
        let lines: Vec<&[u8]> = lines.collect();
        let all = lines.join(&b", "[..]);
        let said: Dictionary =
            Parser::new(&all).parse().ok().filter(|said: &Dictionary| !said.is_empty())?;
        let mut directives = Self { is_targeted: true, ..Self::default() };
        for (name, value) in &said {
            let value = match value {
                ListEntry::Item(Item { bare_item: BareItem::Boolean(false), .. }) => continue,
                ListEntry::Item(Item { bare_item: BareItem::Boolean(true), .. }) => None,
                ListEntry::Item(Item { bare_item: BareItem::Integer(value), .. }) => {
                    Some(value.to_string().into_bytes())
                }
                // No number of seconds: what wants one allows nothing.
                _ => Some(b"-".to_vec()),
            };
            directives.note(name.as_str().as_bytes(), value.as_deref());
        }
        Some(directives)
    }

    fn of_cache_control(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        for value in headers.get_all(CACHE_CONTROL) {
            directives.read(value.as_bytes());
        }
        directives
    }

    /// Directives of a request; `Pragma: no-cache` counts if there is no Cache-Control (§5.4).
    pub fn of_request(headers: &HeaderMap) -> Self {
        let mut directives = Self::of_cache_control(headers);
        if !headers.contains_key(CACHE_CONTROL) {
            let pragma = headers.get_all(PRAGMA).iter();
            directives.no_cache = pragma
                .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
                .any(|one| one.trim_ascii().eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    /// Returns `true` if it may never be used stale, whoever allows it.
    pub fn never_stale(&self) -> bool {
        // §5.2.2.10: for shared caches s-maxage says proxy-revalidate too.
        self.must_revalidate || self.proxy_revalidate || self.no_cache || self.s_maxage.is_some()
    }

    fn read(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let Some((name, value, rest)) = directive(text) else {
                // A quote without its end: whatever it swallowed may have forbidden anything.
                self.no_store = true;
                return;
            };
            self.note(&name.to_ascii_lowercase(), value.as_deref());
            text = rest;
        }
    }

    fn note(&mut self, name: &[u8], value: Option<&[u8]>) {
        match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => set(&mut self.max_age, seconds(value).unwrap_or(0), 0),
            b"s-maxage" => set(&mut self.s_maxage, seconds(value).unwrap_or(0), 0),
            b"min-fresh" => {
                set(&mut self.min_fresh, seconds(value).unwrap_or(MOST_SECONDS), MOST_SECONDS);
            }
            // Without a value, however stale (§5.2.1.2).
            b"max-stale" if value.is_none() => set(&mut self.max_stale, MOST_SECONDS, 0),
            b"max-stale" => set(&mut self.max_stale, seconds(value).unwrap_or(0), 0),
            b"stale-while-revalidate" => {
                set(&mut self.stale_while_revalidate, seconds(value).unwrap_or(0), 0);
            }
            b"stale-if-error" => set(&mut self.stale_if_error, seconds(value).unwrap_or(0), 0),
            _ => {}
        }
    }
}

/// Two that disagree are as invalid as a value that is no number (§4.2.1): `strict` is what they
/// count for.
fn set(slot: &mut Option<u64>, value: u64, strict: u64) {
    *slot = Some(if slot.is_some_and(|before| before != value) { strict } else { value });
}

/// Delta-seconds (§1.2.2).
fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let value = value.filter(|value| !value.is_empty() && value.iter().all(u8::is_ascii_digit))?;
    let text = std::str::from_utf8(value).ok()?;
    Some(text.parse().map_or(MOST_SECONDS, |seconds: u64| seconds.min(MOST_SECONDS)))
}

type Directive<'a> = (&'a [u8], Option<Vec<u8>>, &'a [u8]);

/// The first directive of a list, and what follows its comma; `None` where a quote does not end.
fn directive(text: &[u8]) -> Option<Directive<'_>> {
    let (mut quoted, mut escaped) = (false, false);
    let mut end = text.len();
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    if quoted {
        return None;
    }
    let (one, rest) = text.split_at(end);
    let rest = rest.get(1..).unwrap_or_default();
    let equals = one.iter().position(|byte| *byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&one[..at], Some(unquoted(one[at + 1..].trim_ascii()))),
        None => (one, None),
    };
    Some((name.trim_ascii(), value, rest))
}

fn unquoted(value: &[u8]) -> Vec<u8> {
    let Some(inner) = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")) else {
        return value.to_vec();
    };
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn read(lines: &[&str]) -> Directives {
        let headers = lines
            .iter()
            .map(|line| (CACHE_CONTROL, HeaderValue::from_bytes(line.as_bytes()).unwrap()));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        Directives::of_response(&map)
    }

    #[test]
    fn names_have_no_case_and_values_may_be_quoted() {
        let said = read(&["No-Store, MAX-AGE=\"60\" ,S-MaxAge = 5", "stale-while-revalidate=7"]);
        assert!(said.no_store);
        assert_eq!(
            (said.max_age, said.s_maxage, said.stale_while_revalidate),
            (Some(60), Some(5), Some(7))
        );
    }

    #[test]
    fn a_comma_in_quotes_separates_nothing() {
        let said = read(&["x=\"a, no-store, b\\\", no-cache\", private=\"set-cookie, x\""]);
        assert!(!said.no_store && !said.no_cache && said.private);
    }

    #[test]
    fn an_open_quote_keeps_nothing() {
        assert!(read(&["max-age=60, x=\"y, public"]).no_store);
    }

    #[test]
    fn what_is_no_number_of_seconds_is_stale() {
        for wrong in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=x"] {
            assert_eq!(read(&[wrong]).max_age, Some(0), "{wrong}");
        }
        assert_eq!(read(&["max-age=60, max-age=61"]).max_age, Some(0));
        assert_eq!(read(&["max-age=60", "max-age=60"]).max_age, Some(60));
        assert_eq!(read(&["max-age=99999999999999999999999"]).max_age, Some(MOST_SECONDS));
        assert_eq!(read(&["max-stale"]).max_stale, Some(MOST_SECONDS));
    }

    #[test]
    fn a_targeted_field_counts_alone_if_it_is_valid() {
        let of = |lines: &[&'static str]| {
            let mut map = HeaderMap::new();
            map.append(CACHE_CONTROL, HeaderValue::from_static("max-age=5, private"));
            for line in lines {
                map.append(CDN_CACHE_CONTROL, HeaderValue::from_static(line));
            }
            Directives::of_response(&map)
        };
        let said = of(&["max-age=60;x=1, must-revalidate", "s-maxage=70, public=?0"]);
        assert_eq!((said.max_age, said.s_maxage, said.is_targeted), (Some(60), Some(70), true));
        assert!(said.must_revalidate && !said.private && !said.public);
        assert!(of(&["no-store"]).no_store && of(&["private=\"x\""]).private);
        for strict in ["max-age=\"60\"", "max-age", "max-age=-1", "max-age=1.5", "max-age=(1)"] {
            assert_eq!(of(&[strict]).max_age, Some(0), "{strict}");
        }
        for ignored in ["", " ", "max-age=60,", "Max-Age=60", "max-age=60 private", "a b"] {
            assert_eq!((of(&[ignored]).max_age, of(&[ignored]).is_targeted), (Some(5), false));
        }
        // It is for answers.
        let mut request = HeaderMap::new();
        request.insert(CDN_CACHE_CONTROL, HeaderValue::from_static("no-store"));
        assert!(!Directives::of_request(&request).no_store);
    }

    #[test]
    fn pragma_counts_without_cache_control() {
        let of = |text: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in text {
                map.append(*name, HeaderValue::from_static(value));
            }
            Directives::of_request(&map).no_cache
        };
        assert!(of(&[("pragma", "x, No-Cache")]));
        assert!(!of(&[("pragma", "no-cache"), ("cache-control", "max-age=5")]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Directives::default().read(&bytes);
        }

        #[test]
        fn no_store_is_seen_wherever_it_stands(
            before in "[a-z]{0,5}(=\"[^\"\\\\]{0,5}\")?",
            after in "[a-z]{0,5}(=[0-9]{0,5})?",
        ) {
            let mut said = Directives::default();
            said.read(format!("{before},no-STORE , {after}").as_bytes());
            prop_assert!(said.no_store);
        }
    }
}
