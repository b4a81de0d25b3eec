//! A program that the lab started, and what it said.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The most of a program's output that an error repeats.
const TAIL_LINES: usize = 8;

/// The programs that run now, for [`kill_all`].
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A running program; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output going to `log`.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Self::spawn(command, log)
    }

    /// Starts `command`, which is spoken with over its input and output, and writes what it has to
    /// say besides to `log`.
    pub fn start_piped(mut command: Command, log: &Path) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        Self::spawn(command, log)
    }

    /// Its input and output, once.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    fn spawn(mut command: Command, log: &Path) -> io::Result<Self> {
        let mut running = running();
        let child = command.spawn()?;
        running.push(child.id());
        drop(running);
        Ok(Self { child, log: log.into() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Exit status, once it has ended; this reaps the process.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let mut running = running();
        let status = self.child.try_wait().ok().flatten()?;
        running.retain(|id| *id != self.child.id());
        Some(status)
    }

    /// Output so far.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines it wrote.
    pub fn tail(&self) -> String {
        let text = self.output();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Memory it occupies now: `VmRSS` of proc(5).
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path)?;
        let kib = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok()
        });
        kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmRSS: the program has ended"))
    }
}

/// Kills every program that was started here, and lets no other start: what a process does last.
pub fn kill_all() {
    let running = running();
    for id in running.iter() {
        // Not reaped yet, so the number is still this program's.
        let _ = kill(Pid::from_raw(*id as i32), Signal::SIGKILL);
    }
    std::mem::forget(running);
}

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Before it is reaped: its number may be another program's afterwards.
        running().retain(|id| *id != self.child.id());
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
