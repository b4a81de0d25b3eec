//! Entry points for hostile bytes, for the fuzz targets and a property test.

use std::time::Duration;

pub use crate::air::fuzz_packet as packet;
use crate::preload::Manifest;
use crate::preload::manifest::key_of;
use crate::transports::fuzz as path_memory;

/// Time at which the files are read.
const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Takes `bytes` for each of the files that outlive the gateway and have a parser here: what was
/// learned of the path, and the preload's manifest. Panics if a promise is broken.
pub fn kept_files(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(learned) = path_memory::read(text, NOW) {
        let (remembered, age) = &learned;
        let again = path_memory::written(remembered, *age, NOW).expect("it was read");
        assert_eq!(path_memory::read(&again, NOW), Some(learned), "the path changes on the way");
    }
    manifest(text);
}

fn manifest(text: &str) {
    let sites = ["portal.example".parse().expect("it is a name")];
    let manifest = Manifest::parse(text, &sites);
    assert!(manifest.addresses.len() + manifest.wrong.len() <= text.lines().count());
    assert!(manifest.addresses.iter().all(|address| key_of(address).is_some()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whatever_lies_there_is_read_to_its_end() {
        for text in [
            "learned-unix-s = 1799999999\nrtt-us = 612345\nloss = 0.06\nburst = 3.5\nrate-bps = 1890000\n",
            "http://mirror.example/a b?c\nhttps://portal.example/\nhttps://other.example/\n# films",
        ] {
            kept_files(text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            kept_files(&bytes);
        }
    }
}
