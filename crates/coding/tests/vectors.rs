//! Recomputes `docs/vectors/coding.txt`, which `docs/protocol.md` refers to, and compares it.
//!
//! `UPDATE_VECTORS=1 cargo test -p bentpipe-coding --test vectors` rewrites the file.

use std::fmt::Write as _;

use bentpipe_coding::{Decoder, Element, Limits, PREFIX_BYTES, Span, coefficients, encode};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/coding.txt");

#[test]
fn coding() {
    let mut text = String::from(
        "# The first 8 coefficients of some repair keys, named by the key in decimal.\n",
    );
    for key in [0, 1, 2, 9029, u16::MAX] {
        let mut first = [0; 8];
        coefficients(key, &mut first);
        put(&mut text, &format!("coefficients_{key}"), &first);
    }
    text.push_str("#\n# Products in the field.\n");
    for (a, b) in [(0x02, 0x80), (0x53, 0xca), (0xff, 0xff)] {
        put(&mut text, &format!("{a:02x}_times_{b:02x}"), &[(Element(a) * Element(b)).0]);
    }
    text.push_str(
        "#\n# The repair with key 77 of three sources of different lengths, one of them empty.\n",
    );
    let sources: [&[u8]; 3] = [b"first", b"", b"the third source"];
    for (name, source) in ["source_0", "source_1", "source_2"].iter().zip(sources) {
        put(&mut text, name, source);
    }
    let mut repair = Vec::new();
    encode(77, &sources, &mut repair);
    assert_eq!(repair, by_hand(77, &sources));
    put(&mut text, "repair", &repair);
    recovers(&sources, &repair);

    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(FILE, &text).expect("docs/vectors can be written to");
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert_eq!(committed, text, "docs/vectors/coding.txt");
}

fn put(text: &mut String, name: &str, bytes: &[u8]) {
    let _ = write!(text, "{name} = ");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
}

/// Repair symbol computed byte by byte, as the protocol's text describes it.
fn by_hand(key: u16, sources: &[&[u8]]) -> Vec<u8> {
    let mut factors = vec![0; sources.len()];
    coefficients(key, &mut factors);
    let longest = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut repair = vec![Element(0); PREFIX_BYTES + longest];
    for (factor, source) in factors.into_iter().zip(sources) {
        let coded = (source.len() as u16).to_be_bytes().into_iter().chain(source.iter().copied());
        for (sum, byte) in repair.iter_mut().zip(coded) {
            *sum = *sum + Element(factor) * Element(byte);
        }
    }
    repair.into_iter().map(|element| element.0).collect()
}

/// Each of the sources can be recovered from the other two.
fn recovers(sources: &[&[u8]; 3], repair: &[u8]) {
    for lost in 0..3 {
        let mut decoder = Decoder::new(Limits::default());
        for number in (0..3).filter(|number| *number != lost) {
            decoder.source(number, sources[number as usize]);
        }
        let span = Span::new(0, 3).expect("it is short");
        let used = decoder.repair(span, 77, repair, |number| number != lost);
        assert!(used.expect("it contradicts nothing"));
        assert_eq!(decoder.next_recovered(), Some((lost, sources[lost as usize].to_vec())));
    }
}
