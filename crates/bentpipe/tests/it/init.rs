//! `bentpipe init`, `bentpipe keys --show` and `bentpipe check` of a pair, as processes.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::gateway::Gateway;

fn bentpipe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bentpipe")).args(arguments).output().unwrap()
}

/// Standard output of a command that succeeds, and its standard error.
fn good(arguments: &[&str]) -> (String, String) {
    let output = bentpipe(arguments);
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{arguments:?}: {err}");
    (out.trim_end().to_owned(), err.into_owned())
}

/// Standard error of a command that fails.
fn bad(arguments: &[&str]) -> String {
    let output = bentpipe(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {said}");
    said
}

/// Folders for the files of two hosts.
struct Hosts {
    _folder: tempfile::TempDir,
    ground: PathBuf,
    air: PathBuf,
}

impl Hosts {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [ground, air] = ["ground", "air"].map(|name| folder.path().join(name));
        Self { _folder: folder, ground, air }
    }

    /// Adds an aircraft to the ground; returns its join line.
    fn join_line(&self, name: &str) -> String {
        let folder = self.ground.to_str().unwrap();
        let address = ["--address", "127.0.0.1"];
        good(&[&["init", "ground", "--name", name, "--folder", folder], &address[..]].concat()).0
    }

    fn file(folder: &Path, name: &str) -> String {
        folder.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a configuration of the ground that listens on a free port.
    fn listen_anywhere(&self) {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::create_dir(&self.ground).unwrap();
        good(&["keys", "--out", &Self::file(&self.ground, "ground.key")]);
        let text = format!(
            "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{free}\"\n\
             [dns]\nservers = [\"127.0.0.1:9\"]"
        );
        fs::write(self.ground.join("ground.toml"), text).unwrap();
    }
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_line_makes_a_pair_that_links() {
    let hosts = Hosts::new();
    hosts.listen_anywhere();
    let line = hosts.join_line("boat-1");
    let ground = Gateway::start("ground", &hosts.ground);
    ground.says("serving");
    let air = hosts.air.to_str().unwrap();
    let (out, err) = good(&["init", "air", &line, "--folder", air]);
    assert!(out.starts_with("The link is up after ") && out.contains("a round trip of "), "{out}");
    assert!(err.contains("Start the gateway: bentpipe air --config"), "{err}");
    // The ports may be in use on this machine.
    let file = hosts.air.join("air.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(":1080", ":0").replace(":8080", ":0")).unwrap();
    // The gateway that starts within the same second is not taken for a replay.
    Gateway::start("air", &hosts.air).says("the link is up");
    ground.says("boat-1");
    for (folder, name) in [(&hosts.air, "air"), (&hosts.ground, "ground")] {
        assert_eq!(mode(&folder.join(format!("{name}.key"))), 0o600);
        assert_eq!(mode(&folder.join(format!("{name}.toml"))), 0o644);
    }
}

#[test]
fn aircraft_are_added_and_nothing_else_changes() {
    let hosts = Hosts::new();
    let first = hosts.join_line("boat-1");
    let file = hosts.ground.join("ground.toml");
    let before = fs::read_to_string(&file).unwrap();
    let key = fs::read(hosts.ground.join("ground.key")).unwrap();
    let second = hosts.join_line("boat-2");
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&before) && after.contains("name = \"boat-2\""), "{after}");
    assert_eq!(fs::read(hosts.ground.join("ground.key")).unwrap(), key);
    let of_ground = |line: &str| line.split("ground=").nth(1).unwrap()[..43].to_owned();
    assert_eq!(of_ground(&first), of_ground(&second));
    let folder = hosts.ground.to_str().unwrap();
    let again =
        bad(&["init", "ground", "--name", "boat-1", "--address", "127.0.0.1", "--folder", folder]);
    assert!(again.contains("has an aircraft \"boat-1\" already"), "{again}");
    assert_eq!(fs::read_to_string(&file).unwrap(), after);
}

#[test]
fn a_dry_run_writes_nothing_and_shows_everything_but_keys() {
    let hosts = Hosts::new();
    let [ground, air] = [&hosts.ground, &hosts.air].map(|folder| folder.to_str().unwrap());
    let (out, err) = good(&[
        "init",
        "ground",
        "--name",
        "boat-1",
        "--address",
        "127.0.0.1",
        "--folder",
        ground,
        "--dry-run",
    ]);
    assert!(out.is_empty() && !hosts.ground.exists(), "{out}");
    assert!(
        err.contains("    name = \"boat-1\"\n") && err.contains("ground.key (mode 600)"),
        "{err}"
    );
    let line = hosts.join_line("boat-1");
    let key = line.split("key=").nth(1).unwrap();
    let (out, err) =
        good(&["init", "air", &line, "--folder", air, "--interface", "br-lan", "--dry-run"]);
    assert!(out.is_empty() && !hosts.air.exists(), "{out}");
    assert!(err.contains("interfaces = [\"br-lan\"]") && !err.contains(key), "{err}");
}

#[test]
fn other_files_are_not_replaced() {
    let hosts = Hosts::new();
    let [one, two] = ["boat-1", "boat-2"].map(|name| hosts.join_line(name));
    let air = hosts.air.to_str().unwrap();
    // Nobody answers, and the files are there.
    let init = |line: &str| bad(&["init", "air", line, "--folder", air]);
    fs::create_dir(&hosts.air).unwrap();
    fs::write(hosts.air.join("air.toml"), "[link]\n").unwrap();
    let said = init(&one);
    assert!(said.contains("air.toml exists and holds other settings"), "{said}");
    assert!(!hosts.air.join("air.key").exists());
    fs::remove_file(hosts.air.join("air.toml")).unwrap();
    good(&["keys", "--out", &Hosts::file(&hosts.air, "air.key")]);
    let said = init(&two);
    assert!(said.contains("air.key exists and holds another key"), "{said}");
    assert!(!hosts.air.join("air.toml").exists());
}

#[test]
fn a_line_is_refused_after_its_time_and_if_it_is_damaged() {
    let hosts = Hosts::new();
    let line = hosts.join_line("boat-1");
    let (before, rest) = line.split_once("until=").unwrap();
    let (_, rest) = rest.split_once('&').unwrap();
    let air = hosts.air.to_str().unwrap();
    let said = bad(&["init", "air", &format!("{before}until=1000000000&{rest}"), "--folder", air]);
    assert!(said.contains("was valid until Sun, 09 Sep 2001"), "{said}");
    let said = bad(&["init", "air", &line[..line.len() - 5], "--folder", air]);
    assert!(said.contains("the aircraft's key is damaged"), "{said}");
    assert!(!hosts.air.exists());
}

#[test]
fn a_silent_ground_is_told_with_what_to_check_and_the_line_may_come_by_standard_input() {
    let hosts = Hosts::new();
    let line = hosts.join_line("boat-1");
    // Nobody listens, or somebody who does not know the key.
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["init", "air", "-", "--folder"])
        .arg(&hosts.air)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(command.stdin.take().unwrap(), "{line}").unwrap();
    let output = command.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no answer from the ground"), "{said}");
    assert!(said.contains("Is UDP port 4500 open"), "{said}");
    good(&["check", &Hosts::file(&hosts.air, "air.toml")]);
}

