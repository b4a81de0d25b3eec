//! Other users of the radio link: traffic that shares its queue and no gateway, from hosts of its own
//! beside the air's and the ground's, so that nothing that is set on those concerns it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::PoisonError;

use bentpipe_channel::{Count, Fate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::error::EmuError;
use super::host::Host;
use super::net::{self, Route};
use super::offload::HEADER_BYTES;
use super::world::{AIR, CORRESPONDENTS, CORRESPONDENTS_GROUND, TERMINALS, TERMINALS_AIR, World};
use crate::workload::origin::{Congestion, listen, set_congestion};
use crate::workload::service::Service;

/// Name of the interfaces that lead to them.
const INTERFACE: &str = "others";
/// Port of the receiving side.
const PORT: u16 = 9;
/// Bytes handed over or taken at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Fate of packets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// All that were offered to the link.
    pub offered: Count,
    /// Packets lost, or refused by a full queue.
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

/// Returns `true` if a TUN device's frame belongs to other users.
pub(super) fn is_others(frame: &[u8]) -> bool {
    let ip = frame.get(HEADER_BYTES..HEADER_BYTES + 20);
    ip.is_some_and(|ip| {
        let both =
            |address: &Ipv4Addr| ip[12..16] == address.octets() || ip[16..20] == address.octets();
        ip[0] >> 4 == 4 && both(&TERMINALS.v4) && both(&CORRESPONDENTS.v4)
    })
}

impl World {
    /// Starts `flows` endless CUBIC transfers of others over the radio link, towards the aircraft
    /// or from it. They share the link's queue with whoever is measured and cross no gateway.
    pub fn others(&self, flows: u32, towards_air: bool) -> Result<Others, EmuError> {
        let [terminals, correspondents] = &self.other_hosts()?;
        let (from, source, to, sink) = if towards_air {
            (correspondents, CORRESPONDENTS.v4, terminals, TERMINALS.v4)
        } else {
            (terminals, TERMINALS.v4, correspondents, CORRESPONDENTS.v4)
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

    /// The other terminals, and whom they talk to: made when they are first wanted, and there as
    /// long as the world is.
    fn other_hosts(&self) -> Result<[Host; 2], EmuError> {
        let mut kept = self.other_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hosts) = &*kept {
            return Ok(hosts.clone());
        }
        let hosts = [Host::new("terminals")?, Host::new("correspondents")?];
        let sides = [
            (&self.air, TERMINALS, TERMINALS_AIR),
            (&self.ground, CORRESPONDENTS, CORRESPONDENTS_GROUND),
        ];
        for (host, (router, own, gateway)) in hosts.iter().zip(sides) {
            net::prepare(host, false)?;
            let gateway = gateway.on(INTERFACE);
            net::cable((host, &own.on(INTERFACE)), (router, &gateway))?;
            net::route(host, &Route::default(&gateway))?;
        }
        // The air leads everything to the ground already.
        let back = Route::network(&TERMINALS.on(INTERFACE), &AIR.on("radio"));
        net::route(&self.ground, &back)?;
        *kept = Some(hosts.clone());
        Ok(hosts)
    }
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
