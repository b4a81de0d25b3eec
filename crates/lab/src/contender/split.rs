//! A plain split-TCP relay: the client's TCP ends at the air host, a connection of its own with
//! BBR crosses the link, and a third one reaches the origin from the ground host.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{ContenderError, Parts, Running, Stage};
use crate::emu::{AIR_CABIN, GROUND};
use crate::workload::fetch::{Client, Route};
use crate::workload::origin::{Congestion, listen, set_congestion};
use crate::workload::service::Service;

const PORT: u16 = 9000;

/// Starts both halves.
pub(super) fn start(stage: &Stage<'_>) -> Result<Running, ContenderError> {
    let world = stage.world;
    let cabin = SocketAddr::new(AIR_CABIN.v4.into(), PORT);
    let hub = SocketAddr::new(GROUND.v4.into(), PORT);
    let origin = stage.origin.address(Congestion::Cubic);
    let from_cabin = listen(&world.air, cabin, Congestion::Cubic)?;
    let from_link = listen(&world.ground, hub, Congestion::Bbr)?;
    let air = Service::start(&world.air, move || relay(from_cabin, hub, Congestion::Bbr))?;
    let ground =
        Service::start(&world.ground, move || relay(from_link, origin, Congestion::Cubic))?;
    // The client connects to the relay itself, which is what interception would make of it.
    let client = Client { route: Route::Direct, origin: cabin, congestion: Congestion::Cubic };
    Ok(Running { client, parts: Parts::Relays { _air: air, _ground: ground } })
}

/// For every connection to `listener`, a new one to `to`.
async fn relay(listener: std::net::TcpListener, to: SocketAddr, congestion: Congestion) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((mut near, _)) = listener.accept().await {
        tokio::spawn(async move {
            // A relay that cannot connect closes the client's connection, which shows there.
            if let Ok(mut far) = connect(to, congestion).await {
                let _ = near.set_nodelay(true);
                let _ = copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}

async fn connect(to: SocketAddr, congestion: Congestion) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    set_congestion(&socket2::SockRef::from(&socket), congestion)?;
    socket.set_nodelay(true)?;
    socket.connect(to).await
}
