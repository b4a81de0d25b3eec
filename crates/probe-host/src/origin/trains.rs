//! Trains of packets: sent to probes and received from them, over UDP at the port of the objects.
//!
//! Nobody can make the origin flood another address. A train goes only to an address that returned its cookie. A host
//! has 4 MB, and 6.7 kB a second after that.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::places::{Place, Places, host_of};
use bentpipe_probe::rate::wire::{Cookie, MAX_ARRIVALS, Message, TrainId};
use bentpipe_probe::rate::{MAX_TRAIN_PACKETS, Packet, Plan};
use bentpipe_units::{TokenBuckets, TokenRate};
use ring::hmac;
use tokio::net::UdpSocket;

use crate::{clock, random};

/// Bytes for one host: five measurements of 800 kB at once, and five in ten minutes after that.
const HOST_BYTES: TokenRate = TokenRate::new(6_700, 4_000_000);

/// Maximum number of hosts with a quota of their own. The others share one. 4,096 × 50 bytes = 200 kB.
const MAX_HOSTS: usize = 4096;

/// Maximum number of trains sent at a time, one for each host. At 40 Mbit/s each they take 160 Mbit/s.
const MAX_SENDING: usize = 4;

/// Requests remembered, so that a repeated one is not answered twice.
const MAX_ANSWERED: usize = 256;

/// Maximum number of trains of which arrivals are kept, of all hosts and of one: 64 × 1,000 × 8 bytes = 512 kB.
const MAX_ARRIVING: usize = 64;
const MAX_ARRIVING_EACH: usize = 8;

/// Time for which arrivals are kept while others need the room.
const KEEP: Duration = Duration::from_secs(60);

/// Validity of a cookie: until the end of the next period.
const PERIOD_S: u64 = 60;

/// Largest datagram that is read.
const BUFFER: usize = 2048;

/// Bytes of the headers before a UDP payload. A socket for both IP versions names an IPv4 host by an IPv6 address.
pub const fn headers(to: IpAddr) -> usize {
    if to.to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Answers until the process ends.
pub async fn serve(socket: UdpSocket) {
    let Ok(key) = random::bytes() else { return };
    let socket = Arc::new(socket);
    let sending = Places::new(MAX_SENDING);
    let mut trains = Trains::new(key);
    let mut buffer = [0; BUFFER];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            // An ICMP error of an earlier packet, for example.
            tokio::task::yield_now().await;
            continue;
        };
        let place = sending.admit(from.ip());
        match trains.take(from, &buffer[..length], clock::boot(), place.is_some()) {
            Action::Nothing => {}
            Action::Reply(message) => _ = socket.send_to(&message.encode(0), from).await,
            Action::Send(id, plan) => {
                if let Some(place) = place {
                    tokio::spawn(send(Arc::clone(&socket), from, id, plan, place));
                }
            }
        }
    }
}

/// Sends a train, each packet at its time or as soon after it as possible.
async fn send(socket: Arc<UdpSocket>, to: SocketAddr, id: TrainId, plan: Plan, _place: Place) {
    let start = tokio::time::Instant::now();
    for (number, Packet { sent_us, bytes, .. }) in (0..).zip(plan.packets()) {
        tokio::time::sleep_until(start + Duration::from_micros(sent_us.into())).await;
        let sent_us = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
        let message = Message::Packet { cookie: [0; 16], id, number, sent_us };
        let length = usize::from(bytes).saturating_sub(headers(to.ip()));
        // A packet that the kernel does not take is lost.
        let _ = socket.send_to(&message.encode(length), to).await;
    }
}

/// Answer to a datagram.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    Reply(Message),
    Send(TrainId, Plan),
}

/// State of the origin.
struct Trains {
    key: hmac::Key,
    quota: TokenBuckets<IpAddr>,
    answered: VecDeque<(SocketAddr, TrainId)>,
    arriving: VecDeque<Arriving>,
}

