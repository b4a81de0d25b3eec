//! Nothing is left behind, and root privileges are not needed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_lab::emu::Testbed;

use crate::links;

/// Argument that makes this program bring up a testbed and wait to be killed.
pub const HOLD_A_TESTBED: &str = "--hold-a-testbed";

/// An unprivileged account with the same number on every Linux.
const NOBODY: u32 = 65534;

pub fn with_the_testbed() {
    let named = || fs::read_dir("/run/netns").map_or(0, |names| names.count());
    let named_before = named();
    let testbed = Testbed::new(&links::clean(), Some(&links::mss()), 1).expect("a testbed");
    let inode = testbed.air.namespace().metadata().expect("the namespace").ino();
    assert!(threads().iter().any(|name| name.starts_with("wire")));
    assert_eq!(named(), named_before);
    drop(testbed);
    assert!(!threads().iter().any(|name| name.starts_with("wire")), "{:?}", threads());
    assert!(!held(inode), "a descriptor still holds the namespace");
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).collect()
}

fn held(inode: u64) -> bool {
    let files = fs::read_dir("/proc/self/fd").expect("the descriptors").flatten();
    files.filter_map(|fd| fs::metadata(fd.path()).ok()).any(|file| file.ino() == inode)
}

/// Brings up a testbed with a program in it, prints the program's ID, and waits.
pub fn hold_a_testbed() -> ! {
    let testbed = Testbed::new(&links::clean(), None, 1).expect("a testbed");
    let mut child = testbed.air.command("sleep").arg("1000").spawn().expect("sleep runs");
    println!("{}", child.id());
    child.wait().expect("sleep ends");
    std::process::exit(1)
}

pub fn programs() {
    let mut this = Command::new(std::env::current_exe().expect("this program"));
    let mut holder = this.arg(HOLD_A_TESTBED).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let output = holder.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let sleeper = PathBuf::from(format!("/proc/{}", line.trim()));
    assert!(sleeper.exists(), "{line:?}");
    holder.kill().expect("killed");
    holder.wait().expect("gone");
    let began = Instant::now();
    // A dead process that has not been reaped has no memory.
    let dead = || fs::read(sleeper.join("cmdline")).map_or(true, |line| line.is_empty());
    while !dead() {
        assert!(began.elapsed() < Duration::from_secs(60), "the program outlived its testbed");
        thread::sleep(Duration::from_millis(10));
    }
}

pub fn rootless() {
    if fs::metadata("/dev/net/tun").map_or(0, |tun| tun.mode() & 0o006) != 0o006 {
        println!("SKIPPED: /dev/net/tun is closed to other users (chmod 0666 /dev/net/tun)");
        return;
    }
    let outer_root = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    if !outer_root {
        println!("  not root: every other test here has shown it already");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open.clone()).expect("opened");
    let copy = folder.path().join("emu");
    fs::copy(std::env::current_exe().expect("this program"), &copy).expect("copied");
    fs::set_permissions(&copy, open).expect("opened");
    let mut this = Command::new(&copy);
    let output = this.uid(NOBODY).gid(NOBODY).args(["tcp_runs", "commands"]).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    assert_eq!(said.matches("... ok").count(), 2, "{said}{complaint}");
}
