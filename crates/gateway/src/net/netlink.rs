//! Requests to the kernel by netlink (RFC 3549). The kernel answers before a request returns.

use std::fmt::Debug;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use socket2::Socket;

/// Maximum size of one read. The kernel splits longer dumps.
const READ_BYTES: usize = 64 * 1024;

/// Maximum number of messages that [`dump`] returns. What it lists is made by the administrator.
const MAX_MESSAGES: usize = 65_536;

/// Bound on the wait for an answer, which is there at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Refused {
    /// Its index among those that were sent together.
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
/// `NLM_F_REQUEST` and `NLM_F_ACK`. The request at `acknowledged` is the last that the kernel answers.
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
        // A sequence number of zero is that of messages nobody asked for.
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

/// Returns what the kernel lists for `request`, without what this program cannot parse.
pub fn dump<T>(protocol: SockProtocol, mut request: NetlinkMessage<T>) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug,
{
    let socket = open(protocol)?;
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut bytes = Vec::new();
    append(&mut bytes, &mut request);
    socket.send(&bytes)?;
    let (mut listed, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    while listed.len() < MAX_MESSAGES {
        let length = (&socket).read(&mut buffer)?;
        for answer in messages::<T>(&buffer[..length]) {
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => listed.push(message),
                NetlinkPayload::Done(_) => return Ok(listed),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
    Ok(listed)
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
    // Messages begin at multiples of four bytes (RFC 3549 section 2.3).
    bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut bytes[start..start + message.buffer_len()]);
}

/// The messages of one read, without those that cannot be parsed.
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
