//! TCP pings under way: handshakes without blocking, closed at once.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::tcp_info;

/// Maximum number of handshakes at a time: 10 s at one each 2 s, for the current method and a scout.
const MAX: usize = 16;

/// Handshakes by the number of their ping.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    open: Vec<(u32, TcpStream)>,
}

impl Handshakes {
    /// Begins a handshake.
    pub fn begin(&mut self, to: SocketAddr, sequence: u32) -> io::Result<()> {
        if self.open.len() == MAX {
            self.open.remove(0);
        }
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // A reset closes with one packet, where FIN takes three.
        socket.set_linger(Some(Duration::ZERO))?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            // On loopback the refusal comes at once. It is a reply, which `finished` finds on the socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
        self.open.push((sequence, socket.into()));
        Ok(())
    }

    /// Adds the sockets to wait for.
    pub fn wait_for<'s>(&'s self, waited: &mut Vec<PollFd<'s>>) {
        let writable =
            |(_, stream): &'s (u32, TcpStream)| PollFd::new(stream.as_fd(), PollFlags::POLLOUT);
        waited.extend(self.open.iter().map(writable));
    }

    /// Takes out the handshakes that were answered, with `true` for a refusal.
    ///
    /// The kernel repeats a lost SYN after 1 s, and its answer would pass for a slow one. Such pings stay
    /// without a reply: they were lost.
    pub fn finished(&mut self) -> Vec<(u32, bool)> {
        let mut finished = Vec::new();
        self.open.retain(|(sequence, stream)| {
            if !is_settled(stream) {
                return true;
            }
            let refused = match stream.take_error() {
                Ok(None) if stream.peer_addr().is_ok() => false,
                Ok(Some(error)) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    return false;
                }
                _ => true,
            };
            if !tcp_info::repeated(stream) {
                finished.push((*sequence, refused));
            }
            false
        });
        finished
    }

    /// Drops the handshake of a ping that was lost.
    pub fn give_up(&mut self, sequence: u32) {
        self.open.retain(|(open, _)| *open != sequence);
    }
}

fn is_settled(stream: &TcpStream) -> bool {
    let mut waited = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    poll(&mut waited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Waits for all handshakes on loopback.
    fn settle(handshakes: &mut Handshakes) -> Vec<(u32, bool)> {
        let mut found = Vec::new();
        while !handshakes.open.is_empty() {
            found.extend(handshakes.finished());
            std::thread::yield_now();
        }
        found
    }

    #[test]
    fn an_acceptance_and_a_refusal_are_replies() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let mut handshakes = Handshakes::default();
        handshakes.begin(open, 1).unwrap();
        assert_eq!(settle(&mut handshakes), [(1, false)]);
        drop(listener);
        handshakes.begin(open, 2).unwrap();
        assert_eq!(settle(&mut handshakes), [(2, true)]);
    }
}