/// A train that arrives.
struct Arriving {
    from: SocketAddr,
    id: TrainId,
    since: Duration,
    /// Numbers and times of arrival in microseconds.
    arrivals: Vec<(u16, u32)>,
}

impl Trains {
    fn new(key: [u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            quota: TokenBuckets::new(HOST_BYTES, MAX_HOSTS),
            answered: VecDeque::new(),
            arriving: VecDeque::new(),
        }
    }

    /// Handles a datagram. `free` says whether another train can be sent to its host.
    fn take(&mut self, from: SocketAddr, bytes: &[u8], now: Duration, free: bool) -> Action {
        let period = now.as_secs() / PERIOD_S;
        let valid = |cookie: &Cookie| {
            [Some(period), period.checked_sub(1)]
                .into_iter()
                .flatten()
                .any(|period| self.cookie(from, period) == *cookie)
        };
        match Message::decode(bytes) {
            Some(Message::Hello { nonce }) => {
                Action::Reply(Message::Cookie { nonce, cookie: self.cookie(from, period) })
            }
            Some(Message::Request { cookie, id, plan }) if valid(&cookie) => {
                self.request(from, id, plan, now, free)
            }
            Some(Message::Packet { cookie, id, number, .. }) if valid(&cookie) => {
                self.arrived(from, id, number, now);
                Action::Nothing
            }
            Some(Message::Question { cookie, id, skip }) if valid(&cookie) => {
                self.report(from, id, skip, now)
            }
            _ => Action::Nothing,
        }
    }

    fn cookie(&self, from: SocketAddr, period: u64) -> Cookie {
        let text = format!("{from} {period}");
        let tag = hmac::sign(&self.key, text.as_bytes());
        tag.as_ref().first_chunk().copied().unwrap_or_default()
    }

    fn request(
        &mut self,
        from: SocketAddr,
        id: TrainId,
        plan: Plan,
        now: Duration,
        free: bool,
    ) -> Action {
        if !plan.is_valid() || self.answered.contains(&(from, id)) {
            return Action::Nothing;
        }
        if !free || !self.quota.take(host_of(from.ip()), plan.bytes(), now) {
            return Action::Reply(Message::Refusal { id });
        }
        if self.answered.len() == MAX_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back((from, id));
        Action::Send(id, plan)
    }

    fn arrived(&mut self, from: SocketAddr, id: TrainId, number: u16, now: Duration) {
        let known = self.arriving.iter_mut().find(|train| train.from == from && train.id == id);
        let train = match known {
            Some(train) => train,
            None => {
                if !self.make_room(from.ip(), now) {
                    return;
                }
                self.arriving.push_back(Arriving { from, id, since: now, arrivals: Vec::new() });
                let Some(train) = self.arriving.back_mut() else { return };
                train
            }
        };
        let since_us = bentpipe_probe::micros(now.saturating_sub(train.since));
        let room = train.arrivals.len() < usize::from(MAX_TRAIN_PACKETS);
        let twice = train.arrivals.iter().any(|(known, _)| *known == number);
        if room && !twice && number < MAX_TRAIN_PACKETS {
            train.arrivals.push((number, u32::try_from(since_us).unwrap_or(u32::MAX)));
        }
    }

    /// Makes room for another train of a host. A host gives way to itself, and old trains give way to all.
    fn make_room(&mut self, host: IpAddr, now: Duration) -> bool {
        let of_host = |train: &Arriving| host_of(train.from.ip()) == host_of(host);
        if self.arriving.iter().filter(|train| of_host(train)).count() >= MAX_ARRIVING_EACH
            && let Some(own) = self.arriving.iter().position(of_host)
        {
            self.arriving.remove(own);
        }
        self.is_free(now)
    }

    /// Returns `true` if there is room for another train. Old trains give way.
    fn is_free(&mut self, now: Duration) -> bool {
        if self.arriving.len() >= MAX_ARRIVING {
            self.arriving.retain(|train| now.saturating_sub(train.since) < KEEP);
        }
        self.arriving.len() < MAX_ARRIVING
    }

