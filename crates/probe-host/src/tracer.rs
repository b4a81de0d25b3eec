//! Traceroutes: UDP, for which the kernel hands over the errors of routers without any rights, and ICMP on a
//! raw socket.
//!
//! | module | contents |
//! |---|---|
//! | `errors` | the error queue of a UDP socket |

mod errors;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use bentpipe_probe::ping::echo::checksum;
use bentpipe_probe::target::Family;
use bentpipe_probe::trace::{Arrival, ReplyKind, Step, Trace, TraceMethod, Tracer, packet};
use nix::poll::{PollFd, PollFlags, ppoll};

use crate::event::Events;
use crate::icmp::{Icmp, set_ttl};
use crate::{arrival, clock, failure, random};

/// Destination port: the first of those that traceroute(8) uses. It is constant, as the flow must be.
const PORT: u16 = 33_434;

/// Magic of the data of UDP probes, before their number.
const MAGIC: [u8; 6] = *b"bentpi";

/// Maximum number of messages read at a time.
const MAX_READS: usize = 64;

/// Makes a traceroute to `address`. `events` tells when to stop.
pub fn trace(
    name: &str,
    address: IpAddr,
    method: TraceMethod,
    events: &Events,
) -> io::Result<Trace> {
    let prober = Prober::open(address, method)?;
    let flow = prober.flow();
    let mut tracer = Tracer::default();
    while !events.stopped() {
        match tracer.step(clock::boot()) {
            Step::Done => break,
            Step::Send { ttl, number } => {
                if let Err(error) = prober.send(ttl, number) {
                    tracer.failed(failure::name(&error));
                }
            }
            Step::Wait(until) => {
                prober.wait(until.saturating_sub(clock::boot()));
                prober.read(&mut tracer);
            }
        }
    }
    let (hops, end) = tracer.finish();
    Ok(Trace { target: name.to_owned(), address, method, flow, hops, end })
}

/// Sockets of one traceroute.
enum Prober {
    Udp { socket: UdpSocket, to: IpAddr, family: Family, port: u16 },
    Icmp { icmp: Icmp, to: IpAddr, family: Family, identifier: u16 },
}

impl Prober {
    fn open(address: IpAddr, method: TraceMethod) -> io::Result<Self> {
        let family = Family::of(address);
        match method {
            TraceMethod::Udp => {
                let socket = UdpSocket::bind(SocketAddr::new(family.unspecified(), 0))?;
                socket.connect(SocketAddr::new(address, PORT))?;
                socket.set_nonblocking(true)?;
                errors::enable(&socket, family)?;
                arrival::stamp(&socket)?;
                let port = socket.local_addr()?.port();
                Ok(Self::Udp { socket, to: address, family, port })
            }
            TraceMethod::Icmp => {
                let icmp = Icmp::raw(family)?;
                // Another program's identifier is unlikely to be this one: 1 in 65,536 for each.
                let identifier = u16::from_be_bytes(random::bytes()?);
                Ok(Self::Icmp { icmp, to: address, family, identifier })
            }
        }
    }

    /// Identifier of the flow, as a router computes it.
    fn flow(&self) -> u16 {
        match self {
            Self::Udp { port, .. } => *port,
            // The checksum field holds the complement; of a message with its checksum the sum is 0.
            Self::Icmp { family: Family::V4, identifier, .. } => {
                let probe = packet::probe(Family::V4, *identifier, 0);
                u16::from_be_bytes([probe[2], probe[3]])
            }
            Self::Icmp { identifier, .. } => checksum(&packet::probe(Family::V6, *identifier, 0)),
        }
    }

    fn send(&self, ttl: u8, number: u16) -> io::Result<()> {
        match self {
            Self::Udp { socket, family, .. } => {
                set_ttl(socket, *family, ttl)?;
                let mut data = MAGIC.to_vec();
                data.extend(number.to_be_bytes());
                // A call may report the error that answers an earlier probe instead of sending.
                let mut result = socket.send(&data);
                for _ in 0..MAX_READS {
                    if !result.as_ref().is_err_and(is_news) {
                        break;
                    }
                    result = socket.send(&data);
                }
                result.map(drop)
            }
            Self::Icmp { icmp, to, family, identifier } => {
                icmp.set_ttl(ttl)?;
                icmp.send(*to, &packet::probe(*family, *identifier, number))
            }
        }
    }

    fn wait(&self, time: Duration) {
        const MAX_WAIT: Duration = Duration::from_millis(200);
        let socket = match self {
            Self::Udp { socket, .. } => socket,
            Self::Icmp { icmp, .. } => icmp.socket(),
        };
        // An error in the queue wakes the call even if nobody asks for it.
        let mut waited = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let _ = ppoll(&mut waited, Some(time.min(MAX_WAIT).into()), None);
    }

    fn read(&self, tracer: &mut Tracer) {
        match self {
            Self::Udp { socket, to, family, .. } => {
                for _ in 0..MAX_READS {
                    let Some(error) = errors::next(socket, *family) else { break };
                    let number = error
                        .data
                        .strip_prefix(&MAGIC[..])
                        .and_then(|rest| Some(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?)));
                    // A gateway that rejects in the target's place is not the target.
                    let kind = match error.kind {
                        ReplyKind::Reached if error.from != *to => ReplyKind::Unreachable,
                        kind => kind,
                    };
                    tracer.arrived(Arrival { at: error.at, from: error.from, kind, number });
                }
                // A proper answer to a probe would be odd, but it must not wake the wait for ever.
                let _ = socket.recv(&mut [0; 64]);
            }
            Self::Icmp { icmp, family, identifier, .. } => {
                let mut buffer = [0; 1500];
                for _ in 0..MAX_READS {
                    let Ok(Some((from, at, message))) = icmp.receive(&mut buffer) else { break };
                    if let Some((kind, number)) = packet::answer(*family, *identifier, message) {
                        tracer.arrived(Arrival { at, from, kind, number: Some(number) });
                    }
                }
            }
        }
    }
}

/// Returns `true` if the error is about an earlier probe.
fn is_news(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::EPROTO | libc::EACCES)
    )
}
