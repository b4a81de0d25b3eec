//! Cache-Control (RFC 9111 §5.2) and CDN-Cache-Control (RFC 9213). Malformed input allows less,
//! never more.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

/// Field for caches that act for origins (RFC 9213 §3.1). This cache does so for its passengers.
const CDN_CACHE_CONTROL: &str = "cdn-cache-control";

/// Value of `delta-seconds` that means "for ever" (RFC 9111 §1.2.2).
const MAX_DELTA_SECONDS: u64 = 1 << 31;

/// Returns `true` if a request accepts only a stored response (RFC 9111 §5.2.1.7).
pub fn is_only_if_cached(request: &HeaderMap) -> bool {
    Directives::of_request(request).only_if_cached
}

/// Cache directives of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directives {
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`. The form with field names counts as the plain one.
    pub no_cache: bool,
    /// `private`. The form with field names counts as the plain one.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`: the response is never used stale.
    pub must_revalidate: bool,
    /// `proxy-revalidate`: `must-revalidate` for shared caches.
    pub proxy_revalidate: bool,
    /// `must-understand`: only a cache that knows the status may store the response.
    pub must_understand: bool,
    /// `only-if-cached`, in requests.
    pub only_if_cached: bool,
    /// `max-age`: the freshness lifetime, or the maximum age in requests. Seconds.
    pub max_age: Option<u64>,
    /// `s-maxage`: replaces `max_age` for shared caches. Seconds.
    pub s_maxage: Option<u64>,
    /// `min-fresh` in requests: the minimum remaining freshness. Seconds.
    pub min_fresh: Option<u64>,
    /// `max-stale` in requests: the maximum staleness. Seconds.
    pub max_stale: Option<u64>,
    /// `stale-while-revalidate` (RFC 5861 §3). Seconds.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` (RFC 5861 §4). Seconds.
    pub stale_if_error: Option<u64>,
    /// `true` if the directives come from a targeted field. Cache-Control and Expires are then
    /// ignored (RFC 9213 §2.2).
    pub is_targeted: bool,
}

impl Directives {
    /// Directives of a response: those of the targeted field if it is valid and not empty,
    /// otherwise those of Cache-Control.
    pub fn of_response(headers: &HeaderMap) -> Self {
        Self::targeted(headers).unwrap_or_else(|| Self::of_cache_control(headers))
    }

    /// The targeted field is a Dictionary of RFC 8941. An invalid or empty one is ignored (RFC 9213
    /// §2).
    fn targeted(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(CDN_CACHE_CONTROL).iter().map(http::HeaderValue::as_bytes);
        let lines: Vec<&[u8]> = lines.collect();
        let all = lines.join(&b", "[..]);
        let dictionary: Dictionary = Parser::new(&all)
            .parse()
            .ok()
            .filter(|dictionary: &Dictionary| !dictionary.is_empty())?;
        let mut directives = Self { is_targeted: true, ..Self::default() };
        for (name, value) in &dictionary {
            let value = match value {
                ListEntry::Item(Item { bare_item: BareItem::Boolean(false), .. }) => continue,
                ListEntry::Item(Item { bare_item: BareItem::Boolean(true), .. }) => None,
                ListEntry::Item(Item { bare_item: BareItem::Integer(value), .. }) => {
                    Some(value.to_string().into_bytes())
                }
                // Not a number of seconds: directives that need one count as zero.
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

    /// Directives of a request. `Pragma: no-cache` counts if there is no Cache-Control (§5.4).
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

    /// Returns `true` if the response may not be used stale in any case.
    pub fn never_stale(&self) -> bool {
        // `s-maxage` implies `proxy-revalidate` (§5.2.2.10).
        self.must_revalidate || self.proxy_revalidate || self.no_cache || self.s_maxage.is_some()
    }

    fn read(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let Some((name, value, rest)) = directive(text) else {
                // An unterminated quote may have swallowed any restriction.
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
                set(
                    &mut self.min_fresh,
                    seconds(value).unwrap_or(MAX_DELTA_SECONDS),
                    MAX_DELTA_SECONDS,
                );
            }
            // Without a value, any staleness is allowed (§5.2.1.2).
            b"max-stale" if value.is_none() => set(&mut self.max_stale, MAX_DELTA_SECONDS, 0),
            b"max-stale" => set(&mut self.max_stale, seconds(value).unwrap_or(0), 0),
            b"stale-while-revalidate" => {
                set(&mut self.stale_while_revalidate, seconds(value).unwrap_or(0), 0);
            }
            b"stale-if-error" => set(&mut self.stale_if_error, seconds(value).unwrap_or(0), 0),
            _ => {}
        }
    }
}

/// Sets a directive. Two different values count as an invalid one (§4.2.1), which is replaced by
/// `strict`.
fn set(slot: &mut Option<u64>, value: u64, strict: u64) {
    *slot = Some(if slot.is_some_and(|before| before != value) { strict } else { value });
}

/// Parses `delta-seconds` (§1.2.2). A number that is too large counts as 2^31.
pub(crate) fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let value = value.filter(|value| !value.is_empty() && value.iter().all(u8::is_ascii_digit))?;
    let text = std::str::from_utf8(value).ok()?;
    Some(text.parse().map_or(MAX_DELTA_SECONDS, |seconds: u64| seconds.min(MAX_DELTA_SECONDS)))
}

type Directive<'a> = (&'a [u8], Option<Vec<u8>>, &'a [u8]);

/// Splits off the first directive of a list. Returns `None` if a quote is not terminated.
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
    fn names_ignore_case_and_values_may_be_quoted() {
        let directives =
            read(&["No-Store, MAX-AGE=\"60\" ,S-MaxAge = 5", "stale-while-revalidate=7"]);
        assert!(directives.no_store);
        assert_eq!(
            (directives.max_age, directives.s_maxage, directives.stale_while_revalidate),
            (Some(60), Some(5), Some(7))
        );
    }

