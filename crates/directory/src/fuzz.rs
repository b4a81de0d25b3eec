//! Entry point of a fuzz target.

use std::time::Duration;

use crate::entry::Entry;
use crate::signature::sign;
use crate::testing::{entry_of, ground, statement};
use crate::{Directory, MAX_INTRODUCED, MIN_STREAM_INTERVAL, Side, Source, frame};

/// Gives `bytes` to a directory as the stream of a hostile neighbour, in pieces. Before that they are an
/// entry that the neighbour has rightly signed.
pub fn neighbour(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let ((secret, own), (of_hostile, hostile), (_, honest)) = (ground(1), ground(2), ground(3));
    let mut now = Duration::ZERO;
    let mut directory = Directory::new((secret, own), &[hostile, honest], 0);
    directory.state(&statement(), now, [1; 64]);
    directory.connect(honest, Side::Ours, now);
    let mut of_honest = Vec::new();
    frame::put_entry(&entry_of(3, 5), &mut of_honest);
    let is_taken = directory.receive((honest, Side::Ours), &of_honest, now);
    assert_eq!(is_taken, Ok(true));

    let mut signed = [&hostile[..], bytes].concat();
    signed.extend(sign(&of_hostile, &signed, [2; 64]));
    signed.truncate(frame::MAX_CONTENT_BYTES);
    let mut framed = vec![2];
    framed.extend((signed.len() as u16).to_be_bytes());
    framed.extend(signed);
    for stream in [&framed, bytes] {
        now += MIN_STREAM_INTERVAL;
        assert!(directory.connect(hostile, Side::Theirs, now));
        for piece in stream.chunks(usize::from(*size) + 1) {
            if directory.receive((hostile, Side::Theirs), piece, now).is_err() {
                break;
            }
            let sent = directory.take((hostile, Side::Theirs), now);
            assert!(sent.len() <= 16 << 10, "{} bytes", sent.len());
        }
    }
    let seen = directory.seen(now);
    let others = seen.iter().filter(|it| matches!(it.source, Source::Through(_))).count();
    assert!(others <= MAX_INTRODUCED);
    let honest = seen.iter().find(|it| it.key == honest).and_then(|it| it.statement);
    assert_eq!(honest.map(|(it, _)| it), Some(Entry::statement(&entry_of(3, 5))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_neighbour_panics(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
            neighbour(&bytes);
        }
    }
}
