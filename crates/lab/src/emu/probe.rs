//! Sends probes through an emulated link, from kernel to kernel, and records their arrival times.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::error::EmuError;
use super::estimate::{Purpose, Schedule};
use super::testbed::EmulatedLink;

/// Number of paced probes for delay and loss: 500, one every 5 ms, take 2.5 s at 70 kbit/s.
const PROBES: usize = 500;
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// Number of bursts for the rate.
const BURSTS: usize = 3;

/// Grace period beyond a packet's declared delay.
const GRACE: Duration = Duration::from_millis(300);

/// Maximum wait for a packet. A declared outage that holds packets may be this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of IPv4 and UDP headers before a probe's payload.
const HEADERS_BYTES: usize = 28;

/// Buffer of the receiving socket, enough for a burst.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Packets sent, and one arrival for each packet of the schedule.
pub struct Run {
    pub sent: Schedule,
    pub arrived: Vec<Option<Duration>>,
}

/// Sends probes and bursts of `burst` packets from the end `from` of the link to the other.
/// `last_arrival` returns the time by which, according to the declaration, all packets of a
/// schedule should have arrived.
pub fn run(
    link: &EmulatedLink,
    from: usize,
    burst: usize,
    last_arrival: impl Fn(&Schedule) -> Duration,
) -> Result<Run, EmuError> {
    let (near, far) = (&link.ends[from], &link.ends[1 - from]);
    let sender = near.host.udp_socket(SocketAddr::new(near.interface.v4.into(), 0))?;
    let receiver = far.host.udp_socket(SocketAddr::new(far.interface.v4.into(), 0))?;
    let failed = |error: io::Error| far.host.failed("receive probes".into(), error);
    prepare(&receiver).map_err(failed)?;
    let to = receiver.local_addr().map_err(failed)?;
    sender.connect(to).map_err(failed)?;
    let clock = Clock::new(link.epoch);

    thread::scope(|scope| {
        let (finish, finished) = mpsc::channel();
        let packets = PROBES + BURSTS * burst;
        let receiving = scope.spawn(move || receive(&receiver, packets, clock, &finished));
        let sent = send(&sender, burst, clock, &last_arrival);
        let sent = sent.map_err(|error| near.host.failed("send probes".into(), error));
        let patience = last_arrival(sent.as_ref().unwrap_or(&Schedule::default()));
        let patience = patience.min(clock.now() + PATIENCE) + GRACE;
        // The receiver has already ended if every packet has arrived.
        let _ = finish.send(patience);
        let arrived = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Run { sent: sent?, arrived: arrived.map_err(failed)? })
    })
}

/// Converts the kernel's arrival timestamps from the wall clock to the model's time.
#[derive(Clone, Copy)]
struct Clock {
    epoch: Instant,
    wall_at_epoch: Duration,
}

impl Clock {
    fn new(epoch: Instant) -> Self {
        let (elapsed, wall) = (epoch.elapsed(), SystemTime::now());
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { epoch, wall_at_epoch: wall.saturating_sub(elapsed) }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn of_wall(&self, stamp: TimeSpec) -> Duration {
        Duration::from(stamp).saturating_sub(self.wall_at_epoch)
    }
}

fn prepare(receiver: &UdpSocket) -> io::Result<()> {
    setsockopt(receiver, sockopt::ReceiveTimestampns, &true)?;
    // Exceed the system's limit if that is allowed. A burst of 600 packets nearly fits that limit
    // too.
    let room = RECEIVE_BUFFER_BYTES;
    setsockopt(receiver, sockopt::RcvBufForce, &room)
        .or_else(|_| setsockopt(receiver, sockopt::RcvBuf, &room))?;
    receiver.set_read_timeout(Some(Duration::from_millis(20)))
}

fn send(
    sender: &UdpSocket,
    burst: usize,
    clock: Clock,
    last_arrival: &impl Fn(&Schedule) -> Duration,
) -> io::Result<Schedule> {
    let mut sent = Schedule::default();
    let start = clock.now();
    for n in 0..PROBES {
        pause_until(clock, start + PROBE_INTERVAL * n as u32);
        send_one(sender, Purpose::Probe, clock, &mut sent)?;
    }
    for n in 0..BURSTS {
        // The queue must be empty when a burst begins. Packets in flight do not matter.
        let drained = last_arrival(&sent);
        pause_until(clock, drained.min(clock.now() + PATIENCE));
        for _ in 0..burst {
            send_one(sender, Purpose::Burst(n), clock, &mut sent)?;
        }
    }
    Ok(sent)
}

fn pause_until(clock: Clock, at: Duration) {
    thread::sleep(at.saturating_sub(clock.now()));
}

fn send_one(
    sender: &UdpSocket,
    purpose: Purpose,
    clock: Clock,
    sent: &mut Schedule,
) -> io::Result<()> {
    let mut payload = [0; 1500];
    let payload = &mut payload[..purpose.bytes() - HEADERS_BYTES];
    payload[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
    sent.0.push((clock.now(), purpose));
    match sender.send(payload) {
        // An ICMP error for an earlier packet is reported here; this packet was not sent, so send
        // it again.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => sender.send(payload),
        result => result,
    }
    .map(drop)
}

/// Records arrivals until all packets have arrived or the time from `finished` is over.
fn receive(
    receiver: &UdpSocket,
    packets: usize,
    clock: Clock,
    finished: &mpsc::Receiver<Duration>,
) -> io::Result<Vec<Option<Duration>>> {
    let mut arrived = vec![None; packets];
    let mut missing = packets;
    let mut until = None;
    while missing > 0 && until.is_none_or(|until| clock.now() < until) {
        if let Some((number, at)) = receive_one(receiver, clock)?
            && let Some(arrival) = arrived.get_mut(number)
            && arrival.is_none()
        {
            *arrival = Some(at);
            missing -= 1;
        }
        until = until.or(finished.try_recv().ok());
    }
    Ok(arrived)
}

/// Number and kernel arrival time of the next probe. `None` if none has arrived yet.
fn receive_one(receiver: &UdpSocket, clock: Clock) -> io::Result<Option<(usize, Duration)>> {
    let mut number = [0; 8];
    let mut payload = [IoSliceMut::new(&mut number)];
    let mut control = nix::cmsg_space!(TimeSpec);
    let fd = receiver.as_raw_fd();
    match recvmsg::<()>(fd, &mut payload, Some(&mut control), MsgFlags::MSG_TRUNC) {
        Ok(message) => {
            let stamp = message.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(clock.of_wall(stamp)),
                _ => None,
            });
            let at = stamp.unwrap_or_else(|| clock.now());
            Ok(Some((u64::from_be_bytes(number) as usize, at)))
        }
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
