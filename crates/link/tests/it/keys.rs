//! Attacks on the keys of a session: the list is in `security.rs`.

use std::time::Duration;

use super::common::{Pair, read_all};
use bentpipe_link::{Core, SessionId, Write};

/// Returns `true` for handshake messages. An attacker who drops them keeps one key in use.
fn is_handshake(datagram: &[u8]) -> bool {
    matches!(datagram[0], 0x01 | 0x02)
}

fn nothing(_: &[u8]) -> bool {
    false
}

/// Age at which keys are erased (`docs/protocol.md`, section 4.4).
const REJECT_AFTER: Duration = Duration::from_secs(3600);

/// A flow on which the hub writes a few bytes every ten seconds.
struct Trickle {
    flow: (SessionId, u64),
    far: (SessionId, u64),
    written: usize,
    got: Vec<u8>,
}

impl Trickle {
    fn new(pair: &mut Pair) -> Self {
        Self { flow: pair.open(b""), far: pair.accept(), written: 0, got: Vec::new() }
    }

    fn run(&mut self, pair: &mut Pair, span: Duration) {
        let mut next = pair.now;
        pair.run_for(span, |pair| {
            let now = pair.now;
            read_all(&mut pair.air, self.flow, now, &mut self.got);
            if now >= next {
                next = now + Duration::from_secs(10);
                let session = pair.hub.session(self.far.0).expect("the session goes on");
                match session.write(self.far.1, b"tick", now) {
                    Write::Taken(bytes) => self.written += bytes,
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    /// Waits until everything written has arrived.
    fn catch_up(&mut self, pair: &mut Pair) {
        pair.run_until("the rest", Duration::from_secs(30), |pair| {
            read_all(&mut pair.air, self.flow, pair.now, &mut self.got);
            self.got.len() == self.written
        });
        assert!(self.got.chunks(4).all(|tick| tick == b"tick"));
    }
}

#[test]
fn a_pinned_key_ends_within_its_hour() {
    let mut pair = Pair::new(42, 0.0);
    pair.connect();
    let mut trickle = Trickle::new(&mut pair);
    (pair.up.drops, pair.down.drops) = (is_handshake, is_handshake);
    trickle.run(&mut pair, REJECT_AFTER / 2 + Duration::from_secs(60));
    let now = pair.now;
    for session in [pair.air.session(trickle.flow.0), pair.hub.session(trickle.far.0)] {
        let session = session.expect("it goes on");
        assert!(session.has_overdue_keys(now) && !session.is_quiet());
    }
    trickle.run(&mut pair, REJECT_AFTER / 2 + Duration::from_secs(60));
    for (at, pipe) in [("the air", &pair.up), ("the hub", &pair.down)] {
        assert_eq!(pipe.keys.len(), 1, "{at} has no other keys");
        for (first, last) in pipe.keys.values() {
            let used = *last - *first;
            assert!(used <= REJECT_AFTER, "{at} used a key for {used:?}");
            assert!(used > REJECT_AFTER / 2, "{at} stopped after {used:?}");
        }
    }
    assert!(pair.air.current().is_some_and(|(_, session)| session.is_quiet()));
    // When handshakes pass again, the flow continues without a loss.
    (pair.up.drops, pair.down.drops) = (nothing, nothing);
    trickle.catch_up(&mut pair);
    assert_eq!((pair.up.keys.len(), pair.down.keys.len()), (2, 2));
    let now = pair.now;
    assert!(pair.air.current().is_some_and(|(_, session)| !session.has_overdue_keys(now)));
}

#[test]
fn a_session_outlives_its_keys_in_an_outage() {
    let mut pair = Pair::new(43, 0.0);
    pair.connect();
    let mut trickle = Trickle::new(&mut pair);
    (pair.up.drops, pair.down.drops) = (is_handshake, is_handshake);
    trickle.run(&mut pair, REJECT_AFTER - Duration::from_secs(120));
    (pair.up.cut, pair.down.cut) = (true, true);
    trickle.run(&mut pair, Duration::from_secs(480));
    (pair.up.drops, pair.down.drops) = (nothing, nothing);
    (pair.up.cut, pair.down.cut) = (false, false);
    trickle.catch_up(&mut pair);
    assert_eq!((pair.hub.sessions_begun(), pair.air.sessions_begun()), (1, 1));
}
