//! Checks docs/settings.md against the types: every key is documented, every documented key is
//! accepted, and the documented defaults are correct.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::*;

const DOCUMENT: &str = include_str!("../../../docs/settings.md");

/// A setting that does not exist.
const UNKNOWN: &str = "no-such-setting = 1";

/// A file with every table, and in each table only the required keys.
const AIR: &str = r#"
[link]
private-key-file = "air.key"
peer = "hub.example.net:4500"
peer-public-key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
rate = "1 Mbit/s"
[link.memory]
[link.modem]
protocol = "dlep"
[listen]
[listen.tproxy]
port = 1081
interfaces = ["eth1"]
[listen.auth]
username = "crew"
password = "secret"
[classes.assured]
[trusted]
passenger = "10.0.0.0/8"
[usage]
directory = "usage"
[status]
file = "status.json"
[dns]
[dns.encrypted]
certificate = "chain.pem"
key = "key.pem"
[dns.instant-names]
v4 = "100.64.0.0/10"
[http-cache]
[preload]
manifest = "portal.txt"
[page]
listen = "10.0.0.1:80"
[[site]]
name = "portal.example"
certificate = "chain.pem"
key = "key.pem"
[limits]
[split-http]
[limits.udp]
[limits.ip]
[raw]
protocols = ["esp"]
[aerotcp]
rtt = "480 ms"
[[aerotcp.table]]
connections = 4
bandwidth = "1 Mbit/s"
[[rule]]
class = "assured"
"#;

const GROUND: &str = r#"
[link]
private-key-file = "ground.key"
[link.memory]
[[aircraft]]
name = "D-ABCD"
public-key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
rate = "1 Mbit/s"
[aircraft.memory]
[aircraft.classes.assured]
[beam]
[masque]
certificate = "chain.pem"
key = "key.pem"
[[client]]
name = "laptop"
token-hash = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
[classes.assured]
[dial]
[dns]
[status]
file = "status.json"
[limits]
[split-http]
[[site]]
name = "portal.example"
[limits.udp]
[limits.ip]
[raw]
protocols = ["esp"]
[aerotcp]
rtt = "480 ms"
[[aerotcp.table]]
connections = 4
bandwidth = "1 Mbit/s"
"#;

#[test]
fn every_setting_of_air_toml_is_in_the_reference() {
    compare::<AirConfig>("## air.toml", AIR);
}

#[test]
fn every_setting_of_ground_toml_is_in_the_reference() {
    compare::<GroundConfig>("## ground.toml", GROUND);
}

/// Keys of each table with their documented defaults, by the table's header. The header is empty
/// for the top of a file.
type Tables = BTreeMap<String, BTreeMap<String, String>>;

fn compare<T: DeserializeOwned + Debug>(part: &str, whole: &str) {
    let mut documented = tables(part);
    let own: BTreeSet<String> = documented.keys().cloned().collect();
    documented.extend(tables("## Either file"));
    let headers: Vec<&str> = whole.lines().filter(|line| line.starts_with('[')).collect();
    for header in std::iter::once("").chain(headers.iter().copied()) {
        let accepted = accepted::<T>(header);
        let header = header.replace("assured", "CLASS");
        let rows = documented.get(&header).unwrap_or_else(|| panic!("{part} lacks {header:?}"));
        let keys: BTreeSet<String> = rows.keys().cloned().collect();
        assert_eq!(keys, accepted, "{header:?} of {part}");
        for key in &accepted {
            assert_table_is_known::<T>(&header, key, whole);
        }
        for (key, default) in rows {
            check_default::<T>(whole, &header.replace("CLASS", "assured"), key, default);
        }
    }
    for header in own.iter().filter(|header| !header.is_empty()) {
        assert!(headers.contains(&header.as_str()), "{part} has {header}, which is no table");
    }
}

