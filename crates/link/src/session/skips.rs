//! Packet numbers that are left out, so that a peer that reports packets it did not receive is found
//! out (RFC 9000, section 21.4).
//!
//! Reports decide the rate at which we send, unless it is typed. To raise that rate beyond what the
//! path carries, a peer has to report packets that the path dropped. It cannot know which of the
//! missing numbers were never sent. The first one that it names ends the session.

use rand::{RngCore, SeedableRng};

use crate::crypto::Rng;

/// Maximum distance of two numbers that are left out. It is uniform in 1..=512, 256.5 in the mean,
/// so that 257 false reports of packets of 1,500 bytes gain 385 kB in the mean.
const MAX_DISTANCE: u64 = 512;

/// Choice of the numbers that are left out.
#[derive(Debug)]
pub struct Skips {
    /// Packets until the next one.
    left: u64,
    /// Unpredictable for the peer.
    rng: Rng,
}

impl Skips {
    pub fn new(rng: &mut Rng) -> Self {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut rng = Rng::from_seed(seed);
        Self { left: distance(&mut rng), rng }
    }

    /// Counts a sent packet. Returns `true` if the next number is left out.
    pub fn sent(&mut self) -> bool {
        self.left -= 1;
        let is_next = self.left == 0;
        if is_next {
            self.left = distance(&mut self.rng);
        }
        is_next
    }
}

fn distance(rng: &mut Rng) -> u64 {
    1 + rng.next_u64() % MAX_DISTANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_257_is_left_out_and_one_in_each_512() {
        let mut skips = Skips::new(&mut Rng::seed_from_u64(1));
        let sent = (0..256_500).filter(|_| skips.sent()).count();
        assert!((930..1070).contains(&sent), "{sent}");
        let mut since = 0;
        for _ in 0..100_000 {
            since = if skips.sent() { 0 } else { since + 1 };
            assert!(since < MAX_DISTANCE);
        }
    }
}
