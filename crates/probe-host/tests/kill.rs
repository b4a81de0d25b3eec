//! A writer that is killed: no record that it acknowledged may be missing, and the file must open again.
//!
//! The test starts itself as a writer, kills that process at a moment drawn from a fixed seed, and reads the
//! file. All rounds write to one file, so each also opens what the kill before left behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use bentpipe_probe::clock::Moment;
use bentpipe_probe::random::Random;
use bentpipe_probe::record::{Gap, Measurement, Record, Session};
use bentpipe_probe_host::store::{Item, Writer, read};

/// Kills; BENTPIPE_KILLS sets another number.
const KILLS: u64 = 60;

/// Argument that makes this program the writer, followed by the file and the session.
const WRITER: &str = "--write-until-killed";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, role, path, session] = &args[..]
        && role == WRITER
    {
        return write(Path::new(path), session);
    }
    let kills = std::env::var("BENTPIPE_KILLS")
        .ok()
        .map_or(KILLS, |kills| kills.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("probe.sqlite");
    let mut random = Random::new(1);
    let mut acknowledged = Vec::new();
    for round in 0..kills {
        let wait = Duration::from_micros(random.next_u64() % 30_000);
        acknowledged.push(round_of(&path, round, wait));
    }
    let sessions = contents(&path);
    let committed: u64 = acknowledged.iter().sum();
    let mut beyond = 0;
    for (round, promised) in acknowledged.iter().enumerate() {
        let found = sessions
            .iter()
            .find(|(id, _)| *id == round.to_string())
            .map_or(&[][..], |(_, numbers)| numbers);
        let expected: Vec<u64> = (1..=found.len() as u64).collect();
        assert_eq!(found, expected, "round {round}: the records have no gap");
        assert!(
            found.len() as u64 >= *promised,
            "round {round}: {} of {promised} promised records",
            found.len()
        );
        beyond += found.len() as u64 - promised;
    }
    assert!(committed > kills, "the writers were killed before they wrote anything");
    println!(
        "{kills} kills: {committed} acknowledged records, none lost; {beyond} more were on the disk"
    );
}

/// Runs a writer, kills it `wait` after its first acknowledgement, and returns the last acknowledged number.
fn round_of(path: &Path, round: u64, wait: Duration) -> u64 {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg(WRITER).arg(path).arg(round.to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a second process");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut last = number(lines.next().expect("a line").expect("text"));
    sleep(wait);
    kill(&mut child);
    for line in lines {
        // A line that was cut by the kill was not acknowledged in full.
        if let Some(whole) = line.ok().filter(|line| line.ends_with('.')) {
            last = number(whole);
        }
    }
    last
}

fn kill(child: &mut Child) {
    child.kill().expect("SIGKILL");
    child.wait().expect("an exit");
}

fn number(line: String) -> u64 {
    line.trim_end_matches('.').parse().expect("a number")
}

/// Writes records in small commits for ever, and prints each acknowledged number.
fn write(path: &Path, session: &str) {
    let session = Session {
        id: session.into(),
        began: Moment { boot_us: 1, wall_us: 1 },
        software_version: "0".into(),
        platform: "test".into(),
        targets: Vec::new(),
        name_list: "none".into(),
    };
    let mut writer = Writer::new(path.to_owned(), 1 << 30, session);
    for number in 1.. {
        writer.push(Record {
            number,
            began: Moment { boot_us: number, wall_us: 0 },
            clock_age_s: -1,
            runtime_us: 0,
            quiet: false,
            activity: None,
            concurrent: Vec::new(),
            measurement: Measurement::Gap(Gap { records: number, failure: "x".repeat(300) }),
        });
        if number % 5 == 0 {
            let flushed = writer.flush();
            assert!(flushed.trouble.is_none(), "{:?}", flushed.trouble);
            println!("{}.", flushed.committed.expect("there were records"));
        }
    }
}

fn contents(path: &Path) -> Vec<(String, Vec<u64>)> {
    let mut found: Vec<(String, Vec<u64>)> = Vec::new();
    read(path, |item| {
        match item {
            Item::Session(session) => found.push((session.id, Vec::new())),
            Item::Record(record) => found.last_mut().expect("a session").1.push(record.number),
        }
        Ok::<(), std::convert::Infallible>(())
    })
    .expect("a store that opens")
    .expect("infallible");
    found
}
