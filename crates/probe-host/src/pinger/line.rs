//! One target with its pings.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_probe::ping::echo;
use bentpipe_probe::ping::{Course, InFlight, Outcome, Ping, Sent, Straggler, Verdict};
use bentpipe_probe::record::Measurement;
use bentpipe_probe::schedule;
use bentpipe_probe::target::Family;
use bentpipe_probe::target::{Method, Target};
use nix::poll::{PollFd, PollFlags};

use super::handshakes::Handshakes;
use super::shared::{Ended, MAX_READS, Shared};
use crate::{arrival, clock, failure};

/// State of one target.
#[derive(Debug)]
pub(crate) struct Line {
    target: Target,
    course: Option<Course>,
    index: usize,
    count: usize,
    interval: Duration,
    token: u64,
    /// Number of the next time in the schedule.
    next: u64,
    /// Number of the next ping.
    sequence: u32,
    in_flight: InFlight,
    shared: Arc<Shared>,
    udp: Option<UdpSocket>,
    tcp: Handshakes,
}

impl Line {
    /// A target that is `index` of `count`.
    pub fn new(
        target: Target,
        index: usize,
        count: usize,
        interval: Duration,
        token: u64,
        shared: Arc<Shared>,
    ) -> Self {
        let family = Family::of(target.address);
        let allowed = |method: &Method| *method != Method::Icmp || shared.icmp(family).is_some();
        let methods: Vec<Method> = target.methods.iter().copied().filter(allowed).collect();
        // A target for ICMP alone, which is not allowed, fails openly with each ping.
        let methods = if methods.is_empty() { target.methods.clone() } else { methods };
        let course = Course::new(methods, Duration::ZERO);
        let (in_flight, tcp) = (InFlight::default(), Handshakes::default());
        Self {
            target,
            course,
            index,
            count,
            interval,
            token,
            next: 0,
            sequence: 0,
            in_flight,
            shared,
            udp: None,
            tcp,
        }
    }

    /// Address of the target.
    pub fn address(&self) -> IpAddr {
        self.target.address
    }

    /// Time of the next ping or loss.
    pub fn next_event(&self) -> Duration {
        let due = schedule::ping_time(self.next, self.index, self.count, self.interval);
        self.in_flight.deadline().map_or(due, |deadline| deadline.min(due))
    }

