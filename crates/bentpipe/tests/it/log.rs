//! Logs as JSON: every line that a gateway writes to stderr is one object.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::gateway::Gateway;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Configuration of a ground gateway at any port.
fn ground() -> String {
    format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{KEY}\"\nrate = \"2 Mbit/s\"\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n"
    )
}

fn folder(ground: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.key"), KEY).unwrap();
    std::fs::write(folder.path().join("ground.toml"), ground).unwrap();
    folder
}

fn bentpipe(arguments: &[&str], format: Option<&str>, folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command.args(arguments).current_dir(folder).env("NO_COLOR", "1").env("RUST_LOG", "off");
    if let Some(format) = format {
        command.env("BENTPIPE_LOG_FORMAT", format);
    }
    command.output().unwrap()
}

/// Reads a line as an event; returns its level and message.
fn event(line: &str) -> (String, String) {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(value["timestamp"].is_string(), "{line}");
    (text(&value["level"]), text(&value["fields"]["message"]))
}

fn events(lines: &[String]) -> Vec<(String, String)> {
    lines.iter().map(|line| event(line)).collect()
}

#[test]
fn every_line_of_a_gateway_is_an_object() {
    let folder = folder(&ground());
    let file = folder.path().join("ground.toml");
    let gateway = Gateway::start_with(&["--log-format", "json"], "ground", folder.path());
    let start = events(&gateway.until("serving"));
    assert_eq!(start.last().unwrap(), &("INFO".to_owned(), "serving".to_owned()));
    // Its error has several lines.
    std::fs::write(&file, format!("{}[classes.assured]\nceil = \"fast\"\n", ground())).unwrap();
    gateway.hang_up();
    let (level, message) = events(&gateway.until("stays as it was")).pop().unwrap();
    assert_eq!(level, "ERROR");
    assert!(message.contains('\n') && message.contains("ceil"), "{message}");
    let end = events(&gateway.stop());
    assert!(end.iter().any(|(_, message)| message.starts_with("stopping")), "{end:?}");
}

#[test]
fn an_error_of_the_start_is_an_object_too() {
    let folder = folder("[link]\nlisten = 5\n");
    let run = |arguments: &[&str], format| {
        let output = bentpipe(arguments, format, folder.path());
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let start = ["ground", "--config", "ground.toml"];
    for (arguments, format, part) in [
        (&["ground", "--config", "ground.toml", "--log-format", "json"][..], None, "listen"),
        (&start, Some("json"), "listen"),
        (&["--log-format=json", "ground", "--confg", "ground.toml"], None, "--confg"),
        (&["ground", "--confg", "ground.toml"], Some("json"), "--confg"),
    ] {
        let said = run(arguments, format);
        assert_eq!(said.lines().count(), 1, "{said}");
        let (level, message) = event(said.trim_end());
        assert!(level == "ERROR" && message.contains(part), "{said}");
    }
    let said = run(&start, None);
    assert!(said.starts_with("bentpipe: ") && said.lines().count() > 1, "{said}");
}
