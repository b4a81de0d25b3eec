//! A gateway as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Maximum wait for anything that the gateway does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An address of the loopback network that no other test and no other process of ours uses.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = [127, 1 + high % 254, low, NEXT.fetch_add(1, Ordering::Relaxed)];
    (ip, 4_501).into()
}

/// A running gateway, killed when dropped, and its log.
pub struct Gateway {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Gateway {
    /// Sends SIGKILL.
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    /// Starts the gateway `what`, "air" or "ground", with its configuration in `folder`.
    pub fn start(what: &str, folder: &Path) -> Self {
        Self::start_with(&[], what, folder)
    }

    /// Starts it with `options` before the subcommand.
    pub fn start_with(options: &[&str], what: &str, folder: &Path) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_bentpipe")), options, what, folder)
    }

    /// Starts it by `command`, which gets the arguments.
    pub fn start_by(mut command: Command, options: &[&str], what: &str, folder: &Path) -> Self {
        let mut child = command
            .args(options)
            .args([what, "--config", &format!("{what}.toml")])
            .current_dir(folder)
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Read to the end, so that the gateway can continue to log.
            log.lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        });
        Self { child, lines }
    }

    /// Waits for a line of the log that contains `part`.
    pub fn says(&self, part: &str) -> String {
        self.until(part).pop().unwrap()
    }

    /// Waits for a line of the log that contains `part`; returns all lines up to this one.
    pub fn until(&self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {part:?}"));
            let is_last = line.contains(part);
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }

    /// Sends SIGTERM and returns the rest of the log.
    pub fn stop(mut self) -> Vec<String> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.lines.iter().collect()
    }

    /// Waits until the log reports `service`; returns its address.
    pub fn serves(&self, service: &str) -> SocketAddr {
        let line = self.says(&format!("serving {service}"));
        let address = line.split("address=").nth(1).unwrap();
        address.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).unwrap();
    }
}
