//! Entry points for bytes, for the fuzz targets and property tests.

use std::time::Duration;

use crate::designated::is_of_resolver;
use crate::journal::{MAGIC, Record, Records};
use crate::{Answer, Front, Key, Query, Room, Settings, Source, pad, push, wants_padding};

const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Takes whatever came as a query, and as the ground's answer to one. Panics if a promise is broken.
pub fn fuzz_message(bytes: &[u8]) {
    let settings = Settings { warm_start_bytes: 1 << 16, ..Settings::default() };
    let mut front = Front::new(settings, true);
    // Whatever comes may have been pushed.
    front.begin(NOW);
    let from = ((), Source::Stream([10, 0, 0, 1].into()));
    let mut padded = bytes.to_vec();
    pad(&mut padded);
    assert!(padded.starts_with(&bytes[..bytes.len().min(12)]), "the head of an answer was changed");
    wants_padding(bytes);
    if let Some(answer) = front.query(from, bytes, Room::Packet(512), NOW) {
        assert!(answer.len() <= 512 && answer[..2] == bytes[..2], "not an answer to the client");
    }
    front.answered(bytes, NOW);
    let Ok(query) = Query::parse(bytes) else {
        as_answer(bytes);
        return;
    };
    assert_eq!(Key::from_bytes(query.key.as_bytes()).as_ref(), Ok(&query.key));
    let question = front.query(from, bytes, Room::Stream, NOW);
    let is_own = is_of_resolver(query.key.name());
    assert!(question.is_none() || is_own, "it is not known yet");
    assert!(push::read_beginning(bytes).is_none(), "a passenger may say that the aircraft begins");
}

/// Whatever question it answers.
fn as_answer(bytes: &[u8]) {
    let mut asked = bytes.to_vec();
    let Some(head) = asked.first_chunk_mut::<12>() else { return };
    head[2..].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let Ok(query) = Query::parse(&asked) else { return };
    let Ok(answer) = Answer::parse(&query.key, bytes) else { return };
    assert!(answer.message().len() <= bytes.len());
    let mut front = Front::new(Settings::default(), true);
    let from = ((), Source::Stream([10, 0, 0, 1].into()));
    if front.query(from, &asked, Room::Packet(512), NOW).is_some() {
        assert!(is_of_resolver(query.key.name()), "it is not known yet");
        return;
    }
    let mut message = bytes.to_vec();
    message[..2].copy_from_slice(&[0, 0]);
    front.answered(&message, NOW);
    // That one was read under the number that the question had.
    let Ok(answer) = Answer::parse(&query.key, &message) else { panic!("numbers count") };
    if let Some(again) = front.query(from, &asked, Room::Packet(512), NOW) {
        assert!(again.len() <= 512, "larger than the client takes");
    }
    // What is kept is whole, and the same after a restart.
    let journal = front.take_journal();
    let message = answer.message().clone();
    let record = Record::Answer { stored_at: NOW, key: query.key, message };
    assert!(journal.is_empty() || journal == [record]);
}

/// Takes whatever came as the journal of an earlier run, and as a record of one.
pub fn fuzz_journal(bytes: &[u8]) {
    // Few bytes that somebody makes up have a right checksum.
    fuzz_record(bytes);
    fuzz_file(bytes);
}

fn fuzz_file(bytes: &[u8]) {
    let mut front = Front::<()>::new(Settings::default(), true);
    let mut count = 0;
    for record in Records::of(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert!(bytes.windows(again.len()).any(|it| it == again), "a record has two spellings");
        front.restore(record, NOW);
        count += 1;
    }
    assert!(front.kept().0 <= count);
}

/// Takes whatever came as one record, whose checksum is right.
fn fuzz_record(bytes: &[u8]) {
    let Some(record) = Record::decode(bytes) else { return };
    let mut file = MAGIC.to_vec();
    record.encode(&mut file);
    assert!(file.ends_with(bytes), "a record has two spellings");
    fuzz_file(&file);
}
