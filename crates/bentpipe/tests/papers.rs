//! `bentpipe lab papers` and `bentpipe report` as processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Cells in virtual time, which are the same to the last digit whoever runs them.
const TINY: [&str; 7] = ["netforecast", "--quick", "--only", "epb", "--engine", "sim", "--seed"];

fn bentpipe(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

fn run(seed: &str, rest: &[&str]) -> String {
    let output = bentpipe(&[&["lab", "papers"], &TINY[..], &[seed], rest].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Every file of a run's folder but the log, which has the time in it.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "log.jsonl") {
                let name = path.strip_prefix(folder).expect("below it").to_owned();
                files.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    files
}

#[test]
fn shards_run_by_two_processes_make_the_whole() {
    let at = tempfile::tempdir().unwrap();
    let path = |name: &str| at.path().join(name).to_string_lossy().into_owned();
    let (whole, results) = (path("whole"), path("results"));
    let said = run("5", &[&whole]);
    assert!(said.contains("2 cells measured"), "{said}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/lab-slurm.sh");
    let slurm = |variable: &str, value: &str, rest: &[&str]| {
        let mut command = Command::new(&script);
        command.env("BENTPIPE", PROGRAM).env(variable, value).arg(&results).args(rest);
        command.spawn().expect("the script starts")
    };
    let tiny = [&["2"], &TINY[..], &["5"]].concat();
    let shards = ["1", "2"].map(|shard| slurm("SLURM_ARRAY_TASK_ID", shard, &tiny));
    for mut shard in shards {
        assert!(shard.wait().expect("a shard").success());
    }
    // As --raw leaves one, which cells in virtual time have none of.
    let har = "raw/cells/netforecast/epb/cell.0.har";
    for folder in [Path::new(&whole), &at.path().join("results/shard-2")] {
        fs::create_dir_all(folder.join("raw/cells/netforecast/epb")).expect("a folder");
        fs::write(folder.join(har), "{}").expect("a file");
    }
    assert!(slurm("BENTPIPE_MERGE", "1", &[]).wait().expect("the merge").success());

    let merged = at.path().join("results/whole");
    let (whole, merged) = (contents(Path::new(&whole)), contents(&merged));
    assert_eq!(whole.keys().collect::<Vec<_>>(), merged.keys().collect::<Vec<_>>());
    assert!(whole == merged, "the same files have other contents");
    assert!(whole.len() == 5, "a manifest, two cells, a table and a HAR: {:?}", whole.keys());
    let page = fs::read_to_string(at.path().join("results/report.html")).expect("a report");
    assert!(page.contains("NFR5132"));
}

#[test]
fn a_run_goes_on_where_it_was_and_another_run_is_refused() {
    let at = tempfile::tempdir().unwrap();
    let folder = at.path().to_string_lossy().into_owned();
    run("1", &["--shard", "1/2", &folder]);
    let said = run("1", &[&folder]);
    assert!(said.contains("1 cells measured") && said.contains("1 were there before"), "{said}");
    let other = bentpipe(&[&["lab", "papers"], &TINY[..], &["2", &folder]].concat());
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("results of another run"), "{said}");
}

#[test]
fn what_cannot_be_is_said() {
    for (words, hint) in [
        (&["lab", "papers", "mile-hig", "x"][..], "mile-high"),
        (&["lab", "papers", "--only", "files2", "x"], "there is no grid"),
        (&["lab", "papers", "aerotcp"], "name the folder"),
        (&["lab", "papers", "--shard", "3/2", "x"], "2/8"),
        (&["lab", "papers", "--merge", "x"], "nothing to merge"),
        (&["report", "/nowhere"], "/nowhere/manifest.json"),
    ] {
        let output = bentpipe(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(hint), "{words:?}: {said}");
    }
}
