//! Multiply-add of byte slices, which is all the work there is: `destination ^= Σ factor · source`.
//!
//! Many sources are added in one pass, so that their sum stays in registers meanwhile. Which kernel
//! does it is decided when the program runs, by what the processor has.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod nibbles;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tiles;

/// A way to multiply and add that this processor has. All give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// GFNI with AVX-512.
    Gfni,
    /// GFNI with AVX2.
    Gfni256,
    /// AVX2.
    Avx2,
    /// NEON.
    Neon,
    /// Exclusive ors and shifts of words, on anything.
    Portable,
}

/// One summand: a multiple of some bytes. Behind its end a source counts as zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct Term<'a> {
    /// Factor by which the bytes are multiplied.
    pub factor: u8,
    /// The bytes.
    pub source: &'a [u8],
}

impl Kernel {
    /// The fastest that this processor has.
    pub fn best() -> Self {
        Self::every().next().unwrap_or(Self(Kind::Portable))
    }

    /// All that this processor has, the fastest first.
    pub fn every() -> impl Iterator<Item = Self> {
        let all = [Kind::Gfni, Kind::Gfni256, Kind::Avx2, Kind::Neon, Kind::Portable];
        all.into_iter().filter(|kind| kind.is_here()).map(Self)
    }

    /// Name of the kernel: `gfni`, `gfni-256`, `avx2`, `neon` or `portable`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Gfni => "gfni",
            Kind::Gfni256 => "gfni-256",
            Kind::Avx2 => "avx2",
            Kind::Neon => "neon",
            Kind::Portable => "portable",
        }
    }

    /// Adds every term to `destination`. What a source has beyond its end is left out.
    pub fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        self.0.add_multiples(destination, terms);
    }
}

#[cfg(target_arch = "x86_64")]
impl Kind {
    fn is_here(self) -> bool {
        let has_gfni = || is_x86_feature_detected!("gfni");
        match self {
            Self::Gfni => {
                let has_512 = is_x86_feature_detected!("avx512f");
                has_512 && is_x86_feature_detected!("avx512bw") && has_gfni()
            }
            Self::Gfni256 => is_x86_feature_detected!("avx2") && has_gfni(),
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Neon => false,
            Self::Portable => true,
        }
    }

    #[expect(unsafe_code, reason = "kernels need instructions that not every processor has")]
    fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        // SAFETY: a `Kernel` is only made of a kind whose instructions were found to be here.
        unsafe {
            match self {
                Self::Gfni => gfni::add_multiples_512(destination, terms),
                Self::Gfni256 => gfni::add_multiples_256(destination, terms),
                Self::Avx2 => avx2::add_multiples(destination, terms),
                Self::Neon | Self::Portable => portable::add_multiples(destination, terms),
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Kind {
    fn is_here(self) -> bool {
        match self {
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            kind => kind == Self::Portable,
        }
    }

    #[expect(unsafe_code, reason = "kernels need instructions that not every processor has")]
    fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        match self {
            // SAFETY: a `Kernel` is only made of a kind whose instructions were found to be here.
            Self::Neon => unsafe { neon::add_multiples(destination, terms) },
            _ => portable::add_multiples(destination, terms),
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Kind {
    fn is_here(self) -> bool {
        self == Self::Portable
    }

    fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        portable::add_multiples(destination, terms);
    }
}