    fn report(&mut self, from: SocketAddr, id: TrainId, skip: u16, now: Duration) -> Action {
        let is_free = self.is_free(now);
        let known = self.arriving.iter().find(|train| train.from == from && train.id == id);
        if known.is_none() && !is_free {
            // Its packets may have arrived, but there was no room to note them.
            return Action::Reply(Message::Refusal { id });
        }
        let all = known.map_or(&[][..], |train| &train.arrivals);
        let some = all.iter().skip(skip.into()).take(MAX_ARRIVALS).copied().collect();
        let total = u16::try_from(all.len()).unwrap_or(u16::MAX);
        let report = Message::Report { id, skip, total, arrivals: some };
        let bytes = report.encode(0).len() as u64;
        match self.quota.take(host_of(from.ip()), bytes, now) {
            true => Action::Reply(report),
            false => Action::Reply(Message::Refusal { id }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bentpipe_probe::rate::{Next, Search};

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn host(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn cookie(trains: &mut Trains, from: SocketAddr, now: Duration) -> Cookie {
        let hello = Message::Hello { nonce: 1 }.encode(64);
        match trains.take(from, &hello, now, true) {
            Action::Reply(Message::Cookie { nonce: 1, cookie }) => cookie,
            other => panic!("{other:?}"),
        }
    }

    fn request(cookie: Cookie, run: u64) -> Vec<u8> {
        let Next::Send(plan) = Search::default().next() else { panic!("no first train") };
        Message::Request { cookie, id: TrainId { run, train: 0 }, plan }.encode(0)
    }

    #[test]
    fn a_train_goes_to_the_address_of_the_cookie_alone_and_once() {
        let mut trains = Trains::new([1; 32]);
        let cookie = cookie(&mut trains, host(1), NOW);
        assert_eq!(trains.take(host(2), &request(cookie, 1), NOW, true), Action::Nothing);
        let late = NOW + Duration::from_secs(130);
        assert_eq!(trains.take(host(1), &request(cookie, 1), late, true), Action::Nothing);
        assert!(matches!(trains.take(host(1), &request(cookie, 1), NOW, true), Action::Send(..)));
        assert_eq!(trains.take(host(1), &request(cookie, 1), NOW, true), Action::Nothing);
        let busy = trains.take(host(1), &request(cookie, 2), NOW, false);
        assert!(matches!(busy, Action::Reply(Message::Refusal { .. })));
    }

    #[test]
    fn a_host_has_a_quota() {
        let mut trains = Trains::new([1; 32]);
        let mut sent = 0;
        for run in 0..1000 {
            // Another port is the same host.
            let from = host(run as u16 + 1);
            let cookie = cookie(&mut trains, from, NOW);
            if let Action::Send(_, plan) = trains.take(from, &request(cookie, run), NOW, true) {
                sent += plan.bytes();
            }
        }
        assert!((3_900_000..=4_000_000).contains(&sent), "{sent}");
        let other = SocketAddr::from(([192, 0, 2, 2], 1));
        let cookie = cookie(&mut trains, other, NOW);
        assert!(matches!(trains.take(other, &request(cookie, 1), NOW, true), Action::Send(..)));
    }

    #[test]
    fn arrivals_are_reported_in_parts_and_bounded() {
        let mut trains = Trains::new([1; 32]);
        let cookie = cookie(&mut trains, host(1), NOW);
        let id = |run| TrainId { run, train: 0 };
        for number in 0..200 {
            let packet = Message::Packet { cookie, id: id(1), number, sent_us: 0 }.encode(0);
            let now = NOW + Duration::from_millis(number.into());
            assert_eq!(trains.take(host(1), &packet, now, true), Action::Nothing);
            trains.take(host(1), &packet, now, true);
        }
        let question = Message::Question { cookie, id: id(1), skip: 180 }.encode(0);
        let Action::Reply(Message::Report { total: 200, skip: 180, arrivals, .. }) =
            trains.take(host(1), &question, NOW, true)
        else {
            panic!("no report")
        };
        assert_eq!((arrivals.len(), arrivals[0]), (20, (180, 180_000)));
        for run in 0..1000 {
            let packet = Message::Packet { cookie, id: id(run), number: 0, sent_us: 0 }.encode(0);
            trains.take(host(1), &packet, NOW, true);
        }
        assert_eq!(trains.arriving.len(), MAX_ARRIVING_EACH);
    }

    #[test]
    fn a_train_without_room_is_not_reported_as_lost() {
        let mut trains = Trains::new([1; 32]);
        let id = TrainId { run: 1, train: 0 };
        let mut send = |number: u8, now| {
            let from = SocketAddr::from(([192, 0, 2, number], 1));
            let cookie = cookie(&mut trains, from, now);
            let packet = Message::Packet { cookie, id, number: 0, sent_us: 0 }.encode(0);
            trains.take(from, &packet, now, true);
            let question = Message::Question { cookie, id, skip: 0 }.encode(0);
            trains.take(from, &question, now, true)
        };
        for number in 0..MAX_ARRIVING as u8 {
            let answer = send(number, NOW);
            assert!(
                matches!(answer, Action::Reply(Message::Report { total: 1, .. })),
                "{answer:?}"
            );
        }
        assert_eq!(send(200, NOW), Action::Reply(Message::Refusal { id }));
        let answer = send(200, NOW + KEEP);
        assert!(matches!(answer, Action::Reply(Message::Report { total: 1, .. })), "{answer:?}");
    }

    /// Trains at `listen`, as long as the test's process lives. Returns their port.
    fn start(listen: &str) -> std::io::Result<u16> {
        let socket = std::net::UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { serve(UdpSocket::from_std(socket).unwrap()).await });
        });
        Ok(port)
    }

    /// Says something to an origin. Returns the first answer and its length.
    fn say(socket: &std::net::UdpSocket, message: &[u8]) -> (Message, usize) {
        let mut buffer = [0; BUFFER];
        socket.send(message).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        (Message::decode(&buffer[..length]).unwrap(), length)
    }

    /// A socket to an origin, from a host of loopback, and its cookie.
    fn open(host: u8, port: u16) -> (std::net::UdpSocket, Cookie) {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::from([127, 0, 0, host]), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        match say(&socket, &Message::Hello { nonce: 1 }.encode(64)) {
            (Message::Cookie { cookie, .. }, _) => (socket, cookie),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn packets_to_ipv4_hosts_have_the_size_of_the_plan() {
        for listen in ["127.0.0.1:0", "[::]:0"] {
            let port = match start(listen) {
                Ok(port) => port,
                Err(error) => {
                    println!("left out, without IPv6: {error}");
                    continue;
                }
            };
            let (socket, cookie) = open(1, port);
            let Next::Send(plan) = Search::default().next() else { panic!("no first train") };
            let (message, length) = say(&socket, &request(cookie, 1));
            assert!(matches!(message, Message::Packet { number: 0, .. }), "{message:?}");
            assert_eq!(length + 28, usize::from(plan.packets()[0].bytes), "{listen}");
        }
    }

    #[test]
    fn a_host_has_one_train_at_a_time() {
        let port = start("127.0.0.1:0").unwrap();
        let Next::Send(mut plan) = Search::default().next() else { panic!("no first train") };
        // It lasts for 2.5 s.
        plan.steady.bps = 60_000;
        let answer = |host, run| {
            let (socket, cookie) = open(host, port);
            let id = TrainId { run, train: 0 };
            say(&socket, &Message::Request { cookie, id, plan }.encode(0)).0
        };
        // On a machine that stands still the first train may be over. All places would do for four trains.
        let refused = (0..4).filter(|run| matches!(answer(1, *run), Message::Refusal { .. }));
        assert!(refused.count() > 0);
        let other = answer(2, 1);
        assert!(matches!(other, Message::Packet { .. }), "{other:?}");
    }
}
