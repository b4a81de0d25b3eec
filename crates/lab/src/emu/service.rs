//! Servers of the lab. Each runs on a thread with its own runtime inside a host.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::oneshot;

use super::{EmuError, Host};

/// A running server. Dropping it ends the server and closes everything it had open.
pub struct Service {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A future that serves until it is dropped, on the thread that made it.
pub type Serving = Pin<Box<dyn Future<Output = ()>>>;

/// A server did not come up.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// The emulator could not run it on its host.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// Message of the server itself.
    #[error("{0}")]
    Said(String),
}

impl Service {
    /// Starts the service that `begin` makes, in its runtime on a thread inside `host`. Returns
    /// once `begin` has finished, with the other value that `begin` gives.
    pub fn ready<T: Send + 'static>(
        host: &Host,
        begin: impl FnOnce() -> Result<(T, Serving), String> + Send + 'static,
    ) -> Result<(Self, T), NotReady> {
        let (tell, told) = mpsc::channel();
        let service = Self::start(host, move || async move {
            let serving = match begin() {
                Ok((beside, serving)) => {
                    let _ = tell.send(Ok(beside));
                    serving
                }
                Err(why) => return drop(tell.send(Err(why))),
            };
            serving.await;
        })?;
        let beside = told.recv().unwrap_or_else(|_| Err("it ended at its start".into()));
        Ok((service, beside.map_err(NotReady::Said)?))
    }

    /// Runs the future of `serve` on a thread inside `host`.
    pub fn start<F: Future<Output = ()>>(
        host: &Host,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, EmuError> {
        Self::run(serve, |work| host.spawn_thread(work))
    }

    /// Runs the future of `serve` on a thread in this machine's own network.
    pub fn start_here<F: Future<Output = ()>>(
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self, EmuError> {
        let thread = |work| thread::Builder::new().spawn(work).map_err(EmuError::Thread);
        Self::run(serve, thread)
    }

    fn run<F: Future<Output = ()>>(
        serve: impl FnOnce() -> F + Send + 'static,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, EmuError>,
    ) -> Result<Self, EmuError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EmuError::Thread)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = spawn(Box::new(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve() => {}
                    _ = stopped => {}
                }
            });
        }))?;
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
