//! The side of a service manager: it keeps one descriptor of a service over a restart
//! (`sd_notify(3)`, FDSTORE).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Maximum length of a notification.
const MAX_TEXT_BYTES: usize = 4_096;

/// Notification socket of one service.
pub struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    /// Listens at `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path: path.into() })
    }

    /// Makes `command` notify this manager, which keeps descriptors.
    pub fn manage(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", &self.path).env("FDSTORE", "1");
    }

    /// Takes the descriptor that the service stored last. The service has to have ended.
    pub fn take(&self) -> io::Result<Option<OwnedFd>> {
        let mut stored = None;
        loop {
            match self.receive() {
                Ok(found) => stored = found.or(stored),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(stored),
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives one notification, with its descriptor.
    #[allow(unsafe_code)]
    fn receive(&self) -> io::Result<Option<OwnedFd>> {
        let mut text = [0; MAX_TEXT_BYTES];
        let (mut into, mut space) = ([IoSliceMut::new(&mut text)], nix::cmsg_space!([RawFd; 4]));
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut into, Some(&mut space), flags)?;
        let mut received = Vec::new();
        for control in message.cmsgs()? {
            let ControlMessageOwned::ScmRights(descriptors) = control else { continue };
            for descriptor in descriptors {
                // SAFETY: the kernel has just made the descriptor, and nobody else owns it.
                received.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
        Ok(received.pop())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    #[test]
    fn the_last_stored_descriptor_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let manager = Manager::new(&folder.path().join("notify")).unwrap();
        let service = UnixDatagram::unbound().unwrap();
        service.connect(folder.path().join("notify")).unwrap();
        assert!(manager.take().unwrap().is_none());
        service.send(b"READY=1").unwrap();
        for content in [b"1", b"2"] {
            let stored = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut &stored, content).unwrap();
            let descriptors = [stored.as_raw_fd()];
            let (text, rights) =
                ([IoSlice::new(b"FDSTORE=1")], ControlMessage::ScmRights(&descriptors));
            sendmsg::<()>(service.as_raw_fd(), &text, &[rights], MsgFlags::empty(), None).unwrap();
        }
        service.send(b"STOPPING=1").unwrap();
        let mut stored = std::fs::File::from(manager.take().unwrap().unwrap());
        let mut content = String::new();
        io::Seek::rewind(&mut stored).unwrap();
        io::Read::read_to_string(&mut stored, &mut content).unwrap();
        assert_eq!(content, "2");
        assert!(manager.take().unwrap().is_none());
    }
}
