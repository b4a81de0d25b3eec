//! Times of arrival from the kernel. A process that waits for a busy processor reads a datagram late, and the
//! delay would pass for one of the network.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::clock;

/// Oldest stamp that is believed. An older one is of a clock that was set since.
const MAX_AGE: Duration = Duration::from_secs(10);

/// A datagram in the buffer.
#[derive(Debug)]
pub struct Received {
    /// Length.
    pub length: usize,
    /// Sender.
    pub from: IpAddr,
    /// Time of arrival since boot.
    pub at: Duration,
}

/// Asks the kernel for the times of a socket's datagrams.
pub fn stamp(socket: &UdpSocket) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

/// Receives a datagram with its time, which is the present if the kernel gives none.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    let from = message.address.and_then(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or(address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    let from = from.ok_or_else(|| io::Error::other("a datagram without a sender"))?;
    let at = message
        .cmsgs()
        .ok()
        .and_then(|mut controls| controls.find_map(|control| time_of(&control)));
    Ok(Received { length: message.bytes, from, at: at.unwrap_or_else(clock::boot) })
}

/// Time since boot in a control message, if it is a time.
pub fn time_of(control: &ControlMessageOwned) -> Option<Duration> {
    let ControlMessageOwned::ScmTimestampns(stamp) = control else { return None };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let age = wall.checked_sub(Duration::from(*stamp)).filter(|age| *age <= MAX_AGE)?;
    Some(clock::boot().saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a datagram, reads it `wait` later, and returns the time before the read that it claims.
    fn waited(socket: &UdpSocket, wait: Duration) -> Duration {
        let before = clock::boot();
        socket.send_to(b"ping", socket.local_addr().unwrap()).unwrap();
        std::thread::sleep(wait);
        let mut buffer = [0; 16];
        let received = receive(socket, &mut buffer).unwrap();
        assert_eq!((received.length, &buffer[..4]), (4, &b"ping"[..]));
        assert!(received.from.is_loopback());
        // The wall clock may be slewed by 0.05 % meanwhile.
        assert!(received.at + Duration::from_millis(1) > before);
        clock::boot().saturating_sub(received.at)
    }

    #[test]
    fn a_datagram_that_waits_keeps_its_time() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp(&socket).unwrap();
        // Loopback delivers within the call that sends. The kernel switches stamps on a little later than it
        // is asked to, and stamps earlier datagrams when they are read.
        let wait = Duration::from_millis(100);
        assert!((0..20).any(|_| waited(&socket, wait) > wait / 2));
    }
}
