//! A folder for keys, configuration files and logs. It is removed when the command ends, however it
//! is stopped.

use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::system::process::kill_all;

/// Exit status that a shell reports for a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Attempts to remove a folder in which another thread may be creating a file.
const REMOVALS: usize = 10;

/// Error if the folder for keys and configuration files cannot be made.
pub(crate) fn no_folder(error: std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot make a folder for keys and configs: {error}")
}

/// The folder. While it exists, SIGINT, SIGTERM and SIGHUP end the process in order: every program
/// that it started is killed, the folder is removed, and the namespaces end with the process.
pub struct Scratch {
    folder: TempDir,
    exit_code: Arc<AtomicI32>,
    advice: Arc<OnceLock<String>>,
}

impl Scratch {
    /// Makes the folder and begins to handle signals. Starts a thread, so call
    /// [`crate::emu::enter`] before.
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
            // Another thread may be writing a file. No thread makes the folder itself again.
            for _ in 0..REMOVALS {
                if std::fs::remove_dir_all(&path).is_ok() {
                    break;
                }
            }
            // If the terminal is gone, as at SIGHUP, nobody can read the message.
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

    /// Sets the advice that is printed once when a user stops the process, such as a command to
    /// continue.
    pub fn advise(&self, words: &str) {
        let _ = self.advice.set(format!("; {words}"));
    }

    /// From now on, a stop by a signal is the expected end of the command.
    pub fn expect_a_stop(&self) {
        self.exit_code.store(0, Ordering::Relaxed);
    }
}
