//! The README's quick start and the shell blocks of the guides, on hosts that are namespaces: a
//! server, both gateways, and a device behind the air gateway.
//!
//! A block of a page says where it runs (`sh on=air`), or is not run (`sh ignore`), and a comment
//! above it says why.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::hosts::obstacle;

/// Hosts of the quick start on which a block may run.
const HOSTS: [&str; 3] = ["air", "ground", "device"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A shell block of a page.
struct Block {
    /// The page and the line at which the block begins.
    place: String,
    /// Its host; `None` if it is not run.
    host: Option<String>,
    text: String,
}

/// Shell blocks of the README and the guides, except the quick start.
fn blocks() -> Vec<Block> {
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let folder = std::fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = folder.map(|it| it.unwrap().path()).filter(is_page).collect();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    pages.sort();
    pages.iter().flat_map(|page| blocks_of(page)).collect()
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.file_name().unwrap().to_str().unwrap();
    let (mut found, mut before, mut lines) = (Vec::new(), "", text.lines().zip(1..));
    while let Some((line, number)) = lines.next() {
        if let Some(info) = line.strip_prefix("```sh") {
            let place = format!("{name}:{number}");
            let text = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            let text: String = text.map(|line| format!("{line}\n")).collect();
            let host = info.trim().strip_prefix("on=").map(str::to_owned);
            match info {
                "" if name == "README.md" && text.contains("bentpipe init") => {}
                " ignore" => assert!(
                    before.starts_with("<!-- not run: "),
                    "{place}: a comment above the block has to say why it is not run"
                ),
                _ => assert!(
                    host.as_deref().is_some_and(|host| HOSTS.contains(&host)),
                    "{place}: write on=HOST, one of {HOSTS:?}, or ignore: {info}"
                ),
            }
            if !info.is_empty() {
                found.push(Block { place, host, text });
            }
        }
        before = line;
    }
    found
}

/// Writes the blocks that are run into files, in the order of the pages.
fn write_blocks(folder: &Path) -> Vec<String> {
    let run = blocks().into_iter().filter_map(|Block { place, host, text }| {
        let file = folder.join(format!("{place}.{}", host?));
        std::fs::write(file, text).unwrap();
        Some(place)
    });
    run.collect()
}

/// Commands of the README's quick start, one a line.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
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
    let folder = tempfile::Builder::new().prefix("quick").tempdir().unwrap();
    std::fs::create_dir(folder.path().join("blocks")).unwrap();
    let places = write_blocks(&folder.path().join("blocks"));
    assert!(places.len() > 3, "{places:?}");
    if obstacle(&["ip", "unshare", "nsenter", "python3", "curl", "mount", "sysctl"]) {
        return;
    }
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
    for place in places {
        assert!(out.contains(&format!("ran {place}\n")), "{place}\n{out}\n{err}");
    }
}
