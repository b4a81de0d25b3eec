//! TinyMT32, the generator of RFC 8682 from which RFC 8681 draws coefficients.

/// Parameters of the generator (RFC 8682 section 2.1).
const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;

/// Rounds that mix the seed into the state, and rounds discarded afterwards.
const SEED_ROUNDS: u32 = 8;
const DISCARDED: u32 = 8;

/// Pseudorandom number generator of RFC 8682. Not for cryptography.
#[derive(Debug, Clone)]
pub struct TinyMt32([u32; 4]);

impl TinyMt32 {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u32) -> Self {
        let mut state = [seed, MAT1, MAT2, TMAT];
        for round in 1..SEED_ROUNDS {
            let last = state[(round as usize - 1) & 3];
            let mixed = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(round);
            state[round as usize & 3] ^= mixed;
        }
        let mut generator = Self(state);
        for _ in 0..DISCARDED {
            generator.step();
        }
        generator
    }

    /// Returns the next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.step();
        let [first, _, third, last] = self.0;
        let sum = first.wrapping_add(third >> 8);
        // All ones if the sum is odd.
        last ^ sum ^ ((sum & 1).wrapping_neg() & TMAT)
    }

    /// Returns the next number from 0 to 255: `tinymt32_rand256` of RFC 8681 section 3.5.
    #[inline]
    pub fn next_u8(&mut self) -> u8 {
        self.next_u32() as u8
    }

    #[inline]
    fn step(&mut self) {
        self.0 = next(self.0);
    }
}

/// Four generators of one sequence, each [`LANE`] numbers ahead of the previous. A single generator
/// waits for its last result; four let the processor work in parallel.
pub(crate) struct Lanes([[u32; 4]; 4]);

/// Numbers that each of the [`Lanes`] draws before it reaches the start of the next.
pub(crate) const LANE: usize = 128;

impl Lanes {
    /// Creates four lanes that start at the state of `generator`.
    pub fn new(generator: &TinyMt32) -> Self {
        let mut lanes = [generator.0; 4];
        for lane in 1..4 {
            lanes[lane] = JUMP.apply(lanes[lane - 1]);
        }
        // Transposed, so that one register holds the same word of all lanes.
        Self(std::array::from_fn(|word| lanes.map(|lane| lane[word])))
    }

    /// Returns the next byte of each lane.
    #[inline]
    pub fn next_u8s(&mut self) -> [u8; 4] {
        let mut bytes = [0; 4];
        for (lane, byte) in bytes.iter_mut().enumerate() {
            let mut generator = TinyMt32(self.0.map(|word| word[lane]));
            *byte = generator.next_u8();
            for (word, next) in self.0.iter_mut().zip(generator.0) {
                word[lane] = next;
            }
        }
        bytes
    }

    /// State of the last lane. After `4 * LANE` numbers it is the end of all four lanes.
    pub fn last(&self) -> TinyMt32 {
        TinyMt32(self.0.map(|word| word[3]))
    }
}

/// Advances a state by [`LANE`] steps at once. Steps are linear over GF(2), so the results for
/// single bits determine the result for any state. The table holds them for every value of each
/// four bits of the state.
struct Jump([[[u32; 4]; 16]; 32]);

static JUMP: Jump = Jump::new();

impl Jump {
    const fn new() -> Self {
        let mut table = [[[0; 4]; 16]; 32];
        let mut bit = 0;
        while bit < 128 {
            let mut state = [0; 4];
            state[bit / 32] = 1 << (bit % 32);
            let mut step = 0;
            while step < LANE {
                state = next(state);
                step += 1;
            }
            let mut value = 0;
            while value < 16 {
                if value >> (bit % 4) & 1 != 0 {
                    let mut word = 0;
                    while word < 4 {
                        table[bit / 4][value][word] ^= state[word];
                        word += 1;
                    }
                }
                value += 1;
            }
            bit += 1;
        }
        Self(table)
    }

    fn apply(&self, state: [u32; 4]) -> [u32; 4] {
        let mut sum = [0; 4];
        for (index, of_value) in self.0.iter().enumerate() {
            let value = state[index / 8] >> (4 * (index % 8)) & 0x0f;
            for (word, part) in sum.iter_mut().zip(of_value[value as usize]) {
                *word ^= part;
            }
        }
        sum
    }
}

/// State after one step.
#[inline]
const fn next([first, second, third, last]: [u32; 4]) -> [u32; 4] {
    let mut x = (first & 0x7fff_ffff) ^ second ^ third;
    let mut y = last;
    x ^= x << 1;
    y ^= (y >> 1) ^ x;
    let odd = (y & 1).wrapping_neg();
    [second, third ^ (odd & MAT1), x ^ (y << 10) ^ (odd & MAT2), y]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First numbers of seed 1 (RFC 8682 section 2.2).
    const FIRST: [u32; 50] = [
        2545341989, 981918433, 3715302833, 2387538352, 3591001365, 3820442102, 2114400566,
        2196103051, 2783359912, 764534509, 643179475, 1822416315, 881558334, 4207026366,
        3690273640, 3240535687, 2921447122, 3984931427, 4092394160, 44209675, 2188315343,
        2908663843, 1834519336, 3774670961, 3019990707, 4065554902, 1239765502, 4035716197,
        3412127188, 552822483, 161364450, 353727785, 140085994, 149132008, 2547770827, 4064042525,
        4078297538, 2057335507, 622384752, 2041665899, 2193913817, 1080849512, 33160901, 662956935,
        642999063, 3384709977, 1723175122, 3866752252, 521822317, 2292524454,
    ];

    #[test]
    fn numbers_match_rfc_8682() {
        let mut generator = TinyMt32::new(1);
        assert_eq!(FIRST.map(|_| generator.next_u32()), FIRST);
    }

    /// `tinymt32_rand256` of seed 1 (RFC 8681 appendix A).
    #[test]
    fn bytes_match_rfc_8681() {
        let mut generator = TinyMt32::new(1);
        let first = [37, 225, 177, 176, 21, 246, 54, 139, 168, 237];
        assert_eq!(first.map(|_| generator.next_u8()), first);
    }

    #[test]
    fn lanes_draw_the_same_numbers() {
        let mut generator = TinyMt32::new(4711);
        let mut lanes = Lanes::new(&generator);
        let drawn: [[u8; 4]; LANE] = std::array::from_fn(|_| lanes.next_u8s());
        for lane in 0..4 {
            assert!(drawn.iter().all(|bytes| bytes[lane] == generator.next_u8()));
        }
        let (mut last, next) = (lanes.last(), generator.next_u32());
        assert_eq!(last.next_u32(), next);
    }
}
