//! The README's quick start, on hosts that are namespaces: a server, both gateways, and a device
//! behind the air gateway.

use std::path::Path;
use std::process::Command;

use super::hosts::obstacle;

/// Commands of the README's quick start, one a line.
fn commands() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, section) = text.split_once("## Quick start\n").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let is_command = |line: &&str| !line.is_empty() && !line.starts_with('#');
    block.lines().filter(is_command).map(str::to_owned).collect()
}

#[test]
fn the_quick_start_brings_a_page_through_the_pair() {
    let all = commands();
    let [install, ground, again, air, page] = &all[..] else { panic!("{all:?}") };
    assert!(
        all.len() <= 6 && install == again && install.starts_with("sudo apt install ./bentpipe_")
    );
    if obstacle(&["ip", "unshare", "nsenter", "python3", "curl", "mount"]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("quick").tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/quick_start/hosts.sh");
    let plain = |command: &String| command.strip_prefix("sudo ").unwrap().to_owned();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh"])
        .arg(script)
        .current_dir(folder.path())
        .env("BENTPIPE", env!("CARGO_BIN_EXE_bentpipe"))
        .env("ON_GROUND", plain(ground))
        .env("ON_AIR", plain(air))
        .env("ON_DEVICE", page)
        .output()
        .unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("The link is up after "), "{out}\n{err}");
    assert!(out.contains("bentpipe-air.service runs"), "{out}\n{err}");
    assert!(out.contains("a page of example.org"), "{out}\n{err}");
}
