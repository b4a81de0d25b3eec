//! Differentiated services code points and their names.

use std::fmt;
use std::str::FromStr;

use bentpipe_units::ParseQuantityError;

/// Differentiated services code point: six bits that request a treatment (RFC 2474).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dscp(u8);

impl Dscp {
    /// Default forwarding (RFC 2474).
    pub const DF: Self = Self(0);
    /// Lower effort (RFC 8622).
    pub const LE: Self = Self(1);
    /// Assured forwarding, fourth class, medium drop precedence (RFC 2597).
    pub const AF42: Self = Self(36);
    /// Expedited forwarding (RFC 3246).
    pub const EF: Self = Self(46);
    /// Network control (RFC 4594 §3.2).
    pub const CS6: Self = Self(48);

    /// Creates a code point. Returns `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// Code point in an IPv4 type-of-service or IPv6 traffic-class byte. The two low bits are
    /// ECN's.
    pub const fn from_traffic_class(byte: u8) -> Self {
        Self(byte >> 2)
    }

    /// Traffic-class byte with these six bits and the two ECN bits of `ecn`.
    pub const fn traffic_class(self, ecn: u8) -> u8 {
        self.0 << 2 | ecn & 3
    }

    /// Numeric value, 0 to 63.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Parses `EF`, `LE`, `DF` or `BE`, `VA` (voice-admit, RFC 5865), `CS0` to `CS7`, `AF11` to `AF43`,
/// or a number from 0 to 63.
impl FromStr for Dscp {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why: &str| ParseQuantityError {
            written: text.to_owned(),
            what: "a DSCP",
            why: why.to_owned(),
            example: "AF42",
        };
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let value = text.parse().ok().and_then(Self::new);
            return value.ok_or_else(|| error("a code point is a number from 0 to 63"));
        }
        let named = |value: &u8| Self(*value).name().is_some_and(|name| name.matches(text));
        let alias = match text.to_ascii_uppercase().as_str() {
            "CS0" | "BE" => Some(0),
            _ => None,
        };
        let value = alias.or_else(|| (0..64).find(named));
        value.map(Self).ok_or_else(|| error("there is no code point of this name"))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(Name::Whole(name)) => f.pad(name),
            Some(name) => f.pad(&name.to_string()),
            None => self.0.fmt(f),
        }
    }
}

/// Parsed name of a code point.
enum Name {
    Whole(&'static str),
    Selector(u8),
    Assured { class: u8, drop: u8 },
}

impl Name {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Whole(name) => name.eq_ignore_ascii_case(text),
            _ => self.to_string().eq_ignore_ascii_case(text),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(name) => f.write_str(name),
            Self::Selector(class) => write!(f, "CS{class}"),
            Self::Assured { class, drop } => write!(f, "AF{class}{drop}"),
        }
    }
}

impl Dscp {
    fn name(self) -> Option<Name> {
        // RFC 2597: in AFxy, x is the three high bits, y the next two, and the last bit is zero.
        let (class, drop) = (self.0 >> 3, self.0 >> 1 & 3);
        match self.0 {
            0 => Some(Name::Whole("DF")),
            1 => Some(Name::Whole("LE")),
            44 => Some(Name::Whole("VA")),
            46 => Some(Name::Whole("EF")),
            value if value & 7 == 0 => Some(Name::Selector(class)),
            value if value & 1 == 0 && (1..=4).contains(&class) => {
                Some(Name::Assured { class, drop })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_code_points_round_trip() {
        for value in 0..64 {
            let dscp = Dscp::new(value).unwrap();
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
            assert_eq!(value.to_string().parse(), Ok(dscp));
            assert_eq!(Dscp::from_traffic_class(dscp.traffic_class(3)), dscp);
        }
        assert_eq!(Dscp::new(64), None);
    }

    #[test]
    fn names_match_the_rfcs() {
        let names = [("EF", 46), ("af42", 36), ("AF11", 10), ("CS1", 8), ("CS6", 48), ("le", 1)];
        for (name, value) in names {
            assert_eq!(name.parse(), Ok(Dscp(value)));
        }
        for zero in ["CS0", "DF", "BE", "0"] {
            assert_eq!(zero.parse(), Ok(Dscp::DF));
        }
        assert_eq!([Dscp(36), Dscp(8), Dscp(2)].map(|dscp| dscp.to_string()), ["AF42", "CS1", "2"]);
    }

    #[test]
    fn errors_suggest_an_example() {
        for wrong in ["64", "300", "-1", "", "AF44", "AF50", "CS8", "EFF"] {
            let error = wrong.parse::<Dscp>().unwrap_err().to_string();
            assert!(error.contains("AF42"), "{wrong}: {error}");
        }
    }
}
