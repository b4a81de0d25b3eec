//! Keys that ended are nowhere in the memory of the process: the tests read it.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rand::SeedableRng;
use zeroize::Zeroize;

use super::{InitPayload, Initiator, Keys, PROLOGUE, ReceivedInit, ResponsePayload, Rng, respond};
use crate::key::{KEY_BYTES, SecretKey};
use crate::wire::header::DataHeader;

/// Keys are noted with all bits turned over, so that the note is not found.
type Note = [u8; KEY_BYTES];

thread_local! {
    static NOTES: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
}

/// Notes keys that the handshake made, for this thread's test.
pub fn note(keys: [&[u8; KEY_BYTES]; 2]) {
    NOTES.with_borrow_mut(|notes| notes.extend(keys.map(|key| key.map(|byte| !byte))));
}

/// The keys of both ends of a handshake that ended at `now`: the air's, then the hub's.
pub fn two_ends(seed: u64, now: Duration) -> (Keys, Keys) {
    let mut rng = Rng::seed_from_u64(seed);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let said = InitPayload { counter: 1, instance: 1, resumes: 0, rate_bps: 1, reserve_bytes: 1 };
    let answer = ResponsePayload { instance: 2, rate_bps: 1, reserve_bytes: 1, max_flows: 1 };
    let (call, init) = Initiator::start(PROLOGUE, &air, &hub.public(), &said, now, &mut rng);
    let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).expect("it is whole");
    let (hub_keys, response) =
        respond(received, &answer, 100 + seed as u32, now).expect("it is answered");
    let (air_keys, _) = call.finish(&response, now).ok().expect("it is the answer");
    (air_keys, hub_keys)
}

/// Places at which either half of a key stands in memory that can be written to.
fn copies(note: &Note) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let memory = File::open("/proc/self/mem").expect("it is our own");
    let mut piece = vec![0; 1 << 20];
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        let (mut at, end) = range.map(|(from, to)| (address(from), address(to))).expect("a range");
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(piece.len());
            // A region may go while we read: its content is gone, too.
            let Ok(read @ 1..) = memory.read_at(&mut piece[..most], at) else { break };
            for half in note.chunks(KEY_BYTES / 2) {
                let offsets = places(&piece[..read], half);
                found.extend(offsets.map(|offset| format!("{:#x} in {line}", at + offset as u64)));
            }
            piece.as_mut_slice().zeroize();
            // What crosses the border of two pieces is looked for in the next.
            at += if read > KEY_BYTES { (read - KEY_BYTES / 2) as u64 } else { read as u64 };
            if read < most || end - at <= KEY_BYTES as u64 {
                break;
            }
        }
    }
    found
}

fn places(memory: &[u8], turned: &[u8]) -> impl Iterator<Item = usize> {
    let is = move |window: &[u8]| window.iter().zip(turned).all(|(byte, turned)| *byte == !turned);
    let windows = memory.windows(turned.len()).enumerate();
    windows.filter(move |(_, window)| is(window)).map(|(offset, _)| offset)
}

#[test]
fn erased_keys_are_nowhere_in_memory() {
    let (mut air, mut hub) = two_ends(9, Duration::ZERO);
    let (mut packet, mut plaintext) = (Vec::new(), Vec::new());
    for number in 0..50 {
        let (from, to) = if number % 2 == 0 { (&mut air, &mut hub) } else { (&mut hub, &mut air) };
        packet.clear();
        assert!(from.seal(0, number, &[7; 1200], &mut packet));
        let (header, sealed) = DataHeader::parse(&packet).expect("it has a header");
        assert!(to.open(&header, sealed, &mut plaintext));
    }
    let mut notes = NOTES.take();
    assert_eq!(notes.len(), 4, "two keys at each end");
    notes.dedup();
    for note in &notes {
        let found = copies(note).len();
        assert!(found >= 4, "of both halves of a key, each at two ends, {found} are found");
    }
    // One end's as time does it, the other's with its session.
    air.erase();
    drop(hub);
    for note in &notes {
        assert_eq!(copies(note), [""; 0], "a key is still in memory");
    }
}
