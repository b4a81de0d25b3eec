//! The DevTools protocol over a pipe: JSON messages, each followed by a zero byte
//! (`--remote-debugging-pipe`: the browser reads descriptor 3 and writes descriptor 4).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::system::process::Process;

/// Maximum size of a message from the browser. It never sends bodies; its longest message is a
/// request with all its headers.
const LONGEST: usize = 16 << 20;

/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// Shell script that gives the program its input and output as descriptors 3 and 4, and a file for
/// its other output.
const AS_PIPE: &str = r#"exec 3<&0 4>&1 0</dev/null 1>"$0" 2>&1; exec "$@""#;

/// Both ends of the pipe.
#[derive(Debug)]
pub struct Pipe {
    to: Sender,
    from: Receiver,
    /// Bytes read that are not a complete message yet.
    rest: Vec<u8>,
    /// Length of the part of `rest` that contains no end of a message.
    searched: usize,
}

/// Command that starts `program` with its pipe, based on the command of a shell. The program's
/// output goes to `log`.
pub fn through(mut shell: Command, log: &Path, program: &Path) -> Command {
    shell.arg("-c").arg(AS_PIPE).arg(log).arg(program);
    shell
}

impl Pipe {
    /// The pipe of `process`, which was started with [`Process::start_piped`].
    pub fn of(process: &mut Process) -> io::Result<Self> {
        let (to, from) = process.take_pipes().ok_or(io::ErrorKind::NotConnected)?;
        let (to, from) = (OwnedFd::from(to), OwnedFd::from(from));
        let (to, from) = (Sender::from_owned_fd(to)?, Receiver::from_owned_fd(from)?);
        Ok(Self { to, from, rest: Vec::new(), searched: 0 })
    }

    /// Sends `text`.
    pub async fn send(&mut self, text: &Value) -> io::Result<()> {
        let mut bytes = text.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await
    }

    /// The next message. Cancel-safe: a dropped call loses nothing.
    pub async fn receive(&mut self) -> io::Result<Value> {
        loop {
            if let Some(at) = self.rest[self.searched..].iter().position(|byte| *byte == 0) {
                let end = self.searched + at;
                let text = serde_json::from_slice(&self.rest[..end])?;
                self.rest.drain(..=end);
                self.searched = 0;
                return Ok(text);
            }
            self.searched = self.rest.len();
            if self.rest.len() > LONGEST {
                let why = format!("the browser says more than {LONGEST} bytes at once");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            self.rest.reserve(CHUNK);
            if self.from.read_buf(&mut self.rest).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
