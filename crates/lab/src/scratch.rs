//! A folder for keys, configs and logs, gone when the command is, however it is stopped.

use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::contender::process::kill_all;

/// Exit status that a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Attempts to remove a folder in which something may just appear.
const REMOVALS: usize = 10;

/// The folder. While it exists SIGINT, SIGTERM and SIGHUP end the process in order: every program
/// it started is killed, the folder is removed, and the namespaces go with the process.
pub struct Scratch {
    folder: TempDir,
    exit_code: Arc<AtomicI32>,
    advice: Arc<OnceLock<String>>,
}

impl Scratch {
    /// Makes the folder and begins to listen for signals. Starts a thread: [`crate::emu::enter`]
    /// comes before.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("bentpipe-").tempdir()?;
        let exit_code = Arc::new(AtomicI32::new(INTERRUPTED));
        let (path, code) = (folder.path().to_owned(), exit_code.clone());
        let advice = Arc::new(OnceLock::<String>::new());
        let said = advice.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(signal)
                .into_iter()
                .collect::<io::Result<Vec<_>>>()?
        };
        thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
                futures_util::future::select_all(any).await;
            });
            kill_all();
            // Another thread may be writing a file; none makes the folder itself again.
            for _ in 0..REMOVALS {
                if std::fs::remove_dir_all(&path).is_ok() {
                    break;
                }
            }
            // Where the terminal is gone, as at SIGHUP, nobody can be told.
            let advice = said.get().map(String::as_str).unwrap_or_default();
            let _ = writeln!(io::stderr(), "\nstopped; everything is cleaned up{advice}");
            process::exit(code.load(Ordering::Relaxed));
        })?;
        Ok(Self { folder, exit_code, advice })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Sets the advice that is printed once to whoever stops the process: how to go on.
    pub fn advise(&self, words: &str) {
        let _ = self.advice.set(format!("; {words}"));
    }

    /// From now on being stopped is how the command is meant to end.
    pub fn expect_a_stop(&self) {
        self.exit_code.store(0, Ordering::Relaxed);
    }
}
