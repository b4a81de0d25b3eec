//! Entry points for hostile bytes, for the fuzz targets and a property test.

use std::time::Duration;

pub use crate::air::fuzz_packet as packet;
use crate::air::path_memory;
use crate::preload::manifest::key_of;
use crate::preload::{Manifest, Report, Spent, asked_in};
use crate::single::{Leads, opening, opening_of_site};

/// Time at which the files are read.
const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Takes `bytes` for each of the files that outlive the gateway and have a parser here: what was
/// learned of the path, the preload's manifest, the request for a run, the report of one and what was
/// spent. Panics if a promise is broken.
pub fn kept_files(bytes: &[u8]) {
    report(bytes);
    if let Some(spent) = Spent::parse(bytes) {
        let again = serde_json::to_vec(&spent).expect("what was read can be written");
        assert_eq!(Spent::parse(&again), Some(spent), "what was spent changes on the way");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(learned) = path_memory::read(text, NOW) {
        let (remembered, age) = &learned;
        let again = path_memory::written(remembered, *age, NOW).expect("it was read");
        assert_eq!(path_memory::read(&again, NOW), Some(learned), "the path changes on the way");
    }
    if let Some(began) = asked_in(text, NOW) {
        assert!(
            began <= NOW && NOW < began + Duration::from_secs(24 * 3600),
            "a run of another day"
        );
    }
    manifest(text);
}

fn report(bytes: &[u8]) {
    if let Ok(report) = Report::parse(bytes) {
        let again = serde_json::to_vec(&report).expect("what was read can be written");
        assert_eq!(Report::parse(&again), Ok(report), "a report changes on the way");
    }
}

fn manifest(text: &str) {
    let sites = ["portal.example".parse().expect("it is a name")];
    let manifest = Manifest::parse(text, &sites);
    assert!(manifest.addresses.len() + manifest.wrong.len() <= text.lines().count());
    assert!(manifest.addresses.iter().all(|address| key_of(address).is_some()));
    let report = Report::new(0, &manifest);
    let written = serde_json::to_vec(&report).expect("it is JSON");
    assert_eq!(Report::parse(&written), Ok(report));
}

/// Reads `bytes` as the ground reads what a stream to its half of Split HTTP begins with. Panics if what was read
/// is written as something else, or where it leads changes with what follows.
pub fn stream_opening(bytes: &[u8]) {
    let Ok(Some((leads, taken))) = Leads::parse(bytes) else { return };
    let written = match &leads {
        Leads::To(target) => opening(target).expect("what was read can be written"),
        Leads::ToSite(name) => opening_of_site(name),
        Leads::Nowhere => return assert_eq!(taken, 0, "a page's is read by its own"),
    };
    let length = written.len();
    assert_eq!(Leads::parse(&bytes[..taken]), Leads::parse(bytes), "what follows changes it");
    assert_eq!(Leads::parse(&written), Ok(Some((leads, length))), "it changes on the way");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn openings_are_read_or_refused(
            version in 3..7u8,
            length in 0..70u8,
            text in "[A-Za-z0-9.:-]{0,70}",
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            stream_opening(&[&[version, length], text.as_bytes(), &more].concat());
            stream_opening(&[&[version, 1, length], text.as_bytes(), &more].concat());
            stream_opening(&[&[version], &more[..]].concat());
        }
    }

    #[test]
    fn whatever_lies_there_is_read_to_its_end() {
        for text in [
            "learned-unix-s = 1799999999\nrtt-us = 612345\nloss = 0.06\nburst = 3.5\nrate-bps = 1890000\n",
            "http://mirror.example/a b?c\nhttps://portal.example/\nhttps://other.example/\n# films",
            "1799999999000\n",
            "18446744073709551615",
            r#"{"schema":1,"state":"complete","began_unix_ms":1,"written_unix_ms":2,"bytes":3,
                "error":null,"wrong_lines":[],"objects":[]}"#,
            r#"{"night":{"began_unix_ms":1,"bytes":18446744073709551615},"asked":{"began_unix_ms":0,"bytes":2}}"#,
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
