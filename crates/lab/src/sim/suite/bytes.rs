//! Bytes of the flows. Each byte follows from the flow, the direction and its offset, so that lost,
//! duplicated or misplaced bytes are detected at once.

/// The bytes of one direction of one flow.
#[derive(Debug, Clone, Copy)]
pub struct Content(u64);

impl Content {
    pub fn new(seed: u64, flow: u16, from_air: bool) -> Self {
        Self(mix(mix(seed) ^ (u64::from(flow) << 1 | u64::from(from_air))))
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let word = mix(self.0 ^ (at / 8)).to_le_bytes();
            let from = (at % 8) as usize;
            let len = rest.len().min(8 - from);
            rest[..len].copy_from_slice(&word[from..from + len]);
            rest = &mut rest[len..];
            at += len as u64;
        }
    }

    /// First position at which `got`, read from `offset` on, differs from the content.
    pub fn differs(self, offset: u64, got: &[u8]) -> Option<u64> {
        let mut expected = vec![0; got.len()];
        self.fill(offset, &mut expected);
        let at = expected.iter().zip(got).position(|(expected, got)| expected != got)?;
        Some(offset + at as u64)
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_reads_the_same_and_a_shift_shows() {
        let content = Content::new(7, 3, true);
        let mut whole = [0; 100];
        content.fill(0, &mut whole);
        for from in 0..100 {
            assert_eq!(content.differs(from as u64, &whole[from..]), None);
        }
        assert!(content.differs(1, &whole[..40]).is_some());
        whole[60] ^= 1;
        assert_eq!(content.differs(0, &whole), Some(60));
        assert!(Content::new(7, 3, false).differs(0, &whole[..40]).is_some());
    }
}
