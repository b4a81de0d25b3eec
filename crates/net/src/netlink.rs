//! Netlink requests to the kernel (RFC 3549). The kernel answers within the system call of the
//! request, so nothing here waits: a request and its answer take two system calls and a few
//! microseconds.

use std::fmt::Debug;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use socket2::Socket;

/// Maximum size of one read. The kernel splits longer dumps. A route takes about 200 bytes, an
/// interface with its statistics 2 KiB.
const READ_BYTES: usize = 64 * 1024;

/// Maximum number of messages that [`dump`] returns. The listed objects are created by the
/// administrator.
const MAX_MESSAGES: usize = 65_536;

/// Maximum number of times that [`dump`] reads a list that keeps changing.
const MAX_DUMPS: usize = 3;

/// Maximum number of answers to earlier requests in the socket of a [`Client`].
const MAX_STALE: usize = 16;

/// Maximum wait for an answer, which is normally available at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Refused {
    /// Index of the refused request in its batch.
    pub index: usize,
    /// The kernel's reason.
    pub source: io::Error,
}

impl From<io::Error> for Refused {
    fn from(source: io::Error) -> Self {
        Self { index: 0, source }
    }
}

/// Sends `requests` in one datagram and returns the first refusal. Their flags need not contain
/// `NLM_F_REQUEST` and `NLM_F_ACK`. The request at index `acknowledged` is the last one that the
/// kernel acknowledges.
pub fn ask<T>(
    protocol: SockProtocol,
    mut requests: Vec<NetlinkMessage<T>>,
    acknowledged: usize,
) -> Result<(), Refused>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    let socket = open(protocol)?;
    let mut bytes = Vec::new();
    for (index, request) in requests.iter_mut().enumerate() {
        request.header.flags |= NLM_F_REQUEST;
        if index == acknowledged {
            request.header.flags |= NLM_F_ACK;
        }
        // Sequence number zero is used by unsolicited messages.
        request.header.sequence_number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        append(&mut bytes, request);
    }
    socket.send(&bytes)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = (&socket).read(&mut buffer)?;
        for answer in messages::<T>(&buffer[..length]) {
            let NetlinkPayload::Error(error) = answer.payload else { continue };
            let index = (answer.header.sequence_number as usize).saturating_sub(1);
            match error.code {
                Some(_) => return Err(Refused { index, source: error.to_io() }),
                None if index >= acknowledged => return Ok(()),
                None => {}
            }
        }
    }
}

/// Returns the objects that the kernel lists for `request`. Messages that cannot be parsed are
/// skipped. A list that changed while it was read is read again.
pub fn dump<T>(protocol: SockProtocol, mut request: NetlinkMessage<T>) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut bytes = Vec::new();
    append(&mut bytes, &mut request);
    for _ in 1..MAX_DUMPS {
        if let Some(listed) = dump_once(protocol, &bytes, false)? {
            return Ok(listed);
        }
    }
    Ok(dump_once(protocol, &bytes, true)?.unwrap_or_default())
}

/// Returns `None` if the list changed while it was read, unless that is `tolerated`.
fn dump_once<T>(
    protocol: SockProtocol,
    request: &[u8],
    tolerated: bool,
) -> io::Result<Option<Vec<T>>>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    let socket = open(protocol)?;
    socket.send(request)?;
    let mut has_changed = false;
    let (mut listed, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    while listed.len() < MAX_MESSAGES {
        let length = (&socket).read(&mut buffer)?;
        for answer in messages::<T>(&buffer[..length]) {
            has_changed |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => listed.push(message),
                NetlinkPayload::Done(_) => return Ok((tolerated || !has_changed).then_some(listed)),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
    Ok(Some(listed))
}

/// A persistent socket, for requests with one answer each.
pub struct Client {
    socket: Socket,
    number: u32,
    buffer: Vec<u8>,
}

impl Client {
    /// Opens a socket in the thread's network namespace.
    pub fn open(protocol: SockProtocol) -> io::Result<Self> {
        let socket = open(protocol)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, number: 0, buffer: vec![0; READ_BYTES] })
    }

    /// Returns the kernel's answer to `message`. The inner result is the kernel's own error.
    pub fn get<T>(&mut self, message: T) -> io::Result<io::Result<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable + Debug,
        NetlinkMessage<T>: From<T>,
    {
        self.number = self.number.wrapping_add(1).max(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST;
        request.header.sequence_number = self.number;
        let mut bytes = Vec::new();
        append(&mut bytes, &mut request);
        self.socket.send(&bytes)?;
        for _ in 0..MAX_STALE {
            let length = (&self.socket).read(&mut self.buffer)?;
            let number = self.number;
            let mut answers = messages::<T>(&self.buffer[..length]);
            let Some(answer) = answers.find(|it| it.header.sequence_number == number) else {
                continue;
            };
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Ok(message)),
                NetlinkPayload::Error(error) => Ok(Err(error.to_io())),
                _ => Err(io::ErrorKind::InvalidData.into()),
            };
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn open(protocol: SockProtocol) -> io::Result<Socket> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let socket = Socket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn append<T: NetlinkSerializable>(bytes: &mut Vec<u8>, message: &mut NetlinkMessage<T>) {
    message.finalize();
    let start = bytes.len();
    // Messages are aligned to four bytes (RFC 3549 section 2.3).
    bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut bytes[start..start + message.buffer_len()]);
}

/// Messages of one read; those that cannot be parsed are skipped.
fn messages<T: NetlinkDeserializable>(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<T>> {
    std::iter::from_fn(move || {
        loop {
            let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
            let message = bytes.get(..length).filter(|message| !message.is_empty())?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Ok(message) = NetlinkMessage::deserialize(message) {
                return Some(message);
            }
        }
    })
}
