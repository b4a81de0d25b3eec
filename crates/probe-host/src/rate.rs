//! Trains of packets from and to an own origin.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use bentpipe_probe::rate::wire::{Cookie, HELLO_BYTES, Message, TrainId};
use bentpipe_probe::rate::{Direction, Next, Packet, Plan, RateCheck, Search};
use bentpipe_probe::target::Family;
use url::Url;

use crate::event::Events;
use crate::origin::headers;
use crate::{arrival, clock, failure, random, web};

/// Longest time of a check.
const MAX_CHECK: Duration = Duration::from_secs(60);

/// Repetitions of a message that is not answered, and the wait for each.
const TRIES: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(2);

/// Silence after which the rest of a train is lost: once all of it was sent, and before.
const SILENCE: Duration = Duration::from_millis(1000);
const SILENCE_AMID: Duration = Duration::from_millis(2500);

/// Largest datagram that is read.
const BUFFER: usize = 2048;

/// Measures a direction. Failures are part of the result.
pub fn check(
    origin: &Url,
    direction: Direction,
    resolvers: &[IpAddr],
    events: &Events,
) -> RateCheck {
    let mut check =
        RateCheck { server: None, direction, limit: None, trains: Vec::new(), failure: None };
    if let Err(error) = run(origin, resolvers, events, &mut check) {
        check.failure = Some(failure::name(&error));
    }
    check
}

fn run(
    origin: &Url,
    resolvers: &[IpAddr],
    events: &Events,
    check: &mut RateCheck,
) -> io::Result<()> {
    let address = web::address(origin, resolvers)?;
    check.server = Some(address);
    let port = origin.port_or_known_default().unwrap_or(80);
    let mut line = Line::open(SocketAddr::new(address, port))?;
    let mut search = Search::default();
    loop {
        let plan = match search.next() {
            Next::Done(limit) => {
                check.limit = Some(limit);
                return Ok(());
            }
            Next::Send(plan) => plan,
        };
        if events.stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let packets = match check.direction {
            Direction::Down => line.down(plan)?,
            Direction::Up => line.up(plan)?,
        };
        search.add(plan, &packets);
        check.trains.push(packets);
    }
}

/// A socket to an origin, with its cookie.
struct Line {
    socket: UdpSocket,
    headers: usize,
    cookie: Cookie,
    next: TrainId,
    end: Duration,
}

impl Line {
    fn open(origin: SocketAddr) -> io::Result<Self> {
        let any = Family::of(origin.ip()).unspecified();
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(origin)?;
        arrival::stamp(&socket)?;
        let next = TrainId { run: u64::from_be_bytes(random::bytes()?), train: 0 };
        let end = clock::boot() + MAX_CHECK;
        let headers = headers(origin.ip());
        let mut line = Self { socket, headers, cookie: [0; 16], next, end };
        let nonce = u64::from_be_bytes(random::bytes()?);
        line.cookie =
            line.ask(&Message::Hello { nonce }.encode(HELLO_BYTES), |message| match message {
                Message::Cookie { nonce: same, cookie } if same == nonce => Some(cookie),
                _ => None,
            })?;
        Ok(line)
    }

    /// Has a train sent, and receives it.
    fn down(&mut self, plan: Plan) -> io::Result<Vec<Packet>> {
        let id = self.number();
        let request = Message::Request { cookie: self.cookie, id, plan }.encode(0);
        let mut packets = plan.packets();
        let mut tries = 0;
        while !packets.iter().any(|packet| packet.arrived_us.is_some()) {
            if tries == TRIES {
                return Err(io::ErrorKind::TimedOut.into());
            }
            tries += 1;
            self.socket.send(&request)?;
            self.receive(id, plan, &mut packets)?;
        }
        Ok(packets)
    }

