//! AEADs for data packets, and the choice between them.
//!
//! Every end has ChaCha20-Poly1305. AES-256-GCM costs a quarter of it if the processor has
//! instructions for it, so that two ends use it if both have these.

/// Algorithm of data packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aead {
    /// ChaCha20-Poly1305 (RFC 8439).
    #[default]
    ChaCha20Poly1305,
    /// AES-256-GCM (RFC 5116, section 5.2).
    Aes256Gcm,
}

/// Algorithms that an end offers in addition to ChaCha20-Poly1305, as a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Aeads(u8);

const AES_256_GCM: u8 = 1;

impl Aead {
    /// Byte in payload 2.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::ChaCha20Poly1305 => 0,
            Self::Aes256Gcm => AES_256_GCM,
        }
    }

    /// Returns the algorithm of a byte of payload 2.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::ChaCha20Poly1305),
            AES_256_GCM => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// Maximum number of packets sealed with one key. New keys are requested at half of it.
    ///
    /// - AES-256-GCM: 2^35 / 2^10, the bound of RFC 9001, appendix B.1, for packets of up to 2^14
    ///   bytes; 5 minutes of packets of 1,500 bytes at 1 Gbit/s.
    /// - ChaCha20-Poly1305: far below the limit of RFC 9001, section 6.6; 14 hours of packets of
    ///   1,500 bytes at 1 Gbit/s.
    pub const fn max_packets_per_key(self) -> u64 {
        match self {
            Self::ChaCha20Poly1305 => 1 << 32,
            Self::Aes256Gcm => 1 << 25,
        }
    }
}

impl Aeads {
    /// Returns the algorithms for which this machine has instructions.
    pub fn of_this_machine() -> Self {
        if has_aes() { Self::all() } else { Self::default() }
    }

    /// Returns every algorithm.
    pub const fn all() -> Self {
        Self(AES_256_GCM)
    }

    /// Byte in payload 1.
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// Returns the algorithms of a byte of payload 1. Unknown bits are ignored.
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte & AES_256_GCM)
    }

    /// Returns `true` if `aead` is offered.
    pub const fn offers(self, aead: Aead) -> bool {
        self.0 & aead.to_byte() == aead.to_byte()
    }

    /// Returns the best algorithm that both ends offer.
    pub const fn best_with(self, other: Self) -> Aead {
        if self.offers(Aead::Aes256Gcm) && other.offers(Aead::Aes256Gcm) {
            Aead::Aes256Gcm
        } else {
            Aead::ChaCha20Poly1305
        }
    }
}

/// Returns `true` if the processor has instructions for AES and for carry-less multiplication.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq")
}

/// Returns `true` if the processor has instructions for AES and for carry-less multiplication.
#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
const fn has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_is_chosen_only_if_both_ends_offer_it() {
        let (none, all) = (Aeads::default(), Aeads::all());
        assert_eq!(all.best_with(all), Aead::Aes256Gcm);
        for (one, other) in [(none, none), (none, all), (all, none)] {
            assert_eq!(one.best_with(other), Aead::ChaCha20Poly1305);
        }
        assert!(none.offers(Aead::ChaCha20Poly1305) && !none.offers(Aead::Aes256Gcm));
    }

    #[test]
    fn unknown_algorithms_are_neither_offered_nor_accepted() {
        assert_eq!(Aeads::from_byte(0xff), Aeads::all());
        assert_eq!(Aeads::from_byte(0xfe), Aeads::default());
        for aead in [Aead::ChaCha20Poly1305, Aead::Aes256Gcm] {
            assert_eq!(Aead::from_byte(aead.to_byte()), Some(aead));
        }
        assert_eq!(Aead::from_byte(2), None);
    }
}
