//! Kills a process that writes its journal, again and again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bentpipe_dns::Key;
use bentpipe_dns::journal::{JournalLock, Record, Records};

/// Environment variable with the journal path of the killed process.
const CHILD: &str = "BENTPIPE_DNS_JOURNAL";

/// Records of each append; their messages differ in length and content.
const BATCH: u32 = 40;

fn record(n: u32) -> Record {
    let key = Key::from_bytes(b"\x01a\x04test\x00\x00\x01\x00\x01\x00").unwrap();
    let message = n.to_be_bytes().repeat(20 + n as usize % 300);
    Record::Answer { stored_at: Duration::from_millis(n.into()), key, message: message.into() }
}

#[test]
fn a_kill_loses_at_most_the_records_being_written() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.journal");
    for run in 0..25u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, &path)
            .args(["--exact", "a_kill_loses_at_most_the_records_being_written"])
            .arg("--nocapture")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut written = 0;
        for line in lines {
            let Some(count) = line.strip_prefix("on disk: ") else { continue };
            written = count.parse().unwrap();
            // SIGKILL at another point in each run; output that was already printed is still read.
            if written >= BATCH * (3 + run) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        // The lock ended with the process.
        let bytes = JournalLock::acquire(&path).unwrap().read().unwrap();
        let mut count = 0;
        for read in Records::of(&bytes) {
            assert_eq!(read, record(count), "corrupt");
            count += 1;
        }
        assert!(count >= written && written > 0, "{count} of {written} are there");
    }
}

fn write_for_ever(path: &Path) {
    let mut file = JournalLock::acquire(path).unwrap().rewrite(&[]).unwrap();
    // Far more than the test waits for.
    for batch in 0..10_000 {
        let records: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(record).collect();
        file.append(&records).unwrap();
        println!("on disk: {}", (batch + 1) * BATCH);
    }
}