    /// Receives packets until they end.
    fn receive(&self, id: TrainId, plan: Plan, packets: &mut [Packet]) -> io::Result<()> {
        let asked = clock::boot();
        let sending = Duration::from_micros(plan.time_us());
        let (mut first, mut last, mut missing) = (None, asked, packets.len());
        while missing > 0 {
            let now = clock::boot();
            let silence = match first {
                None => PATIENCE,
                Some(first) if now.saturating_sub(first) < sending => SILENCE_AMID,
                Some(_) => SILENCE,
            };
            let until = (last + silence).min(self.end);
            let Some((message, at)) = self.next(until)? else { return Ok(()) };
            match message {
                Message::Packet { id: same, number, sent_us, .. } if same == id => {
                    let Some(packet) = packets.get_mut(usize::from(number)) else { continue };
                    if packet.arrived_us.is_some() {
                        continue;
                    }
                    first.get_or_insert(at);
                    (last, missing) = (at, missing - 1);
                    packet.sent_us = sent_us;
                    packet.arrived_us = Some(after(asked, at));
                }
                Message::Refusal { id: same } if same == id => {
                    return Err(io::Error::other("the origin sends no train: try again later"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends a train, and asks for its arrivals.
    fn up(&mut self, plan: Plan) -> io::Result<Vec<Packet>> {
        let id = self.number();
        let mut packets = plan.packets();
        let start = clock::boot();
        for (number, packet) in (0..).zip(&mut packets) {
            let due = start + Duration::from_micros(packet.sent_us.into());
            std::thread::sleep(due.saturating_sub(clock::boot()));
            packet.sent_us = after(start, clock::boot());
            let message =
                Message::Packet { cookie: self.cookie, id, number, sent_us: packet.sent_us };
            let bytes = message.encode(usize::from(packet.bytes).saturating_sub(self.headers));
            match self.socket.send(&bytes) {
                // It is lost then.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => _ = result?,
            }
        }
        let mut skip = 0;
        loop {
            let question = Message::Question { cookie: self.cookie, id, skip }.encode(0);
            let (total, arrivals) = self
                .ask(&question, |message| match message {
                    Message::Report { id: same, skip: from, total, arrivals }
                        if (same, from) == (id, skip) =>
                    {
                        Some(Some((total, arrivals)))
                    }
                    Message::Refusal { id: same } if same == id => Some(None),
                    _ => None,
                })?
                .ok_or_else(|| io::Error::other("the origin keeps no train: try again later"))?;
            for (number, arrived_us) in &arrivals {
                if let Some(packet) = packets.get_mut(usize::from(*number)) {
                    packet.arrived_us = Some(*arrived_us);
                }
            }
            // At most 180. The server's `total` may be wrong.
            skip = skip.saturating_add(arrivals.len() as u16);
            if skip >= total || usize::from(skip) >= packets.len() || arrivals.is_empty() {
                return Ok(packets);
            }
        }
    }

    fn number(&mut self) -> TrainId {
        let id = self.next;
        self.next.train = self.next.train.wrapping_add(1);
        id
    }

    /// Sends a message until `answer` finds its answer.
    fn ask<T>(&self, message: &[u8], answer: impl Fn(Message) -> Option<T>) -> io::Result<T> {
        for _ in 0..TRIES {
            self.socket.send(message)?;
            let until = (clock::boot() + PATIENCE).min(self.end);
            while let Some((message, _)) = self.next(until)? {
                if let Some(found) = answer(message) {
                    return Ok(found);
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The next message with its time of arrival; `None` if there is none until then.
    fn next(&self, until: Duration) -> io::Result<Option<(Message, Duration)>> {
        let mut buffer = [0; BUFFER];
        loop {
            let left = until.saturating_sub(clock::boot());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match arrival::receive(&self.socket, &mut buffer) {
                Ok(received) => {
                    if let Some(message) = Message::decode(&buffer[..received.length]) {
                        return Ok(Some((message, received.at)));
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

fn after(start: Duration, at: Duration) -> u32 {
    u32::try_from(bentpipe_probe::micros(at.saturating_sub(start))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use bentpipe_probe::rate::wire::MAX_ARRIVALS;

    use super::*;

    #[test]
    fn trains_in_both_directions_on_loopback() {
        let origin = crate::origin::tests::start();
        let (events, _receiver) = Events::new();
        for direction in [Direction::Down, Direction::Up] {
            let check = check(&origin, direction, &[], &events);
            assert_eq!(check.failure, None);
            assert!(check.limit.is_some());
            let first = &check.trains[0];
            assert_eq!(first.len(), 96);
            assert!(first.iter().all(|packet| packet.arrived_us.is_some()), "{direction:?}");
        }
    }

    #[test]
    fn a_report_without_an_end_ends() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let origin = Url::parse(&format!("http://{}/", socket.local_addr().unwrap())).unwrap();
        let (events, _receiver) = Events::new();
        let measured = std::thread::spawn(move || check(&origin, Direction::Up, &[], &events));
        let (mut buffer, mut questions) = ([0; BUFFER], 0);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while !measured.is_finished() {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            let answer = match Message::decode(&buffer[..length]) {
                Some(Message::Hello { nonce }) => Message::Cookie { nonce, cookie: [0; 16] },
                Some(Message::Question { id, skip, .. }) => {
                    questions += 1;
                    let arrivals = vec![(u16::MAX, u32::MAX); MAX_ARRIVALS];
                    Message::Report { id, skip, total: u16::MAX, arrivals }
                }
                _ => continue,
            };
            socket.send_to(&answer.encode(0), from).unwrap();
        }
        let check = measured.join().unwrap();
        let most: usize = check.trains.iter().map(|train| train.len().div_ceil(MAX_ARRIVALS)).sum();
        assert!(!check.trains.is_empty() && check.failure.is_none(), "{check:?}");
        assert!((1..=most).contains(&questions), "{questions} of {most}");
    }

    #[test]
    fn an_origin_without_trains_is_a_failure() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        drop(silent);
        let origin = Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
        let (events, _receiver) = Events::new();
        let check = check(&origin, Direction::Up, &[], &events);
        assert_eq!(check.failure.as_deref(), Some("connection_refused"));
        assert_eq!((check.limit, check.trains.len()), (None, 0));
    }
}
