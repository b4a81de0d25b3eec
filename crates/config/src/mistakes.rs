//! Further mistakes in a configuration, for an operator who wants to see all of them at once.
//!
//! Reading stops at the first mistake. Here the setting with the mistake is left out and the rest is
//! read again. A setting that has to be there is replaced by one without a mistake.

use std::path::Path;

use bentpipe_link::SecretKey;

use super::{AirConfig, ConfigError, GroundConfig, Which};

/// Maximum number of mistakes reported at once.
pub const MAX_MISTAKES: usize = 20;

/// Names of settings with keys, which cannot be left out.
const KEYS: [&str; 2] = ["peer-public-key", "public-key"];

/// Other settings that cannot be left out, with values.
const REPLACEMENTS: [(&str, &str); 3] =
    [("peer", "192.0.2.1:4500"), ("class", "best-effort"), ("rtt", "600 ms")];

/// Returns the mistakes in the configuration `text` of `file`, in the order of their lines. A mistake
/// may hide others, such as the reason why a setting is missing.
pub fn mistakes(file: &Path, text: &str) -> Vec<ConfigError> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut found: Vec<ConfigError> = Vec::new();
    while found.len() < MAX_MISTAKES {
        let Some(error) = mistake(file, &lines.join("\n")) else { break };
        // Something that was left out may be what is missing now.
        if !found.is_empty() && (is_about_absence(&error) || error.line.is_none()) {
            break;
        }
        // The line as the operator wrote it.
        let line = error.line;
        found.push(error);
        if !line.is_some_and(|line| leave_out(&mut lines, line - 1)) {
            break;
        }
    }
    found.sort_by_key(|error| error.line);
    found
}

fn mistake(file: &Path, text: &str) -> Option<ConfigError> {
    match Which::of(text) {
        Some(Which::Ground) => GroundConfig::parse(file, text).err(),
        _ => AirConfig::parse(file, text).err(),
    }
}

fn is_about_absence(error: &ConfigError) -> bool {
    error.why.ends_with(" is missing")
}

/// Leaves out what begins in this line: a setting with all lines of its value, or a table. Returns
/// `false` if nothing is left out.
fn leave_out(lines: &mut [String], first: usize) -> bool {
    let Some(line) = lines.get(first).filter(|line| !line.trim().is_empty()) else { return false };
    let is_table = line.trim_start().starts_with('[');
    let replacement = setting(line).and_then(|name| replacement(name, first));
    if replacement.as_ref() == Some(line) {
        return false;
    }
    let was_toml = is_toml(lines);
    lines[first] = replacement.unwrap_or_default();
    for rest in first + 1..lines.len() {
        let is_done = match is_table {
            true => lines[rest].trim_start().starts_with('['),
            false => !was_toml || is_toml(lines),
        };
        if is_done {
            break;
        }
        lines[rest].clear();
    }
    true
}

/// Line for a setting that cannot be left out, in place of `line`.
fn replacement(name: &str, line: usize) -> Option<String> {
    if KEYS.contains(&name) {
        // No two aircraft have the same key.
        let mut bytes = [0x42; 32];
        bytes[..8].copy_from_slice(&(line as u64).to_be_bytes());
        return Some(format!("{name} = \"{}\"", SecretKey::from_bytes(bytes).public()));
    }
    let (_, value) = REPLACEMENTS.iter().find(|(known, _)| *known == name)?;
    Some(format!("{name} = \"{value}\""))
}

/// Name of the setting in a line.
fn setting(line: &str) -> Option<&str> {
    Some(line.split_once('=')?.0.trim())
}

fn is_toml(lines: &[String]) -> bool {
    lines.join("\n").parse::<toml::Table>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    /// Lines of the mistakes in an `air.toml` with `link` and `rest`.
    fn lines(link: &str, rest: &str) -> Vec<Option<usize>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("air.key"), format!("{KEY}\n")).unwrap();
        let text = format!(
            "[link]\nprivate-key-file = \"air.key\"\n{link}\n[listen]\nsocks5 = \"127.0.0.1:1\"\n{rest}\n"
        );
        let found = mistakes(&folder.path().join("air.toml"), &text);
        found.iter().map(|error| error.line).collect()
    }

    fn good() -> String {
        format!("peer = \"192.0.2.1:4500\"\npeer-public-key = \"{KEY}\"")
    }

    #[test]
    fn every_mistake_of_a_file_is_found() {
        assert_eq!(lines(&good(), ""), []);
        let rest = "hppt-proxy = \"127.0.0.1:2\"\nquic = \"carry-it\"\n[classes.assured]\nrate = \"1\"\n\
                    [status]\nfile = \"a\"\ninterval = \"1 ms\"\n[nothing]\na = 1\nb = 2\n[dns]\ncache = 5";
        let found = lines(&good(), rest);
        assert_eq!(found, [7, 8, 10, 13, 14, 18].map(Some));
    }

    #[test]
    fn a_setting_that_has_to_be_there_hides_nothing() {
        let link = "peer = \"udp://ground\"\npeer-public-key = \"PUT IT HERE\"\nmtu = 3";
        let found = lines(link, "auth = 1");
        assert_eq!(found, [3, 4, 5, 8].map(Some));
    }

    #[test]
    fn a_value_of_several_lines_is_left_out_as_a_whole() {
        let rest = "nothing = [\n  1,\n  2,\n]\nquic = \"carry-it\"";
        assert_eq!(lines(&good(), rest), [Some(7), Some(11)]);
    }

    #[test]
    fn mistakes_of_syntax_are_found_too() {
        let rest = "quic: \"carry\"\nhttp-proxy = 127.0.0.1:2\nauth = 1";
        assert_eq!(lines(&good(), rest), [Some(7), Some(8), Some(9)]);
    }

    #[test]
    fn two_aircraft_without_keys_are_no_further_mistake() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ground.key"), format!("{KEY}\n")).unwrap();
        let aircraft =
            |name: &str| format!("[[aircraft]]\nname = \"{name}\"\npublic-key = \"x\"\n");
        let text = format!(
            "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"127.0.0.1:4500\"\n{}{}",
            aircraft("a"),
            aircraft("b")
        );
        let found = mistakes(&folder.path().join("ground.toml"), &text);
        let lines: Vec<_> = found.iter().map(|error| error.line).collect();
        assert_eq!(lines, [Some(6), Some(9)], "{found:?}");
    }

    #[test]
    fn what_is_missing_is_told_once() {
        assert_eq!(lines("", ""), [Some(1)]);
        let many: String = (0..40).map(|number| format!("a{number} = 1\n")).collect();
        assert_eq!(lines(&good(), &many).len(), MAX_MISTAKES);
    }
}
