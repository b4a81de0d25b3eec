//! `bentpipe-lab papers` and `bentpipe-lab report` as processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use percent_encoding::percent_decode_str;
use yaml_rust2::{Yaml, YamlLoader};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe-lab");

/// Cells in virtual time, which are identical to the last digit on every machine.
const TINY: [&str; 7] = ["netforecast", "--quick", "--only", "epb", "--engine", "sim", "--seed"];

/// Number of cells, each in its own file.
const CELLS: usize = 5;

fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

fn run(seed: &str, rest: &[&str]) -> String {
    let output = lab(&[&["papers"], &TINY[..], &[seed], rest].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Files to which the page links; checks that all exist.
fn led_to(page: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(page).expect("a page");
    let mut files = Vec::new();
    let after = |what: &'static str| text.split(what).skip(1);
    for rest in after("href=\"").chain(after("src=\"")) {
        let address = rest.split('"').next().expect("an address");
        if address.starts_with("data:") {
            continue;
        }
        if let Some(place) = address.strip_prefix('#') {
            assert!(text.contains(&format!("id=\"{place}\"")), "{address} leads nowhere");
            continue;
        }
        let path = percent_decode_str(address).decode_utf8().expect("a path");
        let path = page.parent().expect("a folder").join(&*path);
        assert!(path.is_file(), "{address}: there is no {}", path.display());
        files.push(path);
    }
    files
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// Creates a folder for the search path with one program, a shell script.
fn search_path(folder: &Path, name: &str, script: &str) -> String {
    fs::create_dir_all(folder).expect("a folder");
    let program = folder.join(name);
    // Another process writes it. If this one did, a child of another test could inherit the open file,
    // and the system does not run a program that somebody has open for writing.
    let text = format!("#!/bin/sh\n{script}\n");
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let written = Command::new("sh").args(["-c", write, "sh", &text]).arg(&program).status();
    assert!(written.expect("a shell").success());
    let others = std::env::var("PATH").expect("a search path");
    format!("{}:{others}", folder.display())
}

/// Contents of every file of a run's folder, except the log, which contains times.
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
    assert!(said.contains(&format!("{CELLS} cells measured")), "{said}");

    let script = deploy("lab-slurm.sh");
    let slurm = |variable: &str, value: &str, rest: &[&str]| {
        let mut command = Command::new(&script);
        command.env("BENTPIPE_LAB", PROGRAM).env(variable, value).arg(&results).args(rest);
        command.spawn().expect("the script starts")
    };
    let tiny = [&["2"], &TINY[..], &["5"]].concat();
    let shards = ["1", "2"].map(|shard| slurm("SLURM_ARRAY_TASK_ID", shard, &tiny));
    for mut shard in shards {
        assert!(shard.wait().expect("a shard").success());
    }
    // A file as left by --raw; cells in virtual time have none.
    let har = "raw/cells/netforecast/epb/cell.0.har";
    for folder in [Path::new(&whole), &at.path().join("results/shard-2")] {
        fs::create_dir_all(folder.join("raw/cells/netforecast/epb")).expect("a folder");
        fs::write(folder.join(har), "{}").expect("a file");
    }
    assert!(slurm("BENTPIPE_MERGE", "1", &[]).wait().expect("the merge").success());

    let merged = at.path().join("results/whole");
    let (whole, same) = (contents(Path::new(&whole)), contents(&merged));
    assert_eq!(whole.keys().collect::<Vec<_>>(), same.keys().collect::<Vec<_>>());
    assert!(whole == same, "the same files have other contents");
    assert!(whole.len() == CELLS + 3, "a manifest, a table, a HAR and cells: {:?}", whole.keys());
    let page = at.path().join("results/report.html");
    assert!(fs::read_to_string(&page).expect("a report").contains("NFR5132"));
    let led_to = led_to(&page);
    assert!(
        led_to.len() == CELLS && led_to.iter().all(|path| path.starts_with(&merged)),
        "{led_to:?}"
    );
}

/// The reference run is a copy without the files of its cells.
#[test]
fn the_report_of_a_copy_leads_to_nothing_that_is_not_there() {
    let at = tempfile::tempdir().unwrap();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    assert!(!reference.join("cells").exists());
    let page = at.path().join("report.html");
    let output = Command::new(PROGRAM)
        .arg("report")
        .arg(&reference)
        .arg("--out")
        .arg(&page)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let led_to = led_to(&page);
    assert!(led_to.len() > 100 && led_to.iter().all(|path| path.extension().unwrap() == "parquet"));
    let text = fs::read_to_string(&page).expect("a page");
    assert!(text.contains("This copy of the run has no raw files of its cells"));
}

#[test]
fn the_slurm_script_queues_its_tasks_and_the_report_behind_them() {
    let at = tempfile::tempdir().unwrap();
    let queued = at.path().join("queued");
    let script = format!("echo \"$@\" >> {}; echo 42", queued.display());
    let output = Command::new(deploy("lab-slurm.sh"))
        .env("PATH", search_path(&at.path().join("bin"), "sbatch", &script))
        .arg(at.path().join("results"))
        .args(["3", "--quick"])
        .output()
        .expect("the script starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let queued = fs::read_to_string(queued).expect("what was queued");
    let [array, report] = queued.lines().collect::<Vec<_>>()[..] else { panic!("{queued}") };
    assert!(array.contains("--array=1-3 ") && array.contains("--cpus-per-task=2"), "{array}");
    assert!(array.ends_with("/results 3 --quick"), "{array}");
    assert!(report.contains("--dependency=afterok:42 "), "{report}");
    assert!(report.contains("--export=ALL,BENTPIPE_MERGE=1 ") && report.ends_with("/results"));
}

/// Runs the containers' commands: every shard of the Indexed Job, then the merging Job.
#[test]
fn the_jobs_of_a_cluster_run_all_shards_and_put_them_together() {
    let at = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(deploy("lab-k8s.yaml")).expect("the jobs");
    let documents = YamlLoader::load_from_str(&text).expect("YAML");
    let job = |name| {
        let is_it = |one: &&Yaml| {
            (one["kind"].as_str(), one["metadata"]["name"].as_str()) == (Some("Job"), Some(name))
        };
        &documents.iter().find(is_it).expect(name)["spec"]
    };
    let (lab, report) = (job("bentpipe-lab"), job("bentpipe-lab-report"));
    let shards = lab["completions"].as_i64().expect("a number of shards");
    assert_eq!(lab["completionMode"].as_str(), Some("Indexed"));
    assert_eq!(lab["parallelism"].as_i64(), Some(shards));
    assert_eq!(report["suspend"].as_bool(), Some(true));

    // The whole would take hours, so only the tiny part is run.
    let tiny = [&TINY[..], &["5"]].concat().join(" ");
    let asked = at.path().join("asked");
    let script = format!(
        "case \"$*\" in \"papers --shard \"*) shift; echo \"$2\" >> {}; \
         exec {PROGRAM} papers {tiny} \"$@\";; esac\n\
         exec {PROGRAM} \"$@\"",
        asked.display(),
    );
    let path = search_path(&at.path().join("bin"), "bentpipe-lab", &script);
    let results = at.path().join("results");
    fs::create_dir(&results).expect("a folder");
    let run = |job: &Yaml, index: i64| {
        let container = &job["template"]["spec"]["containers"][0];
        let words = |key: &str| container[key].as_vec().expect(key).iter();
        let texts = words("command").chain(words("args")).map(|word| word.as_str().expect("text"));
        let here = texts.map(|text| text.replace("/results", &results.to_string_lossy()));
        let words: Vec<String> = here.collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PATH", &path).env("JOB_COMPLETION_INDEX", index.to_string());
        for one in container["env"].as_vec().into_iter().flatten() {
            command
                .env(one["name"].as_str().expect("a name"), one["value"].as_str().expect("text"));
        }
        let output = command.output().expect("the shell starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        words.join(" ")
    };
    for index in 0..shards {
        run(lab, index);
    }
    let asked = fs::read_to_string(asked).expect("shards");
    let all: Vec<String> = (1..=shards).map(|shard| format!("{shard}/{shards}")).collect();
    assert_eq!(asked.lines().collect::<Vec<_>>(), all);
    let said = run(report, 0);
    let count = fs::read_dir(results.join("whole/cells/netforecast/epb")).expect("cells").count();
    assert_eq!(count, CELLS);
    assert_eq!(led_to(&results.join("report.html")).len(), CELLS);
    let (_, vega) = said.split_once("--vega ").expect("figures");
    let vega = vega.split_whitespace().next().expect("a file");
    let image = fs::read_to_string(deploy("Dockerfile")).expect("the image");
    assert!(image.contains(vega), "the image has no {vega}");
}

#[test]
fn a_run_goes_on_where_it_was_and_another_run_is_refused() {
    let at = tempfile::tempdir().unwrap();
    let folder = at.path().to_string_lossy().into_owned();
    run("1", &["--shard", "1/2", &folder]);
    let had = fs::read_dir(at.path().join("cells/netforecast/epb")).expect("cells").count();
    assert!(had > 0 && had < CELLS);
    let said = run("1", &[&folder]);
    let left = format!("{} cells measured", CELLS - had);
    assert!(said.contains(&left) && said.contains(&format!("{had} were there before")), "{said}");
    let other = lab(&[&["papers"], &TINY[..], &["2", &folder]].concat());
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("results of another run"), "{said}");
}

#[test]
fn impossible_arguments_are_refused_with_a_hint() {
    for (words, hint) in [
        (&["papers", "mile-hig", "x"][..], "mile-high"),
        (&["papers", "--only", "files2", "x"], "there is no grid"),
        (&["papers", "aerotcp"], "name the folder"),
        (&["papers", "--shard", "3/2", "x"], "2/8"),
        (&["papers", "--merge", "x"], "nothing to merge"),
        (&["report", "/nowhere"], "/nowhere/manifest.json"),
    ] {
        let output = lab(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(hint), "{words:?}: {said}");
    }
}
