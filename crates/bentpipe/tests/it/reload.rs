//! SIGHUP makes the command read its file again; a faulty file changes nothing.

use std::path::Path;
use std::process::Command;

use super::gateway::Gateway;

#[test]
fn a_hangup_reads_the_file_again_and_a_wrong_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(at.join("a.key"), key).unwrap();
    let air = format!(
        "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:9\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n"
    );
    let ground = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n"
    );
    for (what, text) in [("air", air), ("ground", ground)] {
        let file = at.join(format!("{what}.toml"));
        std::fs::write(&file, &text).unwrap();
        let gateway = Gateway::start(what, at);
        gateway.says("serving");
        for wrong in ["ceil = \"fast\"", "rate = \"2 Mbit/s\"\nceil = \"1 Mbit/s\""] {
            std::fs::write(&file, format!("{text}[classes.assured]\n{wrong}\n")).unwrap();
            gateway.hang_up();
            gateway.says("the configuration stays as it was");
        }
        std::fs::write(&file, format!("{text}[classes.assured]\nceil = \"1 Mbit/s\"\n")).unwrap();
        gateway.hang_up();
        gateway.says("are those of the file");
    }
}

/// Runs `bentpipe reload` for the gateway in `folder`; returns its success and stderr.
fn reload(folder: &Path) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    let output = command.args(["reload", "status.json"]).current_dir(folder).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_command_shows_what_waits_and_a_mistake_is_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(at.join("a.key"), key).unwrap();
    let text = |link: &str, aircraft: &str| {
        format!(
            "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n{link}\n\
             [status]\nfile = \"status.json\"\n[dns]\nservers = [\"127.0.0.1:9\"]\n{aircraft}"
        )
    };
    let craft = format!("[[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\n");
    let file = at.join("ground.toml");
    let (ok, said) = reload(at);
    assert!(!ok && said.contains("no gateway answers at status.sock"), "{said}");
    std::fs::write(&file, text("", "")).unwrap();
    let gateway = Gateway::start("ground", at);
    gateway.says("serving");
    std::fs::write(&file, text("dscp = false", &craft)).unwrap();
    let (ok, said) = reload(at);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        (ok, &*lines),
        (
            true,
            &[
                "dscp under [link]: the file has another value now, which counts after a restart",
                "aircraft: 1 added, 0 removed, 0 changed"
            ][..]
        ),
    );
    gateway.says("dscp under [link]");
    // What is wrong, where, and what to do: in the log and on stderr.
    std::fs::write(&file, text("", &craft.replace("D-ABCD\"", "D-ABCD\"\nrate = \"fast\"")))
        .unwrap();
    let (ok, said) = reload(at);
    assert!(!ok && said.starts_with("bentpipe: the configuration stays as it was"), "{said}");
    assert!(said.contains("ground.toml, line ") && said.contains("rate = \"fast\""), "{said}");
    gateway.says("the configuration stays as it was");
    // The line of the mistake goes on in the next one.
    gateway.says("rate = \"fast\"");
    std::fs::write(&file, text("", "")).unwrap();
    let (ok, said) = reload(at);
    assert!(ok && said.ends_with("aircraft: 0 added, 1 removed, 0 changed\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "dscp is what it was at the start");
    drop(gateway.stop());
    assert!(!at.join("status.sock").exists());
}
