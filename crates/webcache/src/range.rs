//! Parts of a whole object (RFC 9110 §14).

use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};

/// Part that a Range field requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// All of it, or what no cache has to understand: several ranges, another unit. All of it is
    /// always an answer (§14.2).
    Whole,
    /// From this byte on, up to and with the other.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

/// Part to answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// All of it, with 200.
    Whole,
    /// These bytes, the last one included, with 206.
    Part {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// 416: the object ends before.
    Beyond,
}

impl Asked {
    /// Part that `request` asks for.
    pub fn of(request: &HeaderMap) -> Self {
        let mut values = request.get_all(RANGE).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Self::Whole };
        value.to_str().ok().and_then(parse).unwrap_or(Self::Whole)
    }

    /// Part of an object of `length` bytes.
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

/// Removes what asks for a part.
pub fn without_range(headers: &mut HeaderMap) {
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

fn parse(value: &str) -> Option<Asked> {
    let (unit, set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    match (first, last) {
        ("", last) => Some(Asked::Last(number(last)?)),
        (first, "") => Some(Asked::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Asked::From(first, Some(last)))
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
        Asked::of(&headers).within(length)
    }

    fn part(first: u64, last: u64) -> Slice {
        Slice::Part { first, last }
    }

    #[test]
    fn one_range_of_bytes() {
        assert_eq!(slice("bytes=0-0", 10), part(0, 0));
        assert_eq!(slice("bytes=2-", 10), part(2, 9));
        assert_eq!(slice("Bytes=5-99999999", 10), part(5, 9));
        assert_eq!(slice("bytes=-3", 10), part(7, 9));
        assert_eq!(slice("bytes=-30", 10), part(0, 9));
    }

    #[test]
    fn beyond_the_end() {
        for range in ["bytes=10-", "bytes=10-11", "bytes=-0"] {
            assert_eq!(slice(range, 10), Slice::Beyond, "{range}");
        }
        assert_eq!(slice("bytes=0-", 0), Slice::Beyond);
        assert_eq!(slice("bytes=-1", 0), Slice::Beyond);
    }

    #[test]
    fn all_else_is_answered_with_the_whole() {
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
        fn parts_lie_within(range in "bytes=[0-9]{0,12}-[0-9]{0,12}", length in 0u64..1 << 40) {
            if let Slice::Part { first, last } = slice(&range, length) {
                prop_assert!(first <= last && last < length);
            }
        }
    }
}
