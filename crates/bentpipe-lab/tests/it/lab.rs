//! The lab command as a process: real gateways and kernels, and the rows it writes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const KEYS: [&str; 15] = [
    "experiment",
    "engine",
    "contender",
    "profile",
    "workload",
    "metric",
    "unit",
    "n",
    "p50",
    "p95",
    "mean",
    "limit",
    "seed",
    "loss",
    "burst",
];

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bentpipe-lab")).args(arguments).output().expect("it runs")
}

/// Rows of a lab command. If this machine cannot emulate networks, prints a notice and returns
/// `None`.
fn rows(arguments: &[&str]) -> Option<Vec<Value>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.json");
    let output = lab(&[arguments, &["--json", &file.to_string_lossy()]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success()
        && ["/dev/net/tun", "user namespace"].iter().any(|s| said.contains(s))
    {
        // Not captured by the test harness.
        let mut seen = std::io::stderr();
        let why = said.trim();
        writeln!(seen, "SKIPPED: the lab cannot emulate networks here: {why}").unwrap();
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {said}");
    Some(read(&file))
}

fn read(file: &Path) -> Vec<Value> {
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for row in &rows {
        let row = row.as_object().unwrap();
        assert!(
            row.len() == KEYS.len() && KEYS.iter().all(|key| row.contains_key(*key)),
            "{row:?}"
        );
    }
    rows
}

fn figure<'a>(rows: &'a [Value], system: &str, workload: &str, metric: &str) -> &'a Value {
    let wanted = [("contender", system), ("workload", workload), ("metric", metric)];
    let is_it = |row: &&Value| wanted.iter().all(|(key, value)| row[*key] == *value);
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {wanted:?} in {rows:?}"))
}

/// The client checks every byte, so a row proves that the data arrived intact.
#[test]
fn objects_and_a_page_arrive_intact_through_the_gateways_on_a_clean_link() {
    let names = ["object-10k", "object-1m", "page-25"];
    let arguments = "run transfers --profile clean --system bentpipe --runs 3 --seed 5 \
                     --workload object-10k --workload object-1m --workload page-25";
    let Some(rows) = rows(&arguments.split_whitespace().collect::<Vec<_>>()) else { return };
    for (name, metric) in names.into_iter().zip(["completion", "completion", "plt"]) {
        let row = figure(&rows, "bentpipe", name, metric);
        assert!(row["n"].as_u64().unwrap() >= 3 && row["unit"] == "s", "{row}");
        assert!(row["p95"].as_f64().is_some() && row["limit"].is_null(), "{row}");
        assert_eq!((&row["profile"], &row["seed"]), (&"clean".into(), &5.into()));
    }
}

/// One measured testbed with loss and delay. Nothing can be faster than the limit. The simulator's
/// grids bound how much slower it is, because there the machine's load does not count.
#[test]
fn short_objects_over_the_flight_link_take_at_least_the_limit() {
    let arguments = "run transfers --profile mss --system bentpipe --runs 5 --seed 7 \
                     --workload object-10k";
    let Some(rows) = rows(&arguments.split_whitespace().collect::<Vec<_>>()) else { return };
    let row = figure(&rows, "bentpipe", "object-10k", "completion");
    let (median, limit) = (row["p50"].as_f64().unwrap(), row["limit"].as_f64().unwrap());
    assert!(median >= limit - 0.01, "{row}");
    let overhead = figure(&rows, "bentpipe", "object-10k", "overhead");
    assert!((1.0..4.0).contains(&overhead["p50"].as_f64().unwrap()), "{overhead}");
}

#[test]
fn a_simulated_minute_repeats() {
    let of = || rows(&["sim", "--profile", "mss", "--seconds", "20", "--seed", "3"]).unwrap();
    let (first, again) = (of(), of());
    let goodput = figure(&first, "bentpipe", "bulk", "goodput");
    assert_eq!(goodput, figure(&again, "bentpipe", "bulk", "goodput"));
    assert_eq!((&goodput["engine"], &goodput["unit"]), (&"sim".into(), &"bit/s".into()));
}

