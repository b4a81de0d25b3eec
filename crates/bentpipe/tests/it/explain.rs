//! `bentpipe explain`: the egress of a destination.

use std::path::Path;
use std::process::Command;

use super::gateway::Gateway;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHERS: [&str; 2] = [
    "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=",
    "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
];

/// Runs `bentpipe explain` for the gateway in `folder`; returns its success, stdout and stderr.
fn explain(folder: &Path, name: &str) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    let command = command.args(["explain", name, "status.json"]).current_dir(folder);
    let output = command.output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.success(), said, errors)
}

/// Starts a hub in `folder` with these egresses.
fn hub(folder: &Path, egresses: &[(&str, &str)]) -> Gateway {
    hub_with(folder, &egresses.iter().copied().map(egress).collect::<String>())
}

/// The table of an egress that is a gateway.
fn egress((peer, key): (&str, &str)) -> String {
    format!("[[egress]]\npeer = \"{peer}\"\npublic-key = \"{key}\"\n")
}

/// Starts a hub in `folder` with these tables.
fn hub_with(folder: &Path, egresses: &str) -> Gateway {
    std::fs::write(folder.join("a.key"), KEY).unwrap();
    let text = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [status]\nfile = \"status.json\"\n[dns]\nservers = [\"127.0.0.1:9\"]\n{egresses}"
    );
    std::fs::write(folder.join("ground.toml"), text).unwrap();
    let gateway = Gateway::start("ground", folder);
    gateway.says("serving");
    gateway
}

#[test]
fn a_hub_says_which_egresses_a_destination_has() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Nobody answers on the discard port.
    let peers = ["127.0.0.1:9", "127.0.0.21:9"];
    let _hub = hub(at, &[(peers[0], OTHERS[0]), (peers[1], OTHERS[1])]);
    for name in ["www.example.com", "192.0.2.1", "2001:db8::1", "example.com:80"] {
        let (ok, said, errors) = explain(at, name);
        assert!(ok, "{errors}");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines, ["127.0.0.1:9   down", "127.0.0.21:9  down"], "{name}");
    }
    let (ok, _, errors) = explain(at, "not a name");
    assert!(!ok && errors.contains("write www.example.com or 192.0.2.1"), "{errors}");
}

#[test]
fn a_ground_without_a_choice_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _hub = hub(at, &[]);
    let (ok, _, errors) = explain(at, "www.example.com");
    assert!(!ok && errors.contains("write several [[egress]] to have one"), "{errors}");
}

#[test]
fn a_proxy_that_is_down_has_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(at.join("ca.pem"), made.cert.pem()).unwrap();
    let proxy = "[[egress]]\npeer = \"127.0.0.1:9\"\nca = \"ca.pem\"\n";
    let _hub = hub_with(at, &format!("{proxy}{}", egress(("127.0.0.21:9", OTHERS[1]))));
    let (ok, said, errors) = explain(at, "www.example.com");
    assert!(ok, "{errors}");
    let lines: Vec<_> = said.lines().collect();
    // It is trying still, or has failed.
    let reasons = ["it is being called", "no connection to the proxy"];
    assert!(
        reasons
            .iter()
            .any(|why| lines[0].starts_with("127.0.0.1:9   down: ") && lines[0].contains(why)),
        "{said}"
    );
    assert_eq!(lines[1], "127.0.0.21:9  down");
}
