//! Errors in a configuration file, each with a correction.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::secret::{may_hold_secret, shown, without_keys};
use super::source::Source;

/// A problem in a configuration file: its position, the faulty line, and the correction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Line number, counted from one, if the problem has a position.
    pub line: Option<usize>,
    /// Text of that line.
    pub text: String,
    /// Description of the problem.
    pub why: String,
    /// Correction; may be empty if `why` already contains it.
    pub help: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.why)?;
        if !self.text.is_empty() {
            write!(f, "\n    {}", self.text)?;
        }
        if !self.help.is_empty() {
            write!(f, "\n{}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Examples for missing required keys.
const MISSING: &[(&str, &str)] = &[
    ("link", "write the table [link], see docs/settings.md"),
    ("listen", "write where clients come in: [listen] with socks5 = \"127.0.0.1:1080\""),
    ("private-key-file", "make one with `bentpipe keys --out FILE` and name that file here"),
    ("peer-public-key", "write the ground's public key; `bentpipe keys` on the ground shows it"),
    ("public-key", "write the aircraft's public key; `bentpipe keys` on the aircraft shows it"),
    ("certificate", "write the PEM file of the certificate: certificate = \"FILE\""),
    ("key", "write the PEM file of the certificate's private key: key = \"FILE\""),
    ("token-hash", "`bentpipe keys --client NAME --out FILE` prints the whole entry"),
    ("peer", "write where the ground listens: peer = \"hub.example.net:4500\""),
    ("rate", "write what may be sent: rate = \"1.89 Mbit/s\""),
    ("protocol", "write how the modem is asked: protocol = \"dlep\" or protocol = \"file\""),
    ("manifest", "write the file with one address a line: manifest = \"portal.txt\""),
    ("directory", "write where the records go: directory = \"/var/lib/bentpipe/usage\""),
    ("interfaces", "write where the clients are: interfaces = [\"br-lan\"]; `ip link` lists them"),
    ("class", "write the class of what matches: class = \"assured\""),
    ("rtt", "write the round trip between the gateways: rtt = \"480 ms\""),
    ("name", "write what the log should call it: name = \"D-ABCD\""),
];

impl ConfigError {
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            text: String::new(),
            why: format!("the file cannot be read: {error}"),
            help: "name a file that exists with --config".to_owned(),
        }
    }

    pub(super) fn at(
        source: &Source<'_>,
        span: Option<Range<usize>>,
        why: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let place = span.map(|span| line_of(source.text, span.start));
        Self {
            file: source.file.to_owned(),
            line: place.map(|line| line + 1),
            text: place.map(|line| shown(source.text, line)).unwrap_or_default(),
            why: without_keys(&why.into()),
            help: without_keys(&help.into()),
        }
    }

    pub(super) fn from_toml(source: &Source<'_>, error: &toml::de::Error) -> Self {
        let (mut why, help) = explain(error.message());
        let line = error.span().map(|span| line_of(source.text, span.start));
        let quotes = ["invalid ", "unknown variant "];
        if line.is_some_and(|line| may_hold_secret(source.text, line))
            && quotes.iter().any(|start| error.message().starts_with(start))
        {
            // serde's message begins with the rejected value.
            why = "this value cannot stand here; it may be a secret and is not shown".to_owned();
        }
        Self::at(source, error.span(), why, help)
    }
}

/// The line, counted from zero, of the byte at `place`.
fn line_of(text: &str, place: usize) -> usize {
    text[..place.min(text.len())].matches('\n').count()
}

/// Turns serde's message into a problem and a correction.
fn explain(message: &str) -> (String, String) {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut names = quoted(rest);
        if let Some(unknown) = names.next() {
            let known: Vec<&str> = names.collect();
            return (format!("there is no setting {unknown:?} here"), nearest(unknown, &known));
        }
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let name = quoted(rest).next().unwrap_or(rest);
        let help = MISSING.iter().find(|(known, _)| *known == name).map(|(_, help)| *help);
        return (format!("the setting {name:?} is missing"), help.unwrap_or_default().to_owned());
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let mut names = quoted(rest);
        if let Some(unknown) = names.next() {
            let known: Vec<&str> = names.collect();
            return (format!("{unknown:?} is none of the choices"), nearest(unknown, &known));
        }
    }
    if let Some((why, _)) = message.split_once("; make one with `bentpipe keys`") {
        let help = "copy the public key that `bentpipe keys --show FILE` or `bentpipe check` prints on \
                    the other gateway";
        return (why.to_owned(), help.to_owned());
    }
    let help = HELP.iter().find(|(parts, _)| parts.iter().all(|part| message.contains(part)));
    (message.to_owned(), help.map(|(_, help)| *help).unwrap_or_default().to_owned())
}

/// Corrections for messages of the parser that contain all of these parts; the first match counts.
const HELP: &[(&[&str], &str)] = &[
    (&["invalid type: ", "expected a string"], TEXT),
    (&["invalid type: map", "expected a sequence"], TABLES),
    (&["invalid type: ", "expected a sequence"], "write a list, in brackets: [\"…\", \"…\"]"),
    (&["invalid socket address"], ADDRESS),
    (&["expected socket address"], ADDRESS),
    (&["key with no value"], "this is TOML: write key = value, not key: value"),
    (&["invalid float"], "write texts, addresses and quantities in double quotes"),
    (&["invalid integer"], "write texts, addresses and quantities in double quotes"),
    (&["://", "has no valid port"], "write host:port alone, without a scheme such as udp://"),
];