#[test]
fn wrong_names_say_which_there_are() {
    for (arguments, expected) in [
        (["run", "transfers", "--system", "pepsal"], "split-mptcp-bbr, pep-fixed"),
        (["run", "transfers", "--workload", "video"], "object-10k"),
        (["run", "transfers", "--profile", "geo-rural8"], "did you mean"),
        (["measure", "--seed", "1", "--json=/nowhere/x.json"], "cannot write /nowhere/x.json"),
    ] {
        let output = lab(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_call_in_virtual_time_writes_rows_of_the_same_dictionary() {
    let arguments = "run call --loss 0 --burst 1 --seconds 2 --runs 1 --check";
    let rows =
        rows(&arguments.split_whitespace().collect::<Vec<_>>()).expect("it needs no network");
    let left = figure(&rows, "bentpipe", "call, down", "residual-loss");
    assert_eq!((&left["engine"], &left["mean"]), (&"sim".into(), &0.0.into()));
    let delay = figure(&rows, "bentpipe", "call, up", "delay");
    assert_eq!((&delay["n"], &delay["unit"]), (&100.into(), &"s".into()));
}

#[test]
fn traffic_needs_a_link_with_a_rate() {
    for experiment in ["latency-under-load", "cabin-mix", "call"] {
        let output = lab(&["run", experiment, "--profile", "clean"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("clean has no rate"), "{said}");
    }
}

#[test]
fn a_simulation_is_repeatable_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.json", "b.json"].map(|name| {
        let file = folder.path().join(name);
        let arguments = ["sim", "--seconds", "5", "--json"].map(String::from);
        let arguments = [&arguments[..], &[file.to_string_lossy().into_owned()]].concat();
        let output = lab(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(read(&file).len(), 3);
        std::fs::read(file).unwrap()
    });
    assert_eq!(files[0], files[1]);
}

/// A document, and an image on another domain that it refers to, as written by `lab record`.
fn archive(folder: &Path) {
    let index = r#"
        format = 1
        name = "two"
        visit = 0
        domain = [
            { name = "www.two.test", address = "198.19.0.1" },
            { name = "img.two.test", address = "198.19.0.2" },
        ]
        [[resource]]
        domain = 0
        path = "/"
        bytes = 47
        kind = "document"
        content-type = "text/html"
        [[resource]]
        domain = 1
        path = "/a.bin?v=1"
        bytes = 30000
        kind = "other"
        after = 0
        content-type = "application/octet-stream"
    "#;
    std::fs::create_dir_all(folder.join("body")).unwrap();
    std::fs::write(folder.join("site.toml"), index).unwrap();
    let document = b"<!doctype html><title>two</title><p>a page</p>\n";
    std::fs::write(folder.join("body/0"), document).unwrap();
    std::fs::write(folder.join("body/1"), [7; 30_000]).unwrap();
}

#[test]
fn an_archive_replays_to_the_byte_in_virtual_time() {
    let folder = tempfile::tempdir().unwrap();
    archive(folder.path());
    let of = |which: &str| {
        let [rows, har] = ["json", "har"].map(|kind| folder.path().join(format!("{which}.{kind}")));
        let place = folder.path().to_string_lossy();
        let arguments = ["replay", &place, "--engine", "sim", "--runs", "2"];
        let files = ["--json", &rows.to_string_lossy(), "--har", &har.to_string_lossy()];
        let output = lab(&[&arguments[..], &files].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.stdout, std::fs::read(rows).unwrap(), std::fs::read(har).unwrap())
    };
    let first = of("first");
    assert_eq!(first, of("again"));
    let rows: Vec<Value> = serde_json::from_slice(&first.1).unwrap();
    let plt = figure(&rows, "bentpipe", "archive-two http/1.1-close", "plt");
    assert_eq!((&plt["engine"], &plt["n"]), (&"sim".into(), &2.into()));
    // Two objects, one referring to the other.
    assert!(plt["p50"].as_f64().unwrap() > 2.0 * 0.76, "{plt}");
    let har: Value = serde_json::from_slice(&first.2).unwrap();
    let url = &har["log"]["entries"][1]["request"]["url"];
    assert_eq!(url, "http://img.two.test/a.bin?v=1");
}

#[test]
fn an_archive_replays_through_the_gateways_from_two_addresses() {
    let folder = tempfile::tempdir().unwrap();
    archive(folder.path());
    let place = folder.path().to_string_lossy().into_owned();
    let arguments = ["replay", &place, "--system", "bentpipe", "--runs", "1"];
    let Some(rows) = rows(&arguments) else { return };
    let failed = figure(&rows, "bentpipe", "archive-two http/2", "failed");
    assert_eq!((&failed["engine"], failed["mean"].as_f64()), (&"emu".into(), Some(0.0)));
    let plt = figure(&rows, "bentpipe", "archive-two http/2", "plt")["p50"].as_f64().unwrap();
    assert!(plt > 2.0 * 0.76, "{plt}");
}

#[test]
fn an_unusable_archive_is_reported_before_any_load() {
    let folder = tempfile::tempdir().unwrap();
    archive(folder.path());
    let place = folder.path().to_string_lossy();
    let place: &str = &place;
    for (arguments, expected) in [
        (&["/nowhere/at-all"][..], "`bentpipe lab record DIR` has written"),
        (&[place, "--system", "pepsal"][..], "split-mptcp-bbr, pep-fixed"),
        (&[place, "--protocol", "http/9"][..], "http/3-0rtt"),
        (&[place, "--engine", "sim", "--system", "e2e-bbr"][..], "--engine emu"),
        (&[place, "--engine", "sim", "--protocol", "http/2"][..], "--engine emu"),
        (&[place, "--engine", "sim", "--browser"][..], "--engine emu"),
        (&[place, "--browser", "--protocol", "http/3-0rtt"][..], "Chromium"),
        (&[place, "--har", "/nowhere/x.har"][..], "name one --system"),
        (&[place, "--engine", "sim", "--har", "/nowhere/x.har"][..], "cannot write /nowhere/x.har"),
    ] {
        let output = lab(&[&["replay"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
    std::fs::write(folder.path().join("body/1"), [7; 10]).unwrap();
    let output = lab(&["replay", place, "--engine", "sim"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("body/1 has 10 bytes, and the index says 30000"), "{said}");
}

#[test]
fn missing_gateways_are_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (built, program) = (env!("CARGO_BIN_EXE_bentpipe-lab"), folder.path().join("bentpipe-lab"));
    std::fs::hard_link(built, &program)
        .or_else(|_| std::fs::copy(built, &program).map(drop))
        .unwrap();
    let output =
        Command::new(program).args(["bench", "cpu"]).env("PATH", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("bentpipe-lab: the program bentpipe is not installed"), "{said}");
    assert!(said.contains("cargo build --release --bin bentpipe`"), "{said}");
}
