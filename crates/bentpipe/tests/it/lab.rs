//! The commands of the lab, which another program has.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Makes a folder with the gateways' program; returns its path.
fn installed(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("bentpipe");
    // The program looks beside its real place, so a link would not do.
    fs::hard_link(env!("CARGO_BIN_EXE_bentpipe"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_bentpipe"), &program).map(drop))
        .unwrap();
    program
}

fn run(program: &Path, arguments: &[&str], path: &Path) -> Output {
    Command::new(program).args(arguments).env("PATH", path).output().unwrap()
}

#[test]
fn commands_of_the_lab_go_to_its_program_with_all_their_arguments() {
    let [own, path] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let program = installed(own.path());
    // `echo` prints its arguments.
    symlink("/bin/echo", path.path().join("bentpipe-lab")).unwrap();
    for (arguments, passed) in [
        (&["lab", "run", "transfers", "--runs", "2"][..], "run transfers --runs 2\n"),
        (&["demo", "--quick"], "demo --quick\n"),
        (&["report", "DIR", "--out", "x.html"], "report DIR --out x.html\n"),
        (&["lab", "papers", "-h"], "papers -h\n"),
    ] {
        let output = run(&program, arguments, path.path());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), passed);
    }
}

#[test]
fn a_missing_lab_is_told_with_what_to_do() {
    let own = tempfile::tempdir().unwrap();
    let output = run(&installed(own.path()), &["lab", "run", "grid"], Path::new("/nonexistent"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("bentpipe: the program bentpipe-lab is not installed"), "{said}");
    assert!(said.contains("cargo build --release --bin bentpipe-lab"), "{said}");
}
