//! Byte ranges (RFC 9110 §14).

use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};

/// The range that a Range field requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeRequest {
    /// The whole object. Also the fallback for several ranges and for other units, because the
    /// whole object is always a valid response (§14.2).
    Whole,
    /// From this byte to the second one (inclusive), or to the end.
    From(u64, Option<u64>),
    /// The last bytes of the object.
    Last(u64),
}

/// The part of an object to respond with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// The whole object, with 200.
    Whole,
    /// These bytes, with 206.
    Part {
        /// First byte.
        first: u64,
        /// Last byte, inclusive.
        last: u64,
    },
    /// Nothing, with 416: the range starts after the end.
    Beyond,
}

impl RangeRequest {
    /// Parses the range that `request` asks for.
    pub fn of(request: &HeaderMap) -> Self {
        let mut values = request.get_all(RANGE).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Self::Whole };
        value.to_str().ok().and_then(parse).unwrap_or(Self::Whole)
    }

    /// Applies the range to an object of `length` bytes.
    pub fn within(self, length: u64) -> Slice {
        match self {
            Self::Whole => Slice::Whole,
            Self::From(first, _) if first >= length => Slice::Beyond,
            Self::From(first, last) => {
                let end = length - 1;
                Slice::Part { first, last: last.map_or(end, |last| last.min(end)) }
            }
            Self::Last(0) => Slice::Beyond,
            Self::Last(_) if length == 0 => Slice::Beyond,
            Self::Last(bytes) => {
                Slice::Part { first: length.saturating_sub(bytes), last: length - 1 }
            }
        }
    }
}

/// Removes Range and If-Range.
pub fn without_range(headers: &mut HeaderMap) {
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

fn parse(value: &str) -> Option<RangeRequest> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    match (first, last) {
        ("", last) => Some(RangeRequest::Last(number(last)?)),
        (first, "") => Some(RangeRequest::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(RangeRequest::From(first, Some(last)))
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn slice(range: &str, length: u64) -> Slice {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).unwrap())]);
        RangeRequest::of(&headers).within(length)
    }

    fn part(first: u64, last: u64) -> Slice {
        Slice::Part { first, last }
    }

    #[test]
    fn a_single_byte_range_is_parsed() {
        assert_eq!(slice("bytes=0-0", 10), part(0, 0));
        assert_eq!(slice("bytes=2-", 10), part(2, 9));
        assert_eq!(slice("Bytes=5-99999999", 10), part(5, 9));
        assert_eq!(slice("bytes=-3", 10), part(7, 9));
        assert_eq!(slice("bytes=-30", 10), part(0, 9));
    }

    #[test]
    fn ranges_after_the_end_are_416() {
        for range in ["bytes=10-", "bytes=10-11", "bytes=-0"] {
            assert_eq!(slice(range, 10), Slice::Beyond, "{range}");
        }
        assert_eq!(slice("bytes=0-", 0), Slice::Beyond);
        assert_eq!(slice("bytes=-1", 0), Slice::Beyond);
    }

    #[test]
    fn all_other_ranges_get_the_whole_object() {
        for range in [
            "bytes=1-2,4-5",
            "lines=1-2",
            "bytes=3-2",
            "bytes=+1-2",
            "bytes=a-",
            "bytes",
            "bytes=-",
        ] {
            assert_eq!(slice(range, 10), Slice::Whole, "{range}");
        }
        assert_eq!(slice("bytes=99999999999999999999999-", 10), Slice::Whole);
    }

    proptest! {
        #[test]
        fn slices_are_within_the_object(range in "bytes=[0-9]{0,12}-[0-9]{0,12}", length in 0u64..1 << 40) {
            if let Slice::Part { first, last } = slice(&range, length) {
                prop_assert!(first <= last && last < length);
            }
        }
    }
}