/// Settings in the part of the document that starts with `part`.
fn tables(part: &str) -> Tables {
    let (_, text) = DOCUMENT.split_once(part).expect("the document has this part");
    let text = text.split_once("\n## ").map_or(text, |(text, _)| text);
    let mut tables = Tables::new();
    for section in text.split("\n### ").skip(1) {
        let (heading, rows) = section.split_once('\n').expect("a section has rows");
        let rows: BTreeMap<_, _> = rows.lines().filter_map(row).collect();
        let top = vec![""];
        let headers = if heading == "Top" { top } else { code(heading).collect() };
        tables.extend(headers.into_iter().map(|header| (header.to_owned(), rows.clone())));
    }
    tables
}

/// Key and default in a table row.
fn row(line: &str) -> Option<(String, String)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let key = cells.next()?.strip_suffix('`')?;
    Some((key.to_owned(), cells.nth(1)?.to_owned()))
}

/// Text between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Keys that serde accepts under `header`.
fn accepted<T: DeserializeOwned + Debug>(header: &str) -> BTreeSet<String> {
    let error = unknown::<T>(header).unwrap_or_else(|error| panic!("{header}: {error}"));
    code(&error).skip(1).map(str::to_owned).collect()
}

/// Error that lists the keys allowed under `header`, or any other error.
fn unknown<T: DeserializeOwned + Debug>(header: &str) -> Result<String, String> {
    // A subtable of a list's element follows the element.
    let parent = if header.contains("[aircraft.") { "[[aircraft]]\n" } else { "" };
    let text = format!("{parent}{header}\n{UNKNOWN}\n");
    let error = toml::from_str::<T>(&text).expect_err("this is no setting");
    let message = error.message().to_owned();
    if message.starts_with("unknown field `no-such") { Ok(message) } else { Err(message) }
}

/// Checks that a setting that is itself a table appears in the compared file.
fn assert_table_is_known<T: DeserializeOwned + Debug>(header: &str, key: &str, whole: &str) {
    let parent = header.trim_matches(['[', ']']);
    let path = if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") };
    for header in [format!("[{path}]"), format!("[[{path}]]"), format!("[{path}.assured]")] {
        let is_table = unknown::<T>(&header).is_ok();
        assert!(!is_table || whole.contains(&header), "{header} is not tested: add it here");
    }
}

/// Writing the default must change nothing; omitting a required key must be an error.
fn check_default<T: DeserializeOwned + Debug>(whole: &str, header: &str, key: &str, default: &str) {
    let begins = format!("{header}\n");
    let (before, after) = whole.split_once(&begins).expect("the file has this table");
    if default == "required" {
        let line = format!("{key} = ");
        let here = after.split("\n[").next().unwrap_or_default();
        let rest: String = here
            .lines()
            .filter(|it| !it.starts_with(&line))
            .fold(String::new(), |text, line| text + line + "\n");
        if here.contains(&line) {
            let text = format!("{before}{begins}{rest}{}", &after[here.len()..]);
            let error = toml::from_str::<T>(&text).expect_err("it is required");
            assert!(error.message().contains(&format!("missing field `{key}`")), "{error}");
        } else {
            // A required table, which the file contains.
            assert!(whole.contains(&format!("[{key}]\n")), "{key} is said to be required");
        }
        return;
    }
    let value = default.strip_prefix('`').and_then(|default| default.strip_suffix('`'));
    let Some(value) = value.filter(|value| !value.contains('`')) else { return };
    let text = format!("{before}{begins}{key} = {value}\n{after}");
    let read = |text: &str| match toml::from_str::<T>(text) {
        Ok(config) => without_places(&format!("{config:?}")),
        Err(error) => panic!("{header} {key} = {value}: {error}"),
    };
    assert_eq!(read(&text), read(whole), "the default of {key} in {header} is not {value}");
}

/// Debug output without positions.
fn without_places(debug: &str) -> String {
    let mut parts = debug.split("span: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.trim_start_matches(|c: char| "0123456789.".contains(c))
    })
}
