//! Other users of the radio link. Their traffic shares the link's queue but crosses no gateway. It
//! comes from separate hosts next to the air and ground gateways, so settings of the gateways'
//! hosts do not affect it.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::congestion::{Congestion, listen};
use super::error::EmuError;
use super::host::Host;
use super::net::{self, Route};
use super::plan::{AIR, CORRESPONDENTS, CORRESPONDENTS_GROUND, TERMINALS, TERMINALS_AIR};
use super::service::Service;
use super::testbed::Testbed;

/// Name of the interfaces that lead to the other users.
const INTERFACE: &str = "others";
/// Bytes per read or write.
const CHUNK_BYTES: usize = 64 << 10;

/// Endless transfers. Dropping this ends them.
pub struct Others {
    _ends: [Service; 2],
}

impl Testbed {
    /// Starts `flows` endless transfers of other users over the radio link, towards the aircraft or
    /// away from it. They share the link's queue with the measured traffic and cross no gateway.
    pub fn others(
        &self,
        flows: u32,
        congestion: Congestion,
        towards_air: bool,
    ) -> Result<Others, EmuError> {
        let [terminals, correspondents] = &self.other_hosts()?;
        let (from, source, to, sink) = if towards_air {
            (correspondents, CORRESPONDENTS.v4, terminals, TERMINALS.v4)
        } else {
            (terminals, TERMINALS.v4, correspondents, CORRESPONDENTS.v4)
        };
        let listener = listen(to, SocketAddr::new(sink.into(), 0), congestion)?;
        let address = listener.local_addr().map_err(|source| EmuError::Configure {
            host: to.name(),
            doing: "find the port of a receiver".into(),
            source: source.into(),
        })?;
        let receiving = Service::start(to, move || receive(listener))?;
        let sending = Service::start(from, move || async move {
            let flows = (0..flows).map(|_| send(source, address, congestion));
            futures_util::future::join_all(flows).await;
        })?;
        Ok(Others { _ends: [sending, receiving] })
    }

    /// The other terminals and their correspondents. They are made on first use and live as long as
    /// the testbed.
    fn other_hosts(&self) -> Result<[Host; 2], EmuError> {
        let mut kept = self.other_hosts.lock();
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
        // The air gateway's host already routes everything to the ground gateway.
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

/// Sends until it is dropped, and reopens a connection that breaks.
async fn send(from: Ipv4Addr, to: SocketAddr, congestion: Congestion) {
    let given = vec![0x5a; CHUNK_BYTES];
    loop {
        let open = async {
            let socket = TcpSocket::new_v4()?;
            congestion.set(&socket2::SockRef::from(&socket))?;
            socket.bind(SocketAddr::new(from.into(), 0))?;
            socket.connect(to).await
        };
        if let Ok(mut tcp) = open.await {
            while tcp.write_all(&given).await.is_ok() {}
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
