use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bentpipe_probe::clock::Moment;
use bentpipe_probe::record::{Gap, Measurement, Record, Session};

use super::*;

fn session(id: &str) -> Session {
    Session {
        id: id.into(),
        began: Moment { boot_us: 1, wall_us: 2 },
        software_version: "0".into(),
        platform: "p".into(),
        targets: Vec::new(),
        name_list: "n".into(),
    }
}

fn record(number: u64) -> Record {
    Record {
        number,
        began: Moment { boot_us: number, wall_us: -3 },
        clock_age_s: -1,
        runtime_us: 7,
        quiet: number.is_multiple_of(2),
        activity: Some("dns:1".into()),
        concurrent: vec!["ping".into(), "trace:2".into()],
        measurement: Measurement::Gap(Gap { records: number, failure: "x".repeat(200) }),
    }
}

fn contents(path: &Path) -> Vec<(String, Vec<Record>)> {
    let mut found: Vec<(String, Vec<Record>)> = Vec::new();
    let done = read(path, |item| {
        match item {
            Item::Session(session) => found.push((session.id, Vec::new())),
            Item::Record(record) => found.last_mut().unwrap().1.push(record),
        }
        Ok::<(), ()>(())
    });
    done.unwrap().unwrap();
    found
}

#[test]
fn records_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/probe.sqlite");
    let mut writer = Writer::new(path.clone(), 1 << 30, session("a"));
    (1..=3).for_each(|number| writer.push(record(number)));
    let flushed = writer.flush();
    assert_eq!(flushed.committed, Some(3), "{:?}", flushed.trouble);
    assert_eq!(writer.flush().committed, None);
    writer.push(record(4));
    assert_eq!(writer.flush().committed, Some(4));
    let expected: Vec<Record> = (1..=4).map(record).collect();
    assert_eq!(contents(&path), [("a".into(), expected.clone())], "while the writer is open");
    drop(writer);
    let mut writer = Writer::new(path.clone(), 1 << 30, session("b"));
    assert!(writer.flush().trouble.is_none());
    assert_eq!(contents(&path), [("a".into(), expected), ("b".into(), Vec::new())]);
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.sqlite");
    let mut first = Writer::new(path.clone(), 1 << 30, session("a"));
    first.flush();
    let mut second = Writer::new(path, 1 << 30, session("b"));
    assert!(matches!(second.flush().trouble, Some(StoreError::Busy { .. })));
    drop(first);
    assert!(second.flush().trouble.is_none(), "it takes over when the first ends");
}

#[test]
fn a_full_store_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.sqlite");
    let mut writer = Writer::new(path.clone(), 100_000, session("a"));
    let mut number = 0;
    let trouble = loop {
        number += 1;
        writer.push(record(number));
        if let Some(trouble) = writer.flush().trouble {
            break trouble.to_string();
        }
        assert!(number < 10_000, "100 kB do not hold 10,000 records");
    };
    assert!(trouble.contains("full"), "{trouble}");
    assert!(fs::metadata(&path).unwrap().len() <= 100_000);
    assert_eq!(contents(&path)[0].1.len() as u64, number - 1, "all that was committed");
    for _ in 0..7000 {
        number += 1;
        writer.push(record(number));
    }
    assert_eq!(writer.pending(), 6000);
    assert_eq!(writer.take_lost(), 0, "there is no room to say so yet");
    writer.limit_for_test(1 << 30);
    assert!(writer.flush().trouble.is_none());
    assert_eq!(writer.take_lost(), 1001);
}

#[test]
fn a_place_that_cannot_be_written_is_said_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let mut writer = Writer::new(file.join("probe.sqlite"), 1 << 30, session("a"));
    writer.push(record(1));
    let trouble = writer.flush().trouble.unwrap().to_string();
    assert!(trouble.contains("--store"), "{trouble}");
    fs::remove_file(&file).unwrap();
    assert_eq!(writer.flush().committed, Some(1), "the record waited");
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("letter.txt");
    fs::write(&text, "Dear reader, this is not a database at all. ".repeat(40)).unwrap();
    let before = fs::read(&text).unwrap();
    let mut writer = Writer::new(text.clone(), 1 << 30, session("a"));
    assert!(matches!(writer.flush().trouble, Some(StoreError::Foreign { .. })));
    assert_eq!(fs::read(&text).unwrap(), before);
    let other = folder.path().join("other.sqlite");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let mut writer = Writer::new(other.clone(), 1 << 30, session("a"));
    assert!(matches!(writer.flush().trouble, Some(StoreError::Foreign { .. })));
    assert!(matches!(read(&other, |_| Ok::<(), ()>(())), Err(StoreError::Foreign { .. })));
    let later = folder.path().join("later.sqlite");
    Writer::new(later.clone(), 1 << 30, session("a")).flush();
    rusqlite::Connection::open(&later).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    assert!(matches!(read(&later, |_| Ok::<(), ()>(())), Err(StoreError::Later { found: 9, .. })));
}

#[test]
fn a_store_in_a_read_only_folder_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a?b");
    let path = inner.join("probe.sqlite");
    let mut writer = Writer::new(path.clone(), 1 << 30, session("a"));
    writer.push(record(1));
    writer.flush();
    drop(writer);
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o555)).unwrap();
    let found = contents(&path);
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(found[0].1.len(), 1);
}

#[test]
fn the_last_public_test_is_known_after_a_restart() {
    use bentpipe_probe::ndt7::Ndt7;
    use bentpipe_probe::rate::Direction;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.sqlite");
    assert_eq!(last_public_test(&path), None, "no file");
    let mut writer = Writer::new(path.clone(), 1 << 30, session("a"));
    for (number, wall_us, public) in [(1, 10, true), (2, 20, true), (3, 30, false)] {
        let mut test = Ndt7::new("s".into(), Direction::Down);
        test.public = public;
        let began = Moment { boot_us: number, wall_us };
        let measurement = Measurement::Ndt7(Box::new(test));
        writer.push(Record { began, measurement, ..record(number) });
    }
    assert!(writer.flush().trouble.is_none());
    assert_eq!(last_public_test(&path), Some(20));
}
