//! The Unix socket on which `bentpipe preload` asks for a run.

use std::path::Path;

use bentpipe_net::command_socket::{CommandSocket, CommandSocketError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::{Event, Preloader};

/// Events that wait for the command to read them. Then the run waits.
const MAX_QUEUED_EVENTS: usize = 16;

/// The socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct PreloadSocket(CommandSocket);

impl PreloadSocket {
    /// Binds the socket. A file that a killed gateway left there is replaced.
    pub fn bind(path: &Path) -> Result<Self, CommandSocketError> {
        CommandSocket::bind(path, "[preload]").map(Self)
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

    async fn accept(&self) -> UnixStream {
        let why = "only root and the gateway's own user may preload";
        self.0.accept(|stream| refuse(stream, why)).await
    }
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
