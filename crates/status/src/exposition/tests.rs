//! Names, uniqueness and number of the series.

use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use bentpipe_flow::Traffic;
use bentpipe_link::Class;
use bentpipe_metering::experience::{Group, Waits};

use super::*;
use crate::nameless;

fn document(sessions: usize) -> Document {
    let session = |number: usize| {
        let name = format!("boat \\ \"{number}\"");
        Session::of(Traffic::default(), Some(&name), &nameless())
    };
    let counters = [("relayed", 7), ("reset_refused", 2), ("flows_network", 3)];
    let counters = counters.map(|(name, count)| (name.to_owned(), count));
    Document {
        counters: BTreeMap::from(counters),
        experience: ["", "video \"x\""].map(experience).into(),
        sessions: (0..sessions).map(session).collect(),
        grounds: vec![crate::tests::ground()],
        egresses: vec![crate::tests::egress()],
        ..Document::empty(Gateway::Ground)
    }
}

fn experience(rule: &str) -> ExperienceEntry {
    let waits = Waits { failed: 1, ..Waits::default() };
    ExperienceEntry::of(&(Group { class: Class::Assured, rule: rule.into() }, waits))
}

#[test]
fn every_series_is_announced_once_and_is_unique() {
    let text = of(&document(3));
    let (mut announced, mut series) = (HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(announced.insert(name.to_owned()), "{name} is announced twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        } else if !line.starts_with("# HELP ") {
            let (one, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(one.to_owned()), "{one} comes twice");
            let name = one.split('{').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
            assert!(announced.contains(name) || announced.contains(base), "{name}");
        }
    }
    assert!(series.contains("bentpipe_relayed_total"));
    let failed = r#"bentpipe_experience_failed_total{class="assured",rule="video \"x\""}"#;
    assert!(series.contains(failed), "{text}");
    assert!(series.contains("bentpipe_flow_resets_total{reason=\"refused\"}"));
    assert!(series.contains(r#"bentpipe_link_up{aircraft="boat \\ \"2\""}"#), "{text}");
}

#[test]
fn ten_thousand_aircraft_have_a_bounded_number_of_series() {
    let text = of(&document(10_000));
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("bentpipe_link_up{"), MAX_SESSIONS);
    assert_eq!(lines("bentpipe_class_open_flows{"), 5 * MAX_DETAILED);
    assert_eq!(lines("bentpipe_sessions 10000"), 1);
}

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus/alerts.yml");

#[test]
fn alerts_use_metrics_that_exist() {
    let mut full = document(1);
    full.counters.insert("refused_udp_flows".to_owned(), 1);
    let text = of(&full);
    let alerts = std::fs::read_to_string(ALERTS).unwrap();
    let words = alerts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let used: HashSet<&str> = words.filter(|word| word.starts_with("bentpipe_")).collect();
    let is_there =
        |name: &&str| [" ", "{"].iter().any(|next| text.contains(&format!("\n{name}{next}")));
    let unknown: Vec<_> = used.iter().filter(|name| !is_there(name)).collect();
    assert!(used.len() > 4 && unknown.is_empty(), "{unknown:?}");
}

/// Result and messages of `promtool check` with this input; `None` without the tool.
fn promtool(what: &[&str], input: &str) -> Option<(bool, String)> {
    let mut tool = Command::new("promtool")
        .arg("check")
        .args(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    tool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let found = tool.wait_with_output().unwrap();
    Some((found.status.success(), String::from_utf8_lossy(&found.stderr).into_owned()))
}

#[test]
fn prometheus_finds_no_fault_in_metrics_and_alerts() {
    let Some(metrics) = promtool(&["metrics"], &of(&document(2))) else {
        // Past the harness, which keeps what a test prints.
        let line = "SKIPPED: metrics and alerts are not checked by promtool, which is not here\n";
        std::fs::write("/dev/stderr", line).unwrap();
        return;
    };
    assert_eq!(metrics, (true, String::new()));
    let alerts = promtool(&["rules", ALERTS], "").unwrap();
    assert!(alerts.0, "{}", alerts.1);
}
