//! Two relays: the client's TCP ends at the air host, a connection for each of its crosses the link,
//! and a third one reaches the server from the ground host. Each holds no more than the kernel's
//! buffers and [`CHUNK_BYTES`] either way; who reads slowly slows down who sends.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_gateway::relay::reset_on_close;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::intercept::Interception;
use super::{Contender, ContenderError, Running, Spread, Stage};
use crate::emu::{GROUND, World};
use crate::workload::origin::{Congestion, listen, set_congestion};
use crate::workload::service::Service;

/// Port of the ground's half.
pub(super) const PORT: u16 = 9000;

/// Connections that each half carries at once; others wait to be accepted. 4,096 × 2 ×
/// [`CHUNK_BYTES`]: 512 MiB, did all of them hold a full chunk both ways.
const MAX_FLOWS: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;

/// Time within which the other half must name a connection's destination.
const PATIENCE: Duration = Duration::from_secs(60);

/// Length of the destination in front of a connection's bytes: four bytes of address, two of port.
const TARGET_BYTES: usize = 6;

/// Plain split TCP.
#[derive(Debug)]
pub struct Split {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// On the link.
    pub(super) congestion: Congestion,
}

/// Connection between the halves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Address to which the air's half connects.
    pub to: SocketAddr,
    /// Address on which the ground's half listens.
    pub at: SocketAddr,
    /// Congestion control between them.
    pub congestion: Congestion,
}

/// Both halves, running until dropped.
pub(super) struct Relays {
    _air: Service,
    _ground: Service,
}

impl Contender for Split {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn has_tcp_on_link(&self) -> bool {
        true
    }

    fn carries_udp(&self) -> bool {
        false
    }

    fn starts_cold(&self) -> bool {
        false
    }

    fn spread(&self) -> Spread {
        self.congestion.into()
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, ContenderError> {
        let hub = SocketAddr::new(GROUND.v4.into(), PORT);
        let way = Way { to: hub, at: hub, congestion: self.congestion };
        Ok(Box::new(Relays::start(stage.world, way)?))
    }
}

impl Running for Relays {}

impl Relays {
    /// Starts both on their hosts.
    pub fn start(world: &World, way: Way) -> Result<Self, ContenderError> {
        let from_link = listen(&world.ground, way.at, way.congestion)?;
        let ground = Service::start(&world.ground, move || serve_link(from_link))?;
        let begin = move || {
            let cabin = Interception::start()?;
            Ok(((), Box::pin(serve_cabin(cabin, way)) as _))
        };
        let air = Service::ready(&world.air, begin);
        let (air, ()) = air.map_err(|why| ContenderError::Half { half: "air", why })?;
        Ok(Self { _air: air, _ground: ground })
    }
}

/// The air's half.
async fn serve_cabin(cabin: Interception, way: Way) {
    let places = Arc::new(Semaphore::new(MAX_FLOWS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((near, target)) = cabin.accept().await else { return };
        tokio::spawn(async move {
            let _place = place;
            match cross(target, way).await {
                Ok(far) => carry(near, far).await,
                Err(_) => reset_on_close(&near),
            }
        });
    }
}

/// A connection to the other half for one that goes to `target`.
async fn cross(target: SocketAddrV4, way: Way) -> std::io::Result<TcpStream> {
    let mut far = connect(way.to, way.congestion).await?;
    far.write_all(&written(target)).await?;
    Ok(far)
}

/// The ground's half.
async fn serve_link(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(MAX_FLOWS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((mut far, _)) = listener.accept().await else { return };
        tokio::spawn(async move {
            let _place = place;
            match reach(&mut far).await {
                Ok(near) => carry(near, far).await,
                Err(_) => reset_on_close(&far),
            }
        });
    }
}

/// A connection to where `far` says that it goes.
async fn reach(far: &mut TcpStream) -> std::io::Result<TcpStream> {
    let mut target = [0; TARGET_BYTES];
    timeout(PATIENCE, far.read_exact(&mut target)).await??;
    connect(read(target).into(), Congestion::Cubic).await
}

/// Everything of either to the other: each direction's end when it comes, a reset at once.
async fn carry(mut near: TcpStream, mut far: TcpStream) {
    // A lost Nagle switch only delays.
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let carried = copy_bidirectional_with_sizes(&mut near, &mut far, CHUNK_BYTES, CHUNK_BYTES);
    if carried.await.is_err() {
        reset_on_close(&near);
        reset_on_close(&far);
    }
}

async fn connect(to: SocketAddr, congestion: Congestion) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    set_congestion(&socket2::SockRef::from(&socket), congestion)?;
    socket.set_nodelay(true)?;
    socket.connect(to).await
}

fn written(target: SocketAddrV4) -> [u8; TARGET_BYTES] {
    let ([a, b, c, d], [high, low]) = (target.ip().octets(), target.port().to_be_bytes());
    [a, b, c, d, high, low]
}

fn read([a, b, c, d, high, low]: [u8; TARGET_BYTES]) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_back() {
        let target = SocketAddrV4::new(Ipv4Addr::new(198, 19, 1, 254), 443);
        assert_eq!(read(written(target)), target);
    }
}
