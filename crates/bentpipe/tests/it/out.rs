//! Output to a closed pipe or a full disk.

use std::fs::OpenOptions;
use std::io;
use std::process::{Command, Stdio};

fn bentpipe(stdout: Stdio) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command.args(["classify", "example.org:443", "--config"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rural-paws/air.toml"));
    command.stdout(stdout).stderr(Stdio::piped()).output().expect("it runs")
}

#[test]
fn a_reader_who_has_enough_is_no_failure() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let output = bentpipe(writer.into());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_full_disk_is_told_in_a_sentence() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bentpipe(full.into());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("bentpipe: writing to standard output failed: No space"), "{said}");
}
