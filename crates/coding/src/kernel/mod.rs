//! Multiply-add of byte slices: `destination ^= Σ factor · source`. This is nearly all the work of
//! the crate.
//!
//! One pass adds many sources, so that the sum stays in registers. The kernel is chosen at run time
//! by the processor's features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod nibbles;
mod portable;
mod term;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tiles;

pub use term::Term;

/// Multiply-add implementation that this processor supports. All kernels produce the same bytes.
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
    /// Word-wide XOR and shifts; works on every processor.
    Portable,
}

impl Kernel {
    /// Fastest kernel that this processor supports.
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self(Kind::Portable))
    }

    /// All kernels that this processor supports, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let all = [Kind::Gfni, Kind::Gfni256, Kind::Avx2, Kind::Neon, Kind::Portable];
        all.into_iter().filter(|kind| kind.is_available()).map(Self)
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

    /// Adds every term to `destination`. Source bytes past the end of `destination` are ignored.
    pub fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        self.0.add_multiples(destination, terms);
    }
}

#[cfg(target_arch = "x86_64")]
impl Kind {
    fn is_available(self) -> bool {
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
        // SAFETY: a `Kernel` is only built from a kind whose instructions were detected.
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
    fn is_available(self) -> bool {
        match self {
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            kind => kind == Self::Portable,
        }
    }

    #[expect(unsafe_code, reason = "kernels need instructions that not every processor has")]
    fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        match self {
            // SAFETY: a `Kernel` is only built from a kind whose instructions were detected.
            Self::Neon => unsafe { neon::add_multiples(destination, terms) },
            _ => portable::add_multiples(destination, terms),
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Kind {
    fn is_available(self) -> bool {
        self == Self::Portable
    }

    fn add_multiples(self, destination: &mut [u8], terms: &[Term<'_>]) {
        portable::add_multiples(destination, terms);
    }
}
