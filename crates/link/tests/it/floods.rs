//! Floods of handshakes; the list of attacks is in `security.rs`.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::common::{Pair, fetch};
use super::security::{drawn, first_message, initiator};
use bentpipe_link::secure::Initiator;
use bentpipe_link::{Core, SecretKey};
use rand::SeedableRng;
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};

#[test]
fn a_flood_of_handshakes_costs_the_flooder_more() {
    let mut pair = Pair::new(34, 0.0);
    pair.connect();
    let hub = pair.secrets.1.public();
    let mut rng = ChaCha8Rng::seed_from_u64(1034);
    let stranger = SecretKey::generate(&mut rng);
    let own = pair.secrets.0.clone();
    assert_ne!(stranger.public(), own.public());
    let before = pair.hub.curve_operations();
    let (mut requested, mut answered) = ((0, 0), (0, 0));
    // Each second 2,000 first messages with a valid mac1, from a thousand addresses; half of them
    // from an attacker who even has the aircraft's key.
    for index in 0..2000u32 {
        let secret = if index % 2 == 0 { &own } else { &stranger };
        let mut initiator = initiator(secret, hub, 1000 + u64::from(index), index as u8);
        pair.now += Duration::from_micros(400);
        let now = pair.now;
        let message = first_message(&mut initiator, now);
        let from = SocketAddr::from(([203, 0, 113, (index % 250) as u8], 1 + (index / 250) as u16));
        pair.hub.handle_datagram(&message, from, false, now);
        requested = (requested.0 + 1, requested.1 + message.len());
        let (packets, sent) = drawn(&mut pair, from);
        answered = (answered.0 + packets, answered.1 + sent);
    }
    assert!(
        answered.0 > 0 && answered.0 <= requested.0 && answered.1 <= requested.1,
        "{answered:?}"
    );
    // Two windows of a second may begin within it, with 50 handshakes of five operations each.
    let spent = pair.hub.curve_operations() - before;
    assert!(spent <= 2 * 50 * 5, "{spent} curve operations");
    // Meanwhile the aircraft continues, and reconnects with a cookie.
    fetch(&mut pair, 10_000);
}

/// An attacker with a reachable address, who calls as fast as possible and uses the hub's cookies.
struct Flooder {
    initiator: Initiator,
    from: SocketAddr,
    rng: ChaCha20Rng,
}

impl Flooder {
    fn new(pair: &Pair, from: SocketAddr, seed: u64) -> Self {
        let (mut rng, mut keys) =
            (ChaCha20Rng::seed_from_u64(seed), ChaCha8Rng::seed_from_u64(seed));
        let (secret, hub) = (SecretKey::generate(&mut keys), pair.secrets.1.public());
        let initiator = Initiator::new(b"bentpipe link v1", secret, hub, 1, &mut rng);
        Self { initiator, from, rng }
    }

    fn fresh(&mut self, now: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        self.initiator.call((1_000_000, 0), Duration::ZERO, now, &mut self.rng, &mut out);
        out
    }

    /// Sends `message` and takes a cookie from the answer. Returns `true` if there was one.
    fn send(&mut self, pair: &mut Pair, message: &[u8]) -> bool {
        let now = pair.now;
        pair.hub.handle_datagram(message, self.from, false, now);
        let (mut reply, mut answered) = (Vec::new(), false);
        while let Some(to) = pair.hub.transmit(now, &mut reply) {
            if to == self.from {
                answered = true;
                assert!(self.initiator.take(&reply, now).is_none(), "a stranger is not let in");
            }
            reply.clear();
        }
        answered
    }
}

#[test]
fn a_flooder_with_a_cookie_gets_no_more_than_the_share_of_an_address() {
    let mut pair = Pair::new(40, 0.0);
    pair.connect();
    let mut flooder = Flooder::new(&pair, "203.0.113.7:7".parse().unwrap(), 1);
    // 2,500 new messages in a second, with cookies. Two windows of a second begin within it. In
    // each, 50 are read without a cookie, and of those with mac2 16 and 4 more a second.
    let before = pair.hub.curve_operations();
    let (mut cookies, mut last) = (0, Vec::new());
    for _ in 0..2500 {
        pair.now += Duration::from_micros(400);
        last = flooder.fresh(pair.now);
        cookies += u32::from(flooder.send(&mut pair, &last));
    }
    let spent = pair.hub.curve_operations() - before;
    assert!(cookies > 0, "the flood was asked for cookies");
    assert!(spent <= 2 * (2 * 50 + 16 + 4), "{spent} curve operations");
    // The last message, which carries mac2, repeated: it is read once.
    pair.now += Duration::from_secs(5);
    let before = pair.hub.curve_operations();
    for _ in 0..5000 {
        pair.now += Duration::from_micros(400);
        flooder.send(&mut pair, &last);
    }
    let spent = pair.hub.curve_operations() - before;
    assert!(spent <= 2, "{spent} curve operations for one message");
    fetch(&mut pair, 10_000);
}

#[test]
fn a_flood_with_cookies_from_everywhere_does_not_lock_the_aircraft_out() {
    let mut pair = Pair::new(41, 0.0);
    pair.connect();
    let network = |index: u32| SocketAddr::from((Ipv6Addr::from(u128::from(index) << 64), 9));
    let mut flooders: Vec<_> =
        (1..=400).map(|index| Flooder::new(&pair, network(index), index.into())).collect();
    // The aircraft's process ends. While it reconnects, each of 400 networks calls twice a second.
    pair.restart_air();
    let (before, began) = (pair.hub.curve_operations(), pair.now);
    let mut round = 0;
    let mut back = None;
    while pair.now < began + Duration::from_secs(6) {
        pair.run_for(Duration::from_micros(1250), |_| {});
        let flooder = &mut flooders[round % 400];
        let message = flooder.fresh(pair.now);
        flooder.send(&mut pair, &message);
        round += 1;
        if back.is_none() && pair.air.current().is_some() {
            back = Some(pair.now - began);
        }
    }
    let spent = pair.hub.curve_operations() - before;
    let max = 1000 + 1000 * (pair.now - began).as_secs() + 1000;
    assert!(spent <= max, "{spent} curve operations in {:?}", pair.now - began);
    assert!(back.is_some_and(|back| back < Duration::from_secs(4)), "back after {back:?}");
    fetch(&mut pair, 10_000);
}
