//! Traffic classes, named as in Rural-PAWS and RFC 8622/4594.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::Dscp;

/// Traffic class of a flow: its rank in the hierarchy and its name in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Class {
    /// Operator and airspace traffic, above all passengers (CS6).
    Operator = 0,
    /// Signalling and traffic that must never wait, passengers' included (EF).
    Network = 1,
    /// Whitelisted public services (AF42).
    Assured = 2,
    /// Traffic without special requirements.
    #[default]
    BestEffort = 3,
    /// Traffic that uses only what other classes leave, above a small floor (LE).
    LowerEffort = 4,
}

impl Class {
    /// All classes, highest priority first.
    pub const ALL: [Self; 5] =
        [Self::Operator, Self::Network, Self::Assured, Self::BestEffort, Self::LowerEffort];

    /// Wire encoding.
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Decodes a wire byte.
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Operator),
            1 => Some(Self::Network),
            2 => Some(Self::Assured),
            3 => Some(Self::BestEffort),
            4 => Some(Self::LowerEffort),
            _ => None,
        }
    }

    /// Name in configs, headers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Network => "network",
            Self::Assured => "assured",
            Self::BestEffort => "best-effort",
            Self::LowerEffort => "lower-effort",
        }
    }

    /// DSCP of packets of this class: CS6, EF, AF42, default, LE.
    pub const fn dscp(self) -> Dscp {
        match self {
            Self::Operator => Dscp::CS6,
            Self::Network => Dscp::EF,
            Self::Assured => Dscp::AF42,
            Self::BestEffort => Dscp::DF,
            Self::LowerEffort => Dscp::LE,
        }
    }

    /// Class requested by a DSCP mark, or `None` if the mark requests nothing special. Accepts the
    /// marks of [`Self::dscp`] and their equivalents:
    ///
    /// - CS7 as CS6 (RFC 4594 §3.2)
    /// - voice-admit as EF (RFC 5865)
    /// - the other drop precedences of AF4 (RFC 2597)
    /// - CS1, which meant LE before RFC 8622
    pub fn of_dscp(dscp: Dscp) -> Option<Self> {
        match dscp.get() {
            48 | 56 => Some(Self::Operator),
            44 | 46 => Some(Self::Network),
            34 | 36 | 38 => Some(Self::Assured),
            1 | 8 => Some(Self::LowerEffort),
            _ => None,
        }
    }

    /// Index of this class in [`ALL`](Self::ALL) and in every per-class array.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One `T` per class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerClass<T>([T; Class::ALL.len()]);

impl<T> PerClass<T> {
    /// Builds one value per class with `make`.
    pub fn new(make: impl FnMut(Class) -> T) -> Self {
        Self(Class::ALL.map(make))
    }

    /// All values, highest priority class first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Class, &T)> {
        Class::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Class> for PerClass<T> {
    type Output = T;

    fn index(&self, class: Class) -> &T {
        &self.0[class.index()]
    }
}

impl<T> IndexMut<Class> for PerClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_bytes_read_back() {
        for byte in 0..=u8::MAX {
            match Class::from_u8(byte) {
                Some(class) => assert_eq!(class.to_u8(), byte),
                None => assert!(byte > 4),
            }
        }
        assert!(Class::ALL.is_sorted());
    }

    #[test]
    fn marks_are_those_of_the_rfcs() {
        let marks = Class::ALL.map(|class| class.dscp().to_string());
        assert_eq!(marks, ["CS6", "EF", "AF42", "DF", "LE"]);
        for class in Class::ALL.into_iter().filter(|class| *class != Class::BestEffort) {
            assert_eq!(Class::of_dscp(class.dscp()), Some(class));
        }
        let requested = |name: &str| Class::of_dscp(name.parse().unwrap());
        assert_eq!([requested("DF"), requested("AF31"), requested("CS5")], [None; 3]);
        assert_eq!(
            [requested("VA"), requested("CS1")],
            [Some(Class::Network), Some(Class::LowerEffort)]
        );
    }
}
