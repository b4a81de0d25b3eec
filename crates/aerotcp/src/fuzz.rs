//! Parsing of a packet's content, for the fuzz target and a property test.

use crate::segment::{Kind, MAX_CONNECTION, MAX_NUMBER, MAX_SACK_BLOCKS, Segment};

/// Parses any bytes as a segment. Panics if the parser breaks a guarantee. Returns `true` if the
/// bytes are a segment.
pub fn fuzz(bytes: &[u8]) -> bool {
    let Ok(segment) = Segment::parse(bytes) else { return false };
    check(&segment, bytes);
    let mut again = b"before".to_vec();
    assert!(segment.put(&mut again), "what was read cannot be written");
    assert_eq!(Segment::parse(&again[6..]), Ok(segment), "a segment does not read back");
    true
}

/// Checks that all numbers are in range, so that sums of two are, and that the content is
/// meaningful.
fn check(segment: &Segment<'_>, bytes: &[u8]) {
    let Segment { connection, ack, stop, kind } = segment;
    assert!(*connection <= MAX_CONNECTION, "connection {connection}");
    assert!(ack.number <= MAX_NUMBER && ack.window <= MAX_NUMBER, "{ack:?}");
    assert!(ack.blocks.len() <= MAX_SACK_BLOCKS, "{} blocks", ack.blocks.len());
    for block in &ack.blocks {
        assert!(ack.number < block.start && block.start < block.end, "{block:?} in {ack:?}");
        assert!(block.end <= MAX_NUMBER, "{block:?} ends out of range");
    }
    match kind {
        Kind::Plain { .. } => {}
        Kind::Reset { .. } => assert_eq!(*stop, None, "a reset that stops"),
        Kind::Data(data) => {
            assert!(bytes.ends_with(data.payload), "a payload does not fill its segment");
            assert!(data.seq <= MAX_NUMBER && data.numbers() > 0, "{data:?}");
            assert_eq!(data.seq == 0, data.syn.is_some(), "number 0 is the SYN's: {data:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// Small numbers are frequent: varints of one byte, targets that are understood.
        #[test]
        fn no_content_breaks_the_parser(
            bits in any::<u8>(),
            rest in prop::collection::vec(prop_oneof![0u8..0x10, any::<u8>(), Just(0x80)], 0..80),
        ) {
            fuzz(&[&[bits][..], &rest].concat());
        }
    }

    #[test]
    fn some_inputs_are_segments() {
        assert!(fuzz(&[0x10, 1, 0, 0]), "a probe");
        assert!(fuzz(&[0x60, 1, 7, 9, 2, 3, 5, 0xab]), "a byte behind a SACK block");
        assert!(fuzz(&[0x04, 1, 0, 0, 3]), "a reset");
        assert!(!fuzz(&[0x60, 1, 7, 9, 0, 3, 5, 0xab]), "a block of what is acknowledged");
    }
}
