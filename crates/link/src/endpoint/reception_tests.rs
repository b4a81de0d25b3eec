//! What two gateways with one key do to each other.

use rand::SeedableRng;

use super::super::Caller;
use super::*;
use crate::crypto::PROLOGUE;

struct World {
    rng: Rng,
    ground: Reception,
    now: Duration,
}

impl World {
    /// A gateway calls once, and confirms what is answered; whether it was.
    fn call(&mut self, caller: &mut Caller) -> bool {
        let (from, mut out) = (SocketAddr::from(([192, 0, 2, 1], 1)), Vec::new());
        self.now += Duration::from_secs(10);
        caller.call((1_000_000, 0), Duration::ZERO, self.now, &mut self.rng, &mut out);
        let terms = |_: &_, _: &_| Some(Terms { rate_bps: 1, reserve_bytes: 1, max_flows: 1 });
        self.ground.take_init(&out, from, self.now, &mut self.rng, terms);
        let Some((reply, _)) = self.ground.next_reply() else { return false };
        let mut keys = caller.take(&reply, self.now).expect("it answers this call").keys;
        let mut packet = Vec::new();
        assert!(keys.seal(0, 0, b"first", &mut packet));
        let (header, sealed) = DataHeader::parse(&packet).unwrap();
        let taken = self.ground.take_packet(&header, sealed, &mut Vec::new());
        matches!(taken, Some(Packet::First(_)))
    }
}

#[test]
fn who_calls_with_used_counters_is_told_of_rarely() {
    let mut rng = Rng::seed_from_u64(1);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let mut caller = |first| Caller::new(PROLOGUE, air.clone(), hub.public(), first, &mut rng);
    let (mut one, mut other) = (caller(1000), caller(2000));
    let ground = Reception::new(PROLOGUE, hub.clone(), [air.public()], &mut rng);
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
    // With counters above it is let in, and one call that comes late is nothing to speak of.
    let mut third = Caller::new(PROLOGUE, air, hub.public(), 3000, &mut world.rng);
    assert!(world.call(&mut third));
    world.now += Duration::from_secs(1000);
    assert!(!world.call(&mut one));
    assert_eq!(world.ground.take_used_counter(), None);
    // It may go on with others itself.
    assert_eq!(one.unanswered_since(), Some(Duration::from_secs(40)));
    one.raise_counter(4000);
    assert!(world.call(&mut one));
    assert_eq!(one.unanswered_since(), None);
}
