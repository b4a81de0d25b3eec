//! `pep-fixed`: an old-fashioned proxy for comparison. It is built from the description of such
//! products in NetForecast's report NFR5132 ("How PEP Protocols Can Hurt the User Experience",
//! issues 1 to 4).
//!
//! Two proxies terminate TCP on both sides of the link, so their kernels acknowledge data that has
//! not crossed it. The protocol between them keeps a fixed window of bytes in flight, whatever is
//! lost, and retransmits lost packets (issue 3).
//!
//! The first proxy reads from its sources as fast as data arrives, into a buffer shared by all
//! flows. It tells the sources to stop once no more than a reserve is free. The signal takes effect
//! one round trip to the source later (issue 1); until then, the proxy takes what the source sends.
//! The reserve is the data that arrives in 10 ms at 200 Mbit/s, a value for nearby sources. If the
//! buffer still fills up, the proxy resets the flow that holds most of it (issue 4).
//!
//! The receive window towards sources is fixed too. With their loss and round trip it limits their
//! rate (issue 2). The kernel's own TCP plays that part.

mod edge;
mod half;
mod packet;
mod sending;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;

use super::intercept::Interception;
use super::{Running, Spread, Stage, SystemError, SystemUnderTest};
use crate::emu::Service;
use crate::emu::{AIR, GROUND, Host};
use half::Bounds;

const PORT: u16 = 9001;

/// Kernel setting for TCP's receive buffer: minimum, initial and maximum size.
const RECEIVE_BUFFERS: &str = "/proc/sys/net/ipv4/tcp_rmem";
const MIN_BUFFER: &str = "4096";

/// The system under test.
pub static PEP_FIXED: PepFixed = PepFixed;

/// An old-fashioned proxy.
#[derive(Debug)]
pub struct PepFixed;

impl SystemUnderTest for PepFixed {
    fn name(&self) -> &'static str {
        "pep-fixed"
    }

    fn about(&self) -> &'static str {
        "An old-fashioned proxy: early acknowledgement, a fixed window, a bounded buffer, and a \
         reset when it is full. Settings: pep-window-bytes (675,000), pep-buffer-bytes (4,000,000), \
         and pep-reserve-bytes (250,000), what is left free when sources are told to stop."
    }

    fn carries_udp(&self) -> bool {
        false
    }

    fn starts_cold(&self) -> bool {
        true
    }

    fn spread(&self) -> Spread {
        Spread::Wide
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        let bounds = Bounds {
            window: stage.bytes("pep-window-bytes", 675_000)?,
            buffer: stage.bytes("pep-buffer-bytes", 4_000_000)?,
            reserve: stage.bytes("pep-reserve-bytes", 250_000)?,
        };
        let Bounds { reserve, buffer, .. } = bounds;
        if reserve >= buffer {
            return Err(SystemError::Reserve { reserve, buffer });
        }
        let (air, ground) = (&stage.testbed.air, &stage.testbed.ground);
        let windows = [FixedWindows::set(air, bounds)?, FixedWindows::set(ground, bounds)?];
        // The cabin is near, so a source there stops at once.
        let distances = [Duration::ZERO, stage.testbed.terrestrial_rtt()];
        let at = [AIR, GROUND].map(|host| SocketAddr::new(host.v4.into(), PORT));
        let counted = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let half = |host: &Host, which: usize| {
            let (socket, peer) = (host.udp_socket(at[which])?, at[1 - which]);
            let (distance, counted) = (distances[which], counted[which].clone());
            let begin = move || {
                let text = |error: std::io::Error| error.to_string();
                socket.connect(peer).and_then(|()| socket.set_nonblocking(true)).map_err(text)?;
                let link = UdpSocket::from_std(socket).map_err(text)?;
                let cabin = if which == 0 { Some(Interception::start()?) } else { None };
                Ok(((), Box::pin(edge::run(cabin, link, bounds, distance, counted)) as _))
            };
            let half = ["air", "ground"][which];
            let started = Service::ready(host, begin);
            started.map(|it| it.0).map_err(|why| SystemError::Half { half, why })
        };
        let services = [half(ground, 1)?, half(air, 0)?];
        Ok(Box::new(Proxies { _services: services, _windows: windows, resets: counted }))
    }
}

/// Both proxies; they run until dropped.
struct Proxies {
    _services: [Service; 2],
    _windows: [FixedWindows; 2],
    resets: [Arc<AtomicU64>; 2],
}

impl Running for Proxies {
    fn resets(&self) -> u64 {
        self.resets.iter().map(|resets| resets.load(Ordering::Relaxed)).sum()
    }
}

/// Receive windows of a host's TCP that do not grow, until dropped. No other TCP ends on the air or
/// the ground host, because the link's other users have separate hosts.
struct FixedWindows {
    host: Host,
    before: String,
}

impl FixedWindows {
    /// The kernel counts its own overhead in a buffer: about as much as the window.
    fn set(host: &Host, bounds: Bounds) -> Result<Self, SystemError> {
        let buffer = 2 * bounds.window;
        let set = || {
            let before = fs::read_to_string(RECEIVE_BUFFERS)?;
            fs::write(RECEIVE_BUFFERS, format!("{MIN_BUFFER} {buffer} {buffer}"))?;
            Ok(before)
        };
        let before = host.run(set)?.map_err(|source: std::io::Error| SystemError::Kernel {
            doing: "fix TCP's receive buffers",
            source,
        })?;
        Ok(Self { host: host.clone(), before })
    }
}

impl Drop for FixedWindows {
    fn drop(&mut self) {
        // If the testbed cannot be entered any more, nothing else runs in it.
        let _ = self.host.run(|| fs::write(RECEIVE_BUFFERS, &self.before));
    }
}
