//! The Unix socket on which `bentpipe preload` asks for a run.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Event, Preloader};

/// Events that wait for the command to read them. Then the run waits.
const MAX_QUEUED_EVENTS: usize = 16;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Reason for which the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PreloadSocketError {
    /// Another process serves it.
    #[error(
        "another gateway serves {}: name another socket under [preload]",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The system refuses it.
    #[error(
        "the socket {} cannot be made: {source}\n\
         name one under [preload] in a folder that this user may write to",
        path.display()
    )]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// The socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct PreloadSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for PreloadSocket {
    fn drop(&mut self) {
        // Nobody listens there any more, which the next start notices if the file stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl PreloadSocket {
    /// Binds the socket. A file that a killed gateway left there is replaced.
    pub fn bind(path: &Path) -> Result<Self, PreloadSocketError> {
        let failed = |source| PreloadSocketError::Bind { path: path.to_owned(), source };
        match StdUnixStream::connect(path) {
            Ok(_) => return Err(PreloadSocketError::InUse { path: path.to_owned() }),
            // A file that is not a socket refuses connections too, and stays.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Runs `preloader` for each command that connects, one at a time. Never ends.
    pub async fn serve(&self, preloader: &Preloader) {
        preloader.cache.settle().await;
        loop {
            let stream = self.accept().await;
            let run = run_for(preloader, stream);
            tokio::pin!(run);
            loop {
                tokio::select! {
                    () = &mut run => break,
                    other = self.accept() => refuse(&other, "another run is in progress"),
                }
            }
        }
    }

    /// Returns the next connection of root or of the gateway's own user.
    async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if is_permitted(&stream) => return stream,
                Ok((stream, _)) => {
                    refuse(&stream, "only root and the gateway's own user may preload");
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection to the preload's socket is accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket())
}

fn is_permitted(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// Sends the reason without waiting. The buffer of a new connection always has room for it.
fn refuse(stream: &UnixStream, why: &str) {
    let _ = stream.try_write(&line_of(&Event::Refused { why: why.to_owned() }));
}

/// Runs until the end, or until the command goes away.
async fn run_for(preloader: &Preloader, stream: UnixStream) {
    let (mut read, mut write) = stream.into_split();
    let (sender, mut events) = mpsc::channel(MAX_QUEUED_EVENTS);
    let report = async move {
        while let Some(event) = events.recv().await {
            if write.write_all(&line_of(&event)).await.is_err() {
                return;
            }
        }
    };
    let gone = async {
        let mut nothing = [0; 64];
        while read.read(&mut nothing).await.is_ok_and(|length| length > 0) {}
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(preloader.run(sender), report) } => {}
        () = gone => tracing::info!("the preload was stopped; the next run continues"),
    }
}

fn line_of(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).expect("an event has no map with other keys");
    line.push(b'\n');
    line
}
