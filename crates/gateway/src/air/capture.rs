//! Whole packets out of the kernel, as the interception rules choose them: NFLOG.
//!
//! A rule `log group` copies a packet to a netlink socket, and the rule after it drops the packet
//! itself. So nothing is forwarded, whatever the system's settings are, and the kernel has no chance
//! to answer in a destination's name. What comes in fragments is whole by then: TPROXY in the same
//! table has the kernel put them together.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, ConfigNla, PacketNla, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use socket2::SockRef;
use tokio::net::UdpSocket;

/// The group that the rules copy packets to: one air gateway per network namespace.
pub const GROUP: u16 = 0x6270;

/// An IP packet of any size, and what netlink puts around it.
const MOST_MESSAGE_BYTES: usize = 65_536 + 1024;

/// Messages taken before other tasks have their turn.
const MOST_AT_A_TURN: usize = 64;

/// A netlink socket that the packets of [`GROUP`] come to. Reading and writing one is as with UDP,
/// and so is waiting for it.
pub struct Capture(UdpSocket);

impl Capture {
    /// Binds the group. Needs CAP_NET_ADMIN and a kernel with nfnetlink_log.
    pub fn bind() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkNetFilter,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let capture = Self(UdpSocket::from_std(socket.into())?);
        capture.configure(vec![
            ConfigCmd::Bind.into(),
            ConfigMode::PACKET_MAX.into(),
            // Every packet at once: the kernel would gather a hundred, or wait for a second.
            ConfigNla::QThresh(1),
        ])?;
        Ok(capture)
    }

    /// Gives what comes to `take`, for ever, and counts with `lost` how often the kernel has had to
    /// drop packets for want of room.
    pub async fn serve(&self, mut take: impl FnMut(&[u8]), mut lost: impl FnMut()) {
        let mut buffer = vec![0; MOST_MESSAGE_BYTES];
        loop {
            // Fails only when the runtime is going away.
            if self.0.readable().await.is_err() {
                return;
            }
            for _ in 0..MOST_AT_A_TURN {
                match self.0.try_recv(&mut buffer) {
                    Ok(length) => packets(&buffer[..length], &mut take),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => lost(),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asks the kernel, which answers before the request returns.
    fn configure(&self, settings: Vec<ConfigNla>) -> io::Result<()> {
        let request = config_request(NetfilterProtoFamily::Unspec, GROUP, settings);
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let socket = SockRef::from(&self.0);
        socket.send(&bytes)?;
        let length = (&*socket).read(&mut bytes)?;
        let answer = NetlinkMessage::<NetfilterMessage>::deserialize(&bytes[..length]);
        match answer.map(|answer| answer.payload) {
            Ok(NetlinkPayload::Error(error)) if error.code.is_none() => Ok(()),
            Ok(NetlinkPayload::Error(error)) => Err(error.to_io()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Every packet in what one read has brought.
fn packets(mut bytes: &[u8], take: &mut impl FnMut(&[u8])) {
    while let Ok(message) = NetlinkMessage::<NetfilterMessage>::deserialize(bytes) {
        let length = message.header.length as usize;
        if let NetlinkPayload::InnerMessage(NetfilterMessage {
            inner: NetfilterMessageInner::ULog(ULogMessage::Packet(attributes)),
            ..
        }) = &message.payload
        {
            for attribute in attributes {
                if let PacketNla::Payload(packet) = attribute {
                    take(packet);
                }
            }
        }
        // Messages begin at multiples of four bytes (RFC 3549 section 2.3).
        match bytes.get(length.next_multiple_of(4)..) {
            Some(rest) if length > 0 => bytes = rest,
            _ => return,
        }
    }
}
