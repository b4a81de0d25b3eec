//! The program in the client's namespace, and its records.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use bentpipe_probe::record::{Measurement, Record};
use bentpipe_probe_host::store::{Item, read};
use tempfile::TempDir;

use crate::hosts::Chain;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe-probe");

/// A run that has ended.
pub struct Run {
    /// Its records.
    pub records: Vec<Record>,
    /// Its standard output.
    pub output: String,
    folder: TempDir,
}

impl Run {
    /// Runs the program for `seconds`, with all rights or with none. Its resolver is the chain's target.
    pub fn new(chain: &Chain, arguments: &[&str], seconds: u32, rights: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("probe.sqlite");
        let output = start(chain, &folder, arguments, &store, seconds, rights);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        let mut records = Vec::new();
        read(&store, |item| {
            if let Item::Record(record) = item {
                records.push(record);
            }
            Ok::<(), std::convert::Infallible>(())
        })
        .expect("a store")
        .expect("infallible");
        Self { records, output: text(&output.stdout), folder }
    }

    /// Runs the program with its own list of names.
    pub fn with_names(chain: &Chain, arguments: &[&str], names: &str, seconds: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("names");
        fs::write(&list, names).expect("a file");
        let list = list.display().to_string();
        Self::new(chain, &[arguments, &["--names", &list]].concat(), seconds, false)
    }

    /// Runs the program with a store that cannot be written. Returns standard output and standard error.
    pub fn without_a_store(chain: &Chain, arguments: &[&str], seconds: u32) -> (String, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let output =
            start(chain, &folder, arguments, Path::new("/proc/none/probe.sqlite"), seconds, false);
        assert!(!output.status.success(), "lost records are a failure");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    }

    /// All measurements.
    pub fn measurements(&self) -> impl Iterator<Item = &Measurement> {
        self.records.iter().map(|record| &record.measurement)
    }

    /// Checks that `report` and `export` make something of the store.
    pub fn check_report(&self, parts: &[&str]) {
        let (store, page) =
            (self.folder.path().join("probe.sqlite"), self.folder.path().join("page.html"));
        let (track, table) =
            (self.folder.path().join("track.csv"), self.folder.path().join("table.tsv"));
        let start_s = self.records[0].began.wall_us / 1_000_000;
        let fixes: String = (-600..600)
            .step_by(60)
            .map(|s| format!("{},50,{},36000\n", start_s + s, f64::from(s as i32) / 400.0))
            .collect();
        fs::write(&track, format!("timestamp,lat,lon,altitude_ft\n{fixes}")).expect("a file");
        fs::write(&table, "10.0.0.0\t10.255.255.255\t64496\tZZ\tEXAMPLE-CABIN\n").expect("a file");
        let status = Command::new(PROGRAM)
            .args(["report".as_ref(), store.as_os_str(), "--out".as_ref(), page.as_os_str()])
            .args(["--track".as_ref(), track.as_os_str(), "--as-table".as_ref(), table.as_os_str()])
            .status();
        assert!(status.expect("the program").success());
        let text = fs::read_to_string(page).expect("a page");
        for part in parts.iter().chain(&["EXAMPLE-CABIN", "track.csv: CSV, 20 positions"]) {
            assert!(text.contains(part), "{part}: {text}");
        }
        let lines =
            Command::new(PROGRAM).arg("export").arg(&store).output().expect("the program").stdout;
        let lines = String::from_utf8(lines).expect("text");
        assert_eq!(lines.lines().count(), self.records.len());
        for line in lines.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(
                value["test_name"].as_str().is_some_and(|name| name.starts_with("inflight_")),
                "{line}"
            );
        }
    }
}

fn start(
    chain: &Chain,
    folder: &TempDir,
    arguments: &[&str],
    store: &Path,
    seconds: u32,
    rights: bool,
) -> Output {
    let resolv = folder.path().join("resolv.conf");
    fs::write(&resolv, format!("nameserver {}\n", chain.target(false))).expect("a file");
    let pid = chain.client().pid().to_string();
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid, "-n", "unshare", "--mount", "sh", "-ec"]);
    // The file may be a link to one that does not exist here.
    command
        .arg("mount --bind \"$0\" \"$(readlink -f /etc/resolv.conf)\"; exec \"$@\"")
        .arg(&resolv);
    if !rights {
        command.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    }
    command
        .arg(PROGRAM)
        .args(arguments)
        .arg("--store")
        .arg(store)
        .args(["--for", &format!("{seconds} s")]);
    command.output().expect("nsenter")
}
