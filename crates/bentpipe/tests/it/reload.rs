//! SIGHUP makes the command read its file again; a faulty file changes nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running gateway, killed when dropped, and its log.
struct Gateway {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(what: &str, folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
            .args([what, "--config", &format!("{what}.toml")])
            .current_dir(folder)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            said.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Self { child, lines }
    }

    /// Waits for a line that contains `part`.
    fn says(&self, part: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn hang_up(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).unwrap();
    }
}

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