    /// Adds the sockets to wait for.
    pub fn wait_for<'s>(&'s self, waited: &mut Vec<PollFd<'s>>) {
        waited.extend(self.udp.iter().map(|udp| PollFd::new(udp.as_fd(), PollFlags::POLLIN)));
        self.tcp.wait_for(waited);
    }

    /// Sends the ping whose time has come. Times that a suspension missed are skipped.
    pub fn send_due(&mut self, now: Duration, start: Duration, done: &mut Vec<Ended>) {
        let due = schedule::ping_time(self.next, self.index, self.count, self.interval);
        if now < due {
            return;
        }
        let missed = schedule::ping_after(now, self.index, self.count, self.interval);
        let due = if missed > self.next + 1 {
            self.next = missed - 1;
            schedule::ping_time(self.next, self.index, self.count, self.interval)
        } else {
            due
        };
        self.next += 1;
        let Some((method, scout)) = self.course.as_mut().map(|course| course.next(now)) else {
            return;
        };
        self.send(method, false, due, start, done);
        if let Some(method) = scout {
            self.send(method, true, due, start, done);
        }
    }

    fn send(
        &mut self,
        method: Method,
        scout: bool,
        due: Duration,
        start: Duration,
        done: &mut Vec<Ended>,
    ) {
        // Read again, because the ping before it takes time.
        let now = clock::boot().saturating_sub(start);
        let sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let start_error = now.saturating_sub(due);
        let sent = Sent { at: now, start_error, method, scout };
        match self.transmit(method, sequence) {
            Ok(()) => self.in_flight.sent(sequence, sent),
            Err(error) => {
                let outcome = Outcome::Failed { failure: failure::name(&error) };
                done.push((now, Duration::ZERO, self.ping(sequence, sent, outcome)));
            }
        }
    }

    fn transmit(&mut self, method: Method, sequence: u32) -> io::Result<()> {
        let family = Family::of(self.target.address);
        match method {
            Method::Icmp => {
                let icmp =
                    self.shared.icmp(family).ok_or(io::Error::from_raw_os_error(libc::EACCES))?;
                // The kernel writes its own identifier on unprivileged sockets.
                let packet = echo::request(family, self.token as u16, self.token, sequence);
                icmp.send(self.target.address, &packet)
            }
            Method::Udp { port } => {
                let udp = match self.udp.take() {
                    Some(udp) => udp,
                    None => connected(SocketAddr::new(self.target.address, port))?,
                };
                let mut packet = self.token.to_be_bytes().to_vec();
                packet.extend(sequence.to_be_bytes());
                // The first call may report the error of an earlier ping.
                udp.send(&packet).or_else(|_| udp.send(&packet))?;
                // After an error the next ping gets a new socket: the machine's address may have changed.
                self.udp = Some(udp);
                Ok(())
            }
            Method::Tcp { port } => {
                self.tcp.begin(SocketAddr::new(self.target.address, port), sequence)
            }
        }
    }

    /// Judges an ICMP message from this address. Returns `true` if it was for this target.
    pub fn echoed(
        &mut self,
        family: Family,
        message: &[u8],
        at: Duration,
        done: &mut Vec<Ended>,
    ) -> bool {
        let Some(sequence) = echo::reply(family, self.token, message) else { return false };
        self.replied(sequence, at, false, done);
        true
    }

    /// Reads this target's own sockets.
    pub fn read(&mut self, start: Duration, done: &mut Vec<Ended>) {
        let at = clock::boot().saturating_sub(start);
        for (sequence, refused) in self.tcp.finished() {
            self.replied(sequence, at, refused, done);
        }
        for _ in 0..MAX_READS {
            let Some(udp) = &self.udp else { return };
            let mut buffer = [0; 64];
            match arrival::receive(udp, &mut buffer) {
                Ok(received) => {
                    if let Some(sequence) = self.echo_number(&buffer[..received.length]) {
                        self.replied(sequence, received.at.saturating_sub(start), false, done);
                    }
                }
                // "Port unreachable" does not say for which ping; it is for the oldest.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if let Some(sequence) = self.in_flight.oldest() {
                        self.replied(sequence, at, true, done);
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn echo_number(&self, data: &[u8]) -> Option<u32> {
        let (token, sequence) = data.split_at_checked(8)?;
        let ours = token == self.token.to_be_bytes();
        ours.then(|| sequence.try_into().ok().map(u32::from_be_bytes))?
    }

    fn replied(&mut self, sequence: u32, at: Duration, refused: bool, done: &mut Vec<Ended>) {
        match self.in_flight.replied(sequence, at, refused) {
            Verdict::Answered(sent, outcome) => {
                if let Some(course) = &mut self.course {
                    course.replied(sent.method, at);
                }
                done.push((
                    sent.at,
                    at.saturating_sub(sent.at),
                    self.ping(sequence, sent, outcome),
                ));
            }
            Verdict::Straggler(rtt) => {
                let rtt_us = bentpipe_probe::micros(rtt);
                let straggler = Straggler { target: self.target.name.clone(), sequence, rtt_us };
                done.push((at.saturating_sub(rtt), rtt, Measurement::Straggler(straggler)));
            }
            Verdict::Unknown => {}
        }
    }

    /// Gives up pings without a reply.
    pub fn expire(&mut self, now: Duration, done: &mut Vec<Ended>) {
        for (sequence, sent) in self.in_flight.expire(now) {
            self.tcp.give_up(sequence);
            done.push((
                sent.at,
                now.saturating_sub(sent.at),
                self.ping(sequence, sent, Outcome::Lost),
            ));
        }
    }

    fn ping(&self, sequence: u32, sent: Sent, outcome: Outcome) -> Measurement {
        Measurement::Ping(Ping {
            target: self.target.name.clone(),
            address: self.target.address,
            method: sent.method,
            sequence,
            scout: sent.scout,
            start_error_us: bentpipe_probe::micros(sent.start_error),
            outcome,
        })
    }
}

/// A UDP socket to `to` that does not block.
fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    arrival::stamp(&socket)?;
    Ok(socket)
}