#[test]
fn the_public_key_of_a_file_is_shown_and_a_pair_is_checked() {
    let hosts = Hosts::new();
    hosts.listen_anywhere();
    let line = hosts.join_line("boat-1");
    let air = hosts.air.to_str().unwrap();
    let ground = Gateway::start("ground", &hosts.ground);
    ground.says("serving");
    good(&["init", "air", &line, "--folder", air]);
    let (key, _) = good(&["keys", "--show", &Hosts::file(&hosts.air, "air.key")]);
    let file = hosts.ground.join("ground.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(key.len() == 44 && text.contains(&format!("public-key = \"{key}\"")), "{key}");
    let pair = [Hosts::file(&hosts.air, "air.toml"), Hosts::file(&hosts.ground, "ground.toml")];
    let (out, _) = good(&["check", &pair[1], &pair[0]]);
    assert!(out.contains("the ground calls the aircraft boat-1"), "{out}");
    let said = bad(&["check", &pair[0], &pair[0]]);
    assert!(said.contains("both files are of air gateways"), "{said}");
    fs::write(&file, text.replace(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")).unwrap();
    let said = bad(&["check", &pair[0], &pair[1]]);
    assert!(said.contains(&format!("write public-key = \"{key}\"")), "{said}");
}

#[test]
fn all_mistakes_of_a_file_are_listed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("air.toml");
    let text = "[link]\nprivate-key-file = \"air.key\"\npeer = \"ground.example\"\n\
                peer-public-key = \"PUT IT HERE\"\nrate = \"2 Mbps\"\n[listen]\nsocks5 = \"localhost:1\"\n";
    fs::write(&file, text).unwrap();
    let said = bad(&["check", file.to_str().unwrap()]);
    for line in [2, 3, 4, 5, 7] {
        assert!(said.contains(&format!("air.toml, line {line}: ")), "{line}: {said}");
    }
    assert!(said.contains("5 mistakes; others may follow once these are corrected"), "{said}");
}

/// The key of a service is its credential, and its state is in its own folder.
#[test]
fn a_service_manager_s_folders_have_precedence() {
    let [etc, credentials] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"127.0.0.1:9\"\n\
         peer-public-key = \"{key}\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n"
    );
    fs::write(etc.path().join("air.toml"), text).unwrap();
    good(&["keys", "--out", &Hosts::file(credentials.path(), "air.key")]);
    let file = Hosts::file(etc.path(), "air.toml");
    let check = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
        command.args(["check", &file]).envs(environment.iter().copied());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(!check(&[]).0);
    let at = ("CREDENTIALS_DIRECTORY", credentials.path().to_str().unwrap());
    let (is_good, said) = check(&[at]);
    assert!(
        is_good && said.contains(&format!("kept in {}/air.state", etc.path().display())),
        "{said}"
    );
    let (_, said) = check(&[at, ("STATE_DIRECTORY", "/state:/other")]);
    assert!(said.contains("kept in /state/air.state"), "{said}");
}
