//! Servers of the lab: each a thread with its own runtime inside a host.

use std::future::Future;
use std::thread::JoinHandle;

use tokio::runtime;
use tokio::sync::oneshot;

use crate::emu::{EmuError, Host};

/// A running server; dropping it ends it with everything it had open.
pub struct Service {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Runs what `serve` returns on a thread inside `host`.
    pub fn start<F: Future<Output = ()>>(
        host: &Host,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, EmuError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EmuError::Thread)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = host.spawn_thread(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve() => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
