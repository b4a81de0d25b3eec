//! Receives whole packets that the interception rules select, by NFLOG.
//!
//! A `log group` rule copies a packet to a netlink socket, and the next rule drops the original. So
//! nothing is forwarded regardless of the system's settings, and the kernel cannot answer in place
//! of the destination. Fragments arrive reassembled, because TPROXY in the same table makes the
//! kernel defragment.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use bentpipe_net::interception::GROUP;
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

/// Maximum size of an IP packet with its netlink headers.
const MAX_MESSAGE_BYTES: usize = 65_536 + 1024;

/// Maximum number of messages read before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// A netlink socket that receives the packets of [`GROUP`]. It is wrapped as a UDP socket, because
/// reading, writing and polling work alike.
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
            // Deliver every packet at once; by default the kernel collects a hundred, or waits for
            // a second.
            ConfigNla::QThresh(1),
        ])?;
        Ok(capture)
    }

    /// Passes received packets to `take`, forever. Calls `lost` each time the kernel dropped
    /// packets for lack of buffer space.
    pub async fn serve(&self, mut take: impl FnMut(&[u8]), mut lost: impl FnMut()) {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        loop {
            // Fails only when the runtime is shutting down.
            if self.0.readable().await.is_err() {
                return;
            }
            for _ in 0..MAX_AT_A_TURN {
                match self.0.try_recv(&mut buffer) {
                    Ok(length) => packets(&buffer[..length], &mut take),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => lost(),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a configuration request, which the kernel answers before the call returns.
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

/// Passes every packet in one read's data to `take`.
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
        // Messages are aligned to four bytes (RFC 3549 section 2.3).
        match bytes.get(length.next_multiple_of(4)..) {
            Some(rest) if length > 0 => bytes = rest,
            _ => return,
        }
    }
}
