//! A process that writes its journal is killed in the middle, again and again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bentpipe_dns::Key;
use bentpipe_dns::journal::{Place, Record, Records};

/// In the environment of the process that is killed: where its journal is.
const CHILD: &str = "BENTPIPE_DNS_JOURNAL";

/// Its records of every append; their messages differ in length and content.
const BATCH: u32 = 40;

fn record(n: u32) -> Record {
    let key = Key::from_bytes(b"\x01a\x04test\x00\x00\x01\x00\x01\x00").unwrap();
    let message = n.to_be_bytes().repeat(20 + n as usize % 300);
    Record::Answer { stored_at: Duration::from_millis(n.into()), key, message: message.into() }
}

#[test]
fn killed_in_mid_write_it_loses_no_more_than_what_was_being_written() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.journal");
    for run in 0..25u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, &path)
            .args(["--exact", "killed_in_mid_write_it_loses_no_more_than_what_was_being_written"])
            .arg("--nocapture")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut written = 0;
        for line in lines {
            let Some(count) = line.strip_prefix("on disk: ") else { continue };
            written = count.parse().unwrap();
            // SIGKILL at another point of each run; what was printed since is read all the same.
            if written >= BATCH * (3 + run) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        // The lock went with the process.
        let bytes = Place::claim(&path).unwrap().read().unwrap();
        let mut count = 0;
        for found in Records::of(&bytes) {
            assert_eq!(found, record(count), "corrupt");
            count += 1;
        }
        assert!(count >= written && written > 0, "{count} of {written} are there");
    }
}

fn write_for_ever(path: &Path) {
    let mut file = Place::claim(path).unwrap().begin(&[]).unwrap();
    // Far more than is waited for.
    for batch in 0..10_000 {
        let records: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(record).collect();
        file.append(&records).unwrap();
        println!("on disk: {}", (batch + 1) * BATCH);
    }
}
