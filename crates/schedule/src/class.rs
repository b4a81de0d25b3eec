//! The traffic classes, as Rural-PAWS and RFC 8622/4594 name them.

use std::fmt;

/// What a flow is to the network: its place in the hierarchy and, on a report, its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Class {
    /// The network's own signalling and what must never wait (EF).
    Network = 0,
    /// Whitelisted public services and the operator's own traffic (AF42).
    Assured = 1,
    /// Everything that asks for nothing special.
    #[default]
    BestEffort = 2,
    /// What may use only what is left over (LE, DSCP 1), above a small floor.
    LowerEffort = 3,
}

impl Class {
    /// Every class, most favoured first.
    pub const ALL: [Self; 4] = [Self::Network, Self::Assured, Self::BestEffort, Self::LowerEffort];

    /// The byte that stands for this class on the wire.
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The class a wire byte stands for.
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Network),
            1 => Some(Self::Assured),
            2 => Some(Self::BestEffort),
            3 => Some(Self::LowerEffort),
            _ => None,
        }
    }

    /// The name used in configs, headers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Assured => "assured",
            Self::BestEffort => "best-effort",
            Self::LowerEffort => "lower-effort",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
                None => assert!(byte > 3),
            }
        }
        assert!(Class::ALL.is_sorted());
    }
}
