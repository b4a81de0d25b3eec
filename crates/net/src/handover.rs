//! Sockets and state that a process leaves for the next one.
//!
//! The service manager keeps one Unix socket meanwhile. What was sent into it waits there: a file in
//! memory with the records, and the sockets that they belong to. So one stored descriptor is enough
//! for any number of flows (`sd_notify(3)`, FDSTORE). Nothing is written to disk.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Name of the descriptor in LISTEN_FDNAMES.
pub const NAME: &str = "handover";

/// First record. Another version of the records gets another text.
const VERSION: &[u8] = b"bentpipe handover 1";

/// Maximum number of descriptors in a message (SCM_MAX_FD of Linux).
const MAX_IN_MESSAGE: usize = 253;

/// Socket of a flow, and its state.
pub type LeftFlow = (OwnedFd, Vec<u8>);

/// Sockets and state for the next process.
#[derive(Debug, Default)]
pub struct Handover {
    /// State of the gateway.
    pub gateway: Vec<u8>,
    /// Sockets of flows, with the state of each.
    pub flows: Vec<LeftFlow>,
}

impl Handover {
    /// Returns the descriptor that holds everything, and the number of flows in it. The kernel limits
    /// the descriptors under way to the limit on open files; flows beyond it are left out.
    pub fn pack(self) -> io::Result<(OwnedFd, usize)> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        let mut records = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        send(&sender, &[records.as_fd()])?;
        put(&mut records, VERSION)?;
        put(&mut records, &self.gateway)?;
        let mut packed = 0;
        for some in self.flows.chunks(MAX_IN_MESSAGE) {
            let sockets: Vec<_> = some.iter().map(|(socket, _)| socket.as_fd()).collect();
            if let Err(error) = send(&sender, &sockets) {
                tracing::warn!(%error, "not all flows are handed over");
                break;
            }
            some.iter().try_for_each(|(_, record)| put(&mut records, record))?;
            packed += some.len();
        }
        // A program that another thread is starting has a copy of this end until it runs.
        sender.shutdown(Shutdown::Write)?;
        Ok((receiver.into(), packed))
    }

    /// Takes out what an earlier process has packed.
    pub fn unpack(from: OwnedFd) -> io::Result<Self> {
        let from = UnixStream::from(from);
        from.set_nonblocking(true)?;
        let mut taken = receive(&from)?.into_iter();
        let records = taken.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut flows = Vec::new();
        loop {
            let sockets = receive(&from)?;
            if sockets.is_empty() {
                break;
            }
            flows.extend(sockets);
        }
        let mut records = File::from(records);
        records.rewind()?;
        let mut bytes = Vec::new();
        records.read_to_end(&mut bytes)?;
        let mut rest = &bytes[..];
        if get(&mut rest)? != VERSION {
            return Err(io::Error::other("it is of another version"));
        }
        let gateway = get(&mut rest)?;
        let flows = flows.into_iter().map(|socket| Ok((socket, get(&mut rest)?)));
        Ok(Self { gateway, flows: flows.collect::<io::Result<_>>()? })
    }
}

fn put(records: &mut File, record: &[u8]) -> io::Result<()> {
    records.write_all(&(record.len() as u64).to_be_bytes())?;
    records.write_all(record)
}

fn get(rest: &mut &[u8]) -> io::Result<Vec<u8>> {
    let (length, after) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = u64::from_be_bytes(*length) as usize;
    let (record, after) = after.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = after;
    Ok(record.to_vec())
}

fn send(to: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_IN_MESSAGE))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(to, &[IoSlice::new(&[0])], &mut rights, SendFlags::empty())?;
    Ok(())
}

/// Receives the descriptors of one message; none at the end.
fn receive(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_IN_MESSAGE))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    let message = recvmsg(from, &mut into, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // Those that follow would get the records of others.
        return Err(io::Error::other("the limit on open files is too low for its sockets"));
    }
    let mut received = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn sockets_and_records_arrive_together() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut clients, mut handover) = (Vec::new(), Handover::default());
        handover.gateway = b"gateway".to_vec();
        // More than fit into one message.
        for number in 0..300_u32 {
            clients.push(TcpStream::connect(address).unwrap());
            let record = number.to_be_bytes().repeat(number as usize);
            handover.flows.push((listener.accept().unwrap().0.into(), record));
        }
        let (descriptor, packed) = handover.pack().unwrap();
        assert_eq!(packed, 300);
        let taken = Handover::unpack(descriptor).unwrap();
        assert_eq!(taken.gateway, b"gateway");
        assert_eq!(taken.flows.len(), 300);
        for (number, (socket, record)) in taken.flows.into_iter().enumerate() {
            assert_eq!(record, (number as u32).to_be_bytes().repeat(number));
            TcpStream::from(socket).write_all(&record).unwrap();
            let mut received = vec![0; record.len()];
            clients[number].read_exact(&mut received).unwrap();
            assert_eq!(received, record, "the socket of another flow");
        }
    }

    #[test]
    fn what_is_not_a_handover_is_an_error() {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        sender.write_all(b"x").unwrap();
        drop(sender);
        assert!(Handover::unpack(receiver.into()).is_err());
    }
}
