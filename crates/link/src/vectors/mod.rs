//! Vectors in `docs/vectors`, to which `docs/protocol.md` refers, recomputed and compared.
//!
//! `UPDATE_VECTORS=1 cargo test -p bentpipe-link vectors` writes them. A changed vector is a
//! changed protocol, to be named in the changelog.

mod frames;
mod handshake;
mod noise;

use std::fmt::Write as _;
use std::path::Path;

/// Contents of one file of vectors.
struct Vectors {
    file: &'static str,
    text: String,
}

impl Vectors {
    fn new(file: &'static str, about: &str) -> Self {
        let mut vectors = Self { file, text: String::new() };
        vectors.note(about);
        vectors
    }

    /// Adds a comment above the following vectors.
    fn note(&mut self, text: &str) {
        for line in text.lines() {
            let _ = writeln!(self.text, "{}", format!("# {line}").trim_end());
        }
    }

    /// Adds a vector.
    fn put(&mut self, name: &str, bytes: &[u8]) {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(self.text, "{name} = {hex}");
    }

    /// Compares with the committed file, or writes it if `UPDATE_VECTORS` is set.
    fn check(self) {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors"));
        let path = path.join(self.file);
        if std::env::var_os("UPDATE_VECTORS").is_some() {
            std::fs::write(&path, &self.text).expect("docs/vectors can be written to");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let pairs = committed.lines().zip(self.text.lines());
        for (committed, computed) in pairs {
            assert_eq!(committed, computed, "in docs/vectors/{}", self.file);
        }
        let lines = (committed.lines().count(), self.text.lines().count());
        assert_eq!(lines.0, lines.1, "lines in docs/vectors/{}", self.file);
    }
}