const TEXT: &str = "write it as text, quantities with their unit: \"10 s\", \"1.89 Mbit/s\"";

const TABLES: &str = "there may be several of these: write the table's name in two pairs of brackets, as in \
                      [[aircraft]]";

const ADDRESS: &str = "write an IP address and a port: \"127.0.0.1:1080\", or \"[::]:4500\" for every \
                       address of this machine; a host name cannot stand here";

/// Names between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn nearest(unknown: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::damerau_levenshtein(unknown, name);
    let list = known.join(", ");
    match known.iter().min_by_key(distance) {
        // If more than half of the letters differ, it is another word and not a misspelling.
        Some(near) if distance(&near) * 2 <= near.len() => {
            format!("did you mean {near:?}? What may stand here: {list}")
        }
        _ => format!("what may stand here: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AirConfig;

    /// Message for a file with misspellings under `listen`.
    fn said_of(listen: &str) -> String {
        let text = format!(
            "[link]\nprivate-key-file = \"no.key\"\npeer = \"192.0.2.1:4500\"\n\
             peer-public-key = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
             rate = \"1 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\n{listen}\n"
        );
        AirConfig::parse(Path::new("air.toml"), &text).unwrap_err().to_string()
    }

    #[test]
    fn no_message_shows_a_password() {
        for listen in [
            "auth = { username = \"crew\", password = \"hunter2\", pasword2 = \"hunter2\" }",
            "auth = { username = \"crew\", pasword = \"hunter2\" }",
            "auth = { username = \"crew\", password = \"hunter2 }",
            "auth = { username = \"crew\", password = hunter2 }",
            "auth = \"hunter2\"",
            "[listen.auth]\nusername = \"crew\"\npasswrod = \"hunter2\"",
            "[listen.auth]\nusername = \"crew\"\nword = \"hunter2\"",
            "[listen.auth]\nusername = \"crew\"\npassword = [\"hunter2\"]",
            "[listen.auth]\nusername = \"crew\"\npassword = \"\"\"\nhunter2\\q\"\"\"",
        ] {
            let said = said_of(listen);
            assert!(said.contains("air.toml, line "), "{listen}: {said}");
            assert!(!said.contains("hunter2"), "{listen}: {said}");
        }
    }

    #[test]
    fn mistakes_of_notation_are_told_with_the_right_one() {
        let listen = |rest: &str| said_of(&format!("http-proxy = {rest}"));
        for (said, help) in [
            (listen("\"127.0.0.1\""), "write an IP address and a port"),
            (listen("\"localhost:1\""), "a host name cannot stand here"),
            (listen("4500"), "write an IP address and a port"),
            (listen("127.0.0.1:1081"), "in double quotes"),
            (said_of("tproxy = { port = 1, interfaces = \"br-lan\" }"), "write a list"),
            (said_of("tproxy = { port = 1 }"), "interfaces = [\"br-lan\"]"),
            (said_of("quic: \"carry\""), "not key: value"),
            (said_of("[rule]\nclass = \"assured\""), "[[aircraft]]"),
        ] {
            assert!(said.contains("air.toml, line ") && said.contains(help), "{help}: {said}");
        }
        let peer = |peer: &str, key: &str| {
            let text = format!(
                "[link]\nprivate-key-file = \"no.key\"\npeer = \"{peer}\"\n\
                 peer-public-key = \"{key}\"\n[listen]\nsocks5 = \"127.0.0.1:1\"\n"
            );
            AirConfig::parse(Path::new("air.toml"), &text).unwrap_err().to_string()
        };
        let said = peer("udp://ground:4500", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        assert!(said.contains("without a scheme"), "{said}");
        let said = peer("ground:4500", "PUT IT HERE");
        assert!(
            said.contains("prints on the other gateway") && !said.contains("make one"),
            "{said}"
        );
    }

    #[test]
    fn no_message_shows_a_private_key() {
        let key = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";
        let of = |link: &str| {
            let text = format!(
                "[link]\n{link}\npeer = \"192.0.2.1:4500\"\nrate = \"1 Mbit/s\"\n\
                 peer-public-key = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
                 [listen]\nsocks5 = \"127.0.0.1:1080\"\n"
            );
            AirConfig::parse(Path::new("/etc/bentpipe/air.toml"), &text).unwrap_err().to_string()
        };
        for name in ["private-key", "private-key-file", "privat-key", "mtu", "rtt"] {
            let said = of(&format!("{name} = \"{key}\""));
            assert!(said.contains("air.toml, line 2: "), "{name}: {said}");
            assert!(!said.contains(&key[..20]), "{name}: {said}");
        }
        assert!(!said_of("autth = \"crew:hunter2\"").contains("hunter2"));
    }

    #[test]
    fn other_lines_are_shown() {
        for (listen, line) in [
            ("rtt = 1", "rtt = 1"),
            ("auth = { username = \"a\", password = \"b\" }\n[page]", "[page]"),
        ] {
            let said = said_of(listen);
            assert!(said.contains(&format!("\n    {line}\n")), "{said}");
        }
    }
}
