//! A Unix socket on which root, or the gateway's own user, gives a running gateway a command.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Reason for which the socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CommandSocketError {
    /// Another process serves it.
    #[error("another gateway serves {}: name another one under {table}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
        /// Table of the configuration that names it.
        table: &'static str,
    },
    /// The system refuses it.
    #[error(
        "the socket {} cannot be made: {source}\n\
         name one under {table} in a folder that this user may write to",
        path.display()
    )]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Table of the configuration that names it.
        table: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// The socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct CommandSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for CommandSocket {
    fn drop(&mut self) {
        // Nobody listens there any more, which the next start notices if the file stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl CommandSocket {
    /// Binds the socket, which `table` of the configuration names. A file that a killed gateway left
    /// there is replaced.
    pub fn bind(path: &Path, table: &'static str) -> Result<Self, CommandSocketError> {
        let failed = |source| CommandSocketError::Bind { path: path.to_owned(), table, source };
        match StdUnixStream::connect(path) {
            Ok(_) => return Err(CommandSocketError::InUse { path: path.to_owned(), table }),
            // A file that is not a socket refuses connections too, and stays.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for the next connection of root or of the gateway's own user. `refuse` answers others.
    pub async fn accept(&self, refuse: impl Fn(&UnixStream)) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if is_permitted(&stream) => return stream,
                Ok((stream, _)) => refuse(&stream),
                Err(error) => {
                    let path = self.path.display();
                    tracing::warn!(%error, %path, "no connection to the socket is accepted");
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
