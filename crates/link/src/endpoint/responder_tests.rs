//! Two gateways with one key, and a flood of strangers.

use rand::SeedableRng;

use super::super::Initiator;
use super::*;
use crate::crypto::PROLOGUE;

struct World {
    rng: Rng,
    ground: Responder,
    now: Duration,
}

impl World {
    /// Calls once with a gateway, and confirms the answer. Returns `true` if there was one.
    fn call(&mut self, initiator: &mut Initiator) -> bool {
        let (from, mut out) = (SocketAddr::from(([192, 0, 2, 1], 1)), Vec::new());
        self.now += Duration::from_secs(10);
        initiator.call((1_000_000, 0), Duration::ZERO, self.now, &mut self.rng, &mut out);
        let terms = |_: &_, _: &_| {
            Some(AnswerParams { rate_bps: 1, reserve_bytes: 1, max_flows: 1, max_paths: 1 })
        };
        self.ground.take_init(&out, from, self.now, &mut self.rng, terms);
        let Some((reply, _)) = self.ground.next_reply() else { return false };
        let mut keys = initiator.take(&reply, self.now).expect("it answers this call").keys;
        let mut packet = Vec::new();
        assert!(keys.seal(0, 0, b"first", &mut packet));
        let (header, sealed) = DataHeader::parse(&packet).unwrap();
        let taken = self.ground.take_packet(&header, sealed, &mut Vec::new());
        matches!(taken, Some(Packet::First(_)))
    }
}

#[test]
fn calls_with_used_counters_are_reported_rarely() {
    let mut rng = Rng::seed_from_u64(1);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let mut initiator =
        |first| Initiator::new(PROLOGUE, air.clone(), hub.public(), first, &mut rng);
    let (mut one, mut other) = (initiator(1000), initiator(2000));
    let ground = Responder::new(PROLOGUE, hub.clone(), [air.public()], &mut rng);
    let mut world = World { rng, ground, now: Duration::ZERO };
    assert!(world.call(&mut one) && world.call(&mut one));
    assert!(world.call(&mut other), "its counter is above");
    let mut told = Vec::new();
    for call in 1..=130 {
        assert!(!world.call(&mut one), "its counters are below now");
        if let Some(key) = world.ground.take_used_counter() {
            assert_eq!(key, air.public());
            told.push(call);
        }
    }
    assert_eq!(told, [3, 63, 123], "calls are 10 s apart");
    // With higher counters it is let in, and one late call is not reported.
    let mut third = Initiator::new(PROLOGUE, air, hub.public(), 3000, &mut world.rng);
    assert!(world.call(&mut third));
    world.now += Duration::from_secs(1000);
    assert!(!world.call(&mut one));
    assert_eq!(world.ground.take_used_counter(), None);
    // The gateway may continue with higher counters itself.
    assert_eq!(one.unanswered_since(), Some(Duration::from_secs(40)));
    one.raise_counter(4000);
    assert!(world.call(&mut one));
    assert_eq!(one.unanswered_since(), None);
}

/// Message 1 of a stranger who knows the ground's key.
fn stranger(world: &mut World, ground: PublicKey) -> Vec<u8> {
    let secret = SecretKey::generate(&mut world.rng);
    let mut initiator = Initiator::new(PROLOGUE, secret, ground, 1, &mut world.rng);
    let mut out = Vec::new();
    initiator.call((1, 0), Duration::ZERO, world.now, &mut world.rng, &mut out);
    out
}

#[test]
fn cookies_for_a_flood_displace_no_answer_to_a_proved_address() {
    let mut rng = Rng::seed_from_u64(2);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let mut initiator = Initiator::new(PROLOGUE, air.clone(), hub.public(), 1, &mut rng);
    let ground = Responder::new(PROLOGUE, hub.clone(), [air.public()], &mut rng);
    let mut world = World { rng, ground, now: Duration::from_secs(1) };
    let home = SocketAddr::from(([192, 0, 2, 1], 1));
    let terms = |_: &_, _: &_| {
        Some(AnswerParams { rate_bps: 1, reserve_bytes: 1, max_flows: 1, max_paths: 1 })
    };
    let flood = stranger(&mut world, hub.public());
    let flooded = |world: &mut World, messages: u8| {
        for number in 0..messages {
            // The last byte before the macs is sealed: each is a different message to the hub.
            let (mut message, from) = (flood.clone(), SocketAddr::from(([203, 0, 113, number], 9)));
            let at = message.len() - 33;
            message[at] ^= number;
            world.ground.mac.clone().sign(&mut message, None);
            let (now, ground) = (world.now, &mut world.ground);
            ground.take_init(&message, from, now, &mut world.rng, terms);
        }
    };
    flooded(&mut world, 60);
    let mut first = Vec::new();
    initiator.call((1, 0), Duration::ZERO, world.now, &mut world.rng, &mut first);
    world.ground.take_init(&first, home, world.now, &mut world.rng, terms);
    let cookie = std::iter::from_fn(|| world.ground.next_reply()).find(|(_, to)| *to == home);
    assert!(initiator.take(&cookie.expect("it is asked for a cookie").0, world.now).is_none());
    // One batch of a receive call: the flood, then the aircraft with its cookie.
    flooded(&mut world, 255);
    assert_eq!(world.ground.cookies.len(), MAX_COOKIES);
    let mut proved = Vec::new();
    initiator.call((1, 0), Duration::ZERO, world.now, &mut world.rng, &mut proved);
    world.ground.take_init(&proved, home, world.now, &mut world.rng, terms);
    let (answer, to) = world.ground.next_reply().expect("it is answered");
    assert!(to == home && initiator.take(&answer, world.now).is_some());
    assert!(world.ground.cookies.len() <= MAX_COOKIES);
}

#[test]
fn unconfirmed_keys_are_erased_within_an_hour() {
    let mut rng = Rng::seed_from_u64(3);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let mut initiator = Initiator::new(PROLOGUE, air.clone(), hub.public(), 1, &mut rng);
    let mut ground = Responder::new(PROLOGUE, hub.clone(), [air.public()], &mut rng);
    let (from, mut message) = (SocketAddr::from(([192, 0, 2, 1], 1)), Vec::new());
    let terms = |_: &_, _: &_| {
        Some(AnswerParams { rate_bps: 1, reserve_bytes: 1, max_flows: 1, max_paths: 1 })
    };
    initiator.call((1, 0), Duration::ZERO, Duration::ZERO, &mut rng, &mut message);
    ground.take_init(&message, from, Duration::ZERO, &mut rng, terms);
    let mut last = Duration::ZERO;
    while let Some(at) = ground.next_timeout() {
        assert_eq!(ground.indices.len(), 1);
        last = at;
        ground.handle_timeout(at, &mut rng, terms);
    }
    assert_eq!((last, ground.indices.len()), (MIN_REJECT_AFTER, 0));
}
