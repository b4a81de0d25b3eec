//! Other users of the radio link: traffic that shares its queue and no gateway.

use std::net::{Ipv4Addr, SocketAddr};

use bentpipe_channel::{Count, Fate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::error::EmuError;
use super::host::Host;
use super::net::{configure, index_of};
use super::offload::HEADER_BYTES;
use super::world::World;
use crate::workload::origin::{Congestion, listen, set_congestion};
use crate::workload::service::Service;

/// Other terminals' address on the air's side of the radio link …
const TERMINALS: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 101);
/// … and that of whom they talk to on the ground's.
const CORRESPONDENTS: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 102);
/// Where the receiving side listens.
const PORT: u16 = 9;
/// Bytes handed over or taken at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What became of packets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// All that were offered to the link.
    pub offered: Count,
    /// Of these: lost, or refused by a full queue.
    pub lost: Count,
}

/// Transfers without end; dropped, they end.
pub struct Others {
    _ends: [Service; 2],
}

impl Share {
    pub(super) fn add(&mut self, bytes: usize, fate: Fate) {
        let one = Count { packets: 1, bytes: bytes as u64 };
        let into = |count: &mut Count| {
            count.packets += one.packets;
            count.bytes += one.bytes;
        };
        into(&mut self.offered);
        if !matches!(fate, Fate::Delivered { .. }) {
            into(&mut self.lost);
        }
    }
}

/// Whether a TUN device's frame is of other users.
pub(super) fn is_others(frame: &[u8]) -> bool {
    let ip = frame.get(HEADER_BYTES..HEADER_BYTES + 20);
    ip.is_some_and(|ip| {
        let both =
            |address: &Ipv4Addr| ip[12..16] == address.octets() || ip[16..20] == address.octets();
        ip[0] >> 4 == 4 && both(&TERMINALS) && both(&CORRESPONDENTS)
    })
}

impl World {
    /// Starts `flows` endless CUBIC transfers of others over the radio link, towards the aircraft
    /// or from it. They share the link's queue with whoever is measured and cross no gateway.
    pub fn others(&self, flows: u32, towards_air: bool) -> Result<Others, EmuError> {
        take_address(&self.air, TERMINALS)?;
        take_address(&self.ground, CORRESPONDENTS)?;
        let (from, source, to, sink) = if towards_air {
            (&self.ground, CORRESPONDENTS, &self.air, TERMINALS)
        } else {
            (&self.air, TERMINALS, &self.ground, CORRESPONDENTS)
        };
        let address = SocketAddr::new(sink.into(), PORT);
        let listener = listen(to, address, Congestion::Cubic)?;
        let receiving = Service::start(to, move || receive(listener))?;
        let sending = Service::start(from, move || async move {
            let flows = (0..flows).map(|_| send(source, address));
            futures_util::future::join_all(flows).await;
        })?;
        Ok(Others { _ends: [sending, receiving] })
    }
}

/// A second address on the radio link; having it already is as good.
fn take_address(host: &Host, address: Ipv4Addr) -> Result<(), EmuError> {
    configure(host, &format!("take the address {address}"), async |netlink| {
        let index = index_of(&netlink, "radio").await?;
        netlink.address().add(index, address.into(), 24).replace().execute().await
    })
}

async fn receive(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((mut tcp, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut taken = vec![0; CHUNK_BYTES];
            while tcp.read(&mut taken).await.is_ok_and(|bytes| bytes > 0) {}
        });
    }
}

/// Sends until it is dropped; a connection that breaks is opened again.
async fn send(from: Ipv4Addr, to: SocketAddr) {
    let given = vec![0x5a; CHUNK_BYTES];
    loop {
        let open = async {
            let socket = TcpSocket::new_v4()?;
            set_congestion(&socket2::SockRef::from(&socket), Congestion::Cubic)?;
            socket.bind(SocketAddr::new(from.into(), 0))?;
            socket.connect(to).await
        };
        if let Ok(mut tcp) = open.await {
            while tcp.write_all(&given).await.is_ok() {}
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
