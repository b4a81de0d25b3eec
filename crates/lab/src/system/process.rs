//! A program that the lab started, and its output.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};

/// Maximum lines of a program's output in an error.
const TAIL_LINES: usize = 8;

/// Programs that are running, for [`kill_all`].
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

    /// Starts `command` with pipes for its input and output. Its error output goes to `log`.
    pub fn start_piped(mut command: Command, log: &Path) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        Self::spawn(command, log)
    }

    /// Input and output of the program. `None` after the first call.
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

    /// Process ID.
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

    /// Last lines of the output.
    pub fn tail(&self) -> String {
        let text = self.output();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Resident memory: `VmRSS` of proc(5).
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path)?;
        let kib = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok()
        });
        kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmRSS: the program has ended"))
    }
}

/// Kills every program that was started here and prevents new ones. Call this last in a process.
pub fn kill_all() {
    let running = running();
    for id in running.iter() {
        // The process is not reaped yet, so the ID is still its own.
        let _ = kill(Pid::from_raw(*id as i32), Signal::SIGKILL);
    }
    std::mem::forget(running);
}

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Remove the ID before the process is reaped, because another program may get it
        // afterwards.
        running().retain(|id| *id != self.child.id());
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
