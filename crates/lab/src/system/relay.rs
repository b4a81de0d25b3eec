//! Two relays split a client's TCP into three connections: one ends at the air host, one crosses
//! the link, and one reaches the server from the ground host. Each relay buffers no more than the
//! kernel's buffers and [`CHUNK_BYTES`] in each direction, so a slow reader slows down its sender.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_gateway::relay::reset_on_close;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional_with_sizes, copy_buf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::intercept::Interception;
use super::mptcp;
use super::{Running, Spread, Stage, SystemError, SystemUnderTest};
use crate::emu::Service;
use crate::emu::{Congestion, listen};
use crate::emu::{GROUND, Testbed};

/// Port of the ground's relay.
pub(super) const PORT: u16 = 9000;

/// Maximum concurrent connections of each relay; others wait to be accepted. 4,096 × 2 ×
/// [`CHUNK_BYTES`] = 512 MiB, if all of them hold a full chunk in both directions.
const MAX_FLOWS: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;

/// Time within which the other relay must send a connection's destination.
const PATIENCE: Duration = Duration::from_secs(60);

/// Length of the destination in front of a connection's bytes: four bytes of address, two of port.
const TARGET_BYTES: usize = 6;

/// Plain split TCP.
#[derive(Debug)]
pub struct Split {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Congestion control on the link.
    pub(super) congestion: Congestion,
    /// `true` if the connections on the link are MPTCP over all radio links.
    pub(super) multipath: bool,
}

/// Path between the relays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Address to which the air's relay connects.
    pub to: SocketAddr,
    /// Address on which the ground's relay listens.
    pub at: SocketAddr,
    /// Congestion control on the path.
    pub congestion: Congestion,
    /// `true` if the connections on the path are MPTCP.
    pub multipath: bool,
}

/// Both relays; they run until dropped.
pub(super) struct Relays {
    _air: Service,
    _ground: Service,
}

impl SystemUnderTest for Split {
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

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        let hub = SocketAddr::new(GROUND.v4.into(), PORT);
        if self.multipath {
            mptcp::use_all_radios(stage.testbed)?;
        }
        let (congestion, multipath) = (self.congestion, self.multipath);
        let way = Way { to: hub, at: hub, congestion, multipath };
        Ok(Box::new(Relays::start(stage.testbed, way)?))
    }
}

impl Running for Relays {}

impl Relays {
    /// Starts both relays on their hosts.
    pub fn start(testbed: &Testbed, way: Way) -> Result<Self, SystemError> {
        let from_link = match way.multipath {
            true => mptcp::listen(&testbed.ground, way.at, way.congestion)?,
            false => listen(&testbed.ground, way.at, way.congestion)?,
        };
        let ground = Service::start(&testbed.ground, move || serve_link(from_link))?;
        let begin = move || {
            let cabin = Interception::start()?;
            Ok(((), Box::pin(serve_cabin(cabin, way)) as _))
        };
        let air = Service::ready(&testbed.air, begin);
        let (air, ()) = air.map_err(|why| SystemError::Half { half: "air", why })?;
        Ok(Self { _air: air, _ground: ground })
    }
}

/// Serves the air's relay.
async fn serve_cabin(cabin: Interception, way: Way) {
    let places = Arc::new(Semaphore::new(MAX_FLOWS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let Ok((near, target)) = cabin.accept().await else { return };
        tokio::spawn(async move {
            let _place = place;
            match cross(target, way).await {
                Ok(far) if way.multipath => carry_whole(near, far).await,
                Ok(far) => carry(near, far).await,
                Err(_) => reset_on_close(&near),
            }
        });
    }
}

/// Connects to the other relay for a connection to `target`.
async fn cross(target: SocketAddrV4, way: Way) -> std::io::Result<TcpStream> {
    let mut far = connect(way.to, way.congestion, way.multipath).await?;
    far.write_all(&written(target)).await?;
    Ok(far)
}

/// Serves the ground's relay.
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

/// Connects to the destination that `connector` names.
async fn reach(far: &mut TcpStream) -> std::io::Result<TcpStream> {
    let mut target = [0; TARGET_BYTES];
    timeout(PATIENCE, far.read_exact(&mut target)).await??;
    connect(read(target).into(), Congestion::Cubic, false).await
}

/// Copies both directions until both have ended. A reset ends both at once.
async fn carry(mut near: TcpStream, mut far: TcpStream) {
    // A failure to disable Nagle's algorithm only adds delay.
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let carried = copy_bidirectional_with_sizes(&mut near, &mut far, CHUNK_BYTES, CHUNK_BYTES);
    if carried.await.is_err() {
        reset_on_close(&near);
        reset_on_close(&far);
    }
}

/// Like [`carry`], except that the client's end of its direction crosses only after the answer. MPTCP
/// opens no further subflow once one direction has ended, and many clients end theirs at once.
async fn carry_whole(mut near: TcpStream, mut far: TcpStream) {
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let carried = {
        let ((near_read, mut near_write), (far_read, mut far_write)) = (near.split(), far.split());
        let mut near_read = BufReader::with_capacity(CHUNK_BYTES, near_read);
        let mut far_read = BufReader::with_capacity(CHUNK_BYTES, far_read);
        let up = async { copy_buf(&mut near_read, &mut far_write).await };
        let down = async {
            copy_buf(&mut far_read, &mut near_write).await?;
            near_write.shutdown().await
        };
        let both = tokio::try_join!(up, down);
        if both.is_ok() { far_write.shutdown().await } else { both.map(drop) }
    };
    if carried.is_err() {
        reset_on_close(&near);
        reset_on_close(&far);
    }
}

async fn connect(
    to: SocketAddr,
    congestion: Congestion,
    multipath: bool,
) -> std::io::Result<TcpStream> {
    let socket = if multipath { mptcp::socket()? } else { TcpSocket::new_v4()? };
    congestion.set(&socket2::SockRef::from(&socket))?;
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
