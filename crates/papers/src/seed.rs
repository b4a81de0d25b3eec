//! Seeds and digests that are the same on every machine and in every shard.

use std::fmt::{Display, Write};
use std::fs::File;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// Seeds have 48 bits, which every table and every JSON reader represents exactly.
const SEED_BYTES: usize = 6;

/// Derives a seed from the run's seed and `parts`.
pub fn seed(of_run: u64, parts: &[&dyn Display]) -> u64 {
    let text = parts.iter().fold(of_run.to_string(), |text, part| format!("{text}\n{part}"));
    let digest = Sha256::digest(text.as_bytes());
    digest[..SEED_BYTES].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// SHA-256 of a text, in hexadecimal digits.
pub fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Identifier of a build: the first twelve hexadecimal digits of the SHA-256 of its `programs`, one
/// after the other.
pub fn build(programs: &[PathBuf]) -> io::Result<String> {
    const DIGITS: usize = 12;
    let mut digest = Sha256::new();
    for program in programs {
        io::copy(&mut File::open(program)?, &mut digest)?;
    }
    Ok(hex(&digest.finalize())[..DIGITS].to_owned())
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_of_its_parts_and_of_their_bounds() {
        let of = |run, parts: [&str; 2]| seed(run, &[&parts[0], &parts[1]]);
        assert_eq!(of(1, ["a", "b"]), of(1, ["a", "b"]));
        assert_ne!(of(1, ["a", "b"]), of(2, ["a", "b"]));
        assert_ne!(of(1, ["a", "b"]), of(1, ["ab", ""]));
        assert!(of(1, ["a", "b"]) < 1 << 48);
        assert_eq!(digest("")[..8], *"e3b0c442");
    }

    #[test]
    fn a_build_is_known_by_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "").unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "").unwrap();
        let build = || build(&[path.clone(), other.clone()]).unwrap();
        assert_eq!(build(), "e3b0c44298fc");
        std::fs::write(&path, "x").unwrap();
        let first = build();
        std::fs::write(&other, "x").unwrap();
        assert!(first != "e3b0c44298fc" && build() != first);
    }
}