    #[test]
    fn a_quoted_comma_is_not_a_separator() {
        let directives = read(&["x=\"a, no-store, b\\\", no-cache\", private=\"set-cookie, x\""]);
        assert!(!directives.no_store && !directives.no_cache && directives.private);
    }

    #[test]
    fn an_unterminated_quote_forbids_storing() {
        assert!(read(&["max-age=60, x=\"y, public"]).no_store);
    }

    #[test]
    fn an_invalid_number_of_seconds_means_stale() {
        for wrong in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=x"] {
            assert_eq!(read(&[wrong]).max_age, Some(0), "{wrong}");
        }
        assert_eq!(read(&["max-age=60, max-age=61"]).max_age, Some(0));
        assert_eq!(read(&["max-age=60", "max-age=60"]).max_age, Some(60));
        assert_eq!(read(&["max-age=99999999999999999999999"]).max_age, Some(MAX_DELTA_SECONDS));
        assert_eq!(read(&["max-stale"]).max_stale, Some(MAX_DELTA_SECONDS));
    }

    #[test]
    fn a_valid_targeted_field_replaces_cache_control() {
        let of = |lines: &[&'static str]| {
            let mut map = HeaderMap::new();
            map.append(CACHE_CONTROL, HeaderValue::from_static("max-age=5, private"));
            for line in lines {
                map.append(CDN_CACHE_CONTROL, HeaderValue::from_static(line));
            }
            Directives::of_response(&map)
        };
        let directives = of(&["max-age=60;x=1, must-revalidate", "s-maxage=70, public=?0"]);
        assert_eq!(
            (directives.max_age, directives.s_maxage, directives.is_targeted),
            (Some(60), Some(70), true)
        );
        assert!(directives.must_revalidate && !directives.private && !directives.public);
        assert!(of(&["no-store"]).no_store && of(&["private=\"x\""]).private);
        for strict in ["max-age=\"60\"", "max-age", "max-age=-1", "max-age=1.5", "max-age=(1)"] {
            assert_eq!(of(&[strict]).max_age, Some(0), "{strict}");
        }
        for ignored in ["", " ", "max-age=60,", "Max-Age=60", "max-age=60 private", "a b"] {
            assert_eq!((of(&[ignored]).max_age, of(&[ignored]).is_targeted), (Some(5), false));
        }
        // It is for responses only.
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
        fn any_bytes_can_be_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Directives::default().read(&bytes);
        }

        #[test]
        fn no_store_is_found_in_any_position(
            before in "[a-z]{0,5}(=\"[^\"\\\\]{0,5}\")?",
            after in "[a-z]{0,5}(=[0-9]{0,5})?",
        ) {
            let mut directives = Directives::default();
            directives.read(format!("{before},no-STORE , {after}").as_bytes());
            prop_assert!(directives.no_store);
        }
    }
}
