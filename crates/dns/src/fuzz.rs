//! Entry points of the fuzz targets and property tests.

use std::time::Duration;

use crate::designated::is_of_resolver;
use crate::journal::{MAGIC, Record, Records};
use crate::{Answer, Key, Query, Resolver, Room, Settings, Source, pad, push, wants_padding};

const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Processes arbitrary bytes as a query and as the ground's answer.
///
/// # Panics
///
/// If an invariant is broken.
pub fn fuzz_message(bytes: &[u8]) {
    let settings = Settings { warm_start_bytes: 1 << 16, ..Settings::default() };
    let mut resolver = Resolver::new(settings, true, [7; 16]);
    // The bytes may be a pushed answer.
    resolver.begin(NOW);
    let from = ((), Source::Stream([10, 0, 0, 1].into()));
    let mut padded = bytes.to_vec();
    pad(&mut padded);
    assert!(
        padded.starts_with(&bytes[..bytes.len().min(12)]),
        "the header of an answer was changed"
    );
    wants_padding(bytes);
    if let Some(answer) = resolver.query(from, bytes, Room::Packet(512), NOW) {
        assert!(answer.len() <= 512 && answer[..2] == bytes[..2], "not an answer to the client");
    }
    resolver.on_answer(bytes, NOW);
    let Ok(query) = Query::parse(bytes) else {
        fuzz_answer(bytes);
        return;
    };
    assert_eq!(Key::from_bytes(query.key.as_bytes()).as_ref(), Ok(&query.key));
    let question = resolver.query(from, bytes, Room::Stream, NOW);
    let is_own = is_of_resolver(query.key.name());
    assert!(question.is_none() || is_own, "it is not cached yet");
    assert!(push::read_start(bytes).is_none(), "a passenger can forge a start announcement");
}

/// Processes the bytes as the answer to the question that they contain.
fn fuzz_answer(bytes: &[u8]) {
    let mut query_bytes = bytes.to_vec();
    let Some(head) = query_bytes.first_chunk_mut::<12>() else { return };
    head[2..].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let Ok(query) = Query::parse(&query_bytes) else { return };
    let Ok(answer) = Answer::parse(&query.key, bytes) else { return };
    assert!(answer.message().len() <= bytes.len());
    let mut resolver = Resolver::new(Settings::default(), true, [7; 16]);
    let from = ((), Source::Stream([10, 0, 0, 1].into()));
    if resolver.query(from, &query_bytes, Room::Packet(512), NOW).is_some() {
        assert!(is_of_resolver(query.key.name()), "it is not cached yet");
        return;
    }
    let mut message = bytes.to_vec();
    message[..2].copy_from_slice(&[0, 0]);
    resolver.on_answer(&message, NOW);
    // That answer was parsed with the id of the query.
    let Ok(answer) = Answer::parse(&query.key, &message) else {
        panic!("the id changes the result")
    };
    if let Some(again) = resolver.query(from, &query_bytes, Room::Packet(512), NOW) {
        assert!(again.len() <= 512, "larger than the client takes");
    }
    // The journal contains the whole answer, unchanged after a restart.
    let journal = resolver.take_journal();
    let message = answer.message().clone();
    let record = Record::Answer { stored_at: NOW, key: query.key, message };
    assert!(journal.is_empty() || journal == [record]);
}

/// Processes arbitrary bytes as the journal of an earlier run, and as a record.
pub fn fuzz_journal(bytes: &[u8]) {
    // Arbitrary bytes rarely have a correct checksum.
    fuzz_record(bytes);
    fuzz_file(bytes);
}

fn fuzz_file(bytes: &[u8]) {
    let mut resolver = Resolver::<()>::new(Settings::default(), true, [7; 16]);
    let mut count = 0;
    for record in Records::of(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert!(bytes.windows(again.len()).any(|it| it == again), "a record has two encodings");
        resolver.restore(record, NOW);
        count += 1;
    }
    assert!(resolver.cached().0 <= count);
}

/// Processes the bytes as one record with a correct checksum.
fn fuzz_record(bytes: &[u8]) {
    let Some(record) = Record::decode(bytes) else { return };
    let mut file = MAGIC.to_vec();
    record.encode(&mut file);
    assert!(file.ends_with(bytes), "a record has two encodings");
    fuzz_file(&file);
}
