//! Ended keys are nowhere in the memory of the process, which the tests read.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::{Rng as _, SeedableRng};
use zeroize::Zeroize;

use super::cipher::Cipher;
use super::{
    Aead, Aeads, InitPayload, Keys, PROLOGUE, ReceivedInit, ResponsePayload, Rng, SentInit, respond,
};
use crate::key::{KEY_BYTES, SecretKey};
use crate::wire::header::DataHeader;

/// A key with all bits inverted, so that the note itself is not found.
pub type Note = [u8; KEY_BYTES];

thread_local! {
    static NOTES: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
}

/// Keeps other tests of this process from reading its memory, until the guard is dropped.
///
/// A reader's buffer holds copies of what it reads, other tests' keys among them. A test takes this before
/// its keys exist.
pub fn only_reader() -> MutexGuard<'static, ()> {
    static READER: Mutex<()> = Mutex::new(());
    READER.lock()
}

/// Notes the keys of a handshake, for this thread's test.
pub fn note(keys: [&[u8; KEY_BYTES]; 2]) {
    NOTES.with_borrow_mut(|notes| notes.extend(keys.map(|key| key.map(|byte| !byte))));
}

/// Returns the keys of both ends of a handshake that ended at `now`: the air's, then the hub's.
pub fn two_ends(seed: u64, now: Duration) -> (Keys, Keys) {
    two_ends_under(Aead::default(), seed, now)
}

/// Returns the keys of both ends of a handshake, for `aead`.
fn two_ends_under(aead: Aead, seed: u64, now: Duration) -> (Keys, Keys) {
    let mut rng = Rng::seed_from_u64(seed);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let said = InitPayload {
        counter: 1,
        instance: 1,
        resumes: 0,
        rate_bps: 1,
        reserve_bytes: 1,
        aeads: Aeads::all(),
        max_paths: 1,
        path: 0,
    };
    let answer = ResponsePayload {
        instance: 2,
        rate_bps: 1,
        reserve_bytes: 1,
        max_flows: 1,
        aead,
        max_paths: 1,
    };
    let (call, init) = SentInit::start(PROLOGUE, &air, &hub.public(), &said, now, &mut rng);
    let received = ReceivedInit::read(PROLOGUE, &hub, &init, &mut rng).expect("it is whole");
    let (hub_keys, response) =
        respond(received, &answer, 100 + seed as u32, now).expect("it is answered");
    let (air_keys, _) = call.finish(&response, now).ok().expect("it is the answer");
    (air_keys, hub_keys)
}

/// The keys noted so far by this thread's test.
pub fn take_notes() -> Vec<Note> {
    NOTES.take()
}

/// Places at which either half of a key stands in writable memory.
pub fn copies(note: &Note) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let memory = File::open("/proc/self/mem").expect("it is our own");
    let mut piece = vec![0; 1 << 20];
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        let (mut at, end) = range.map(|(from, to)| (address(from), address(to))).expect("a range");
        while at < end {
            let max = usize::try_from(end - at).unwrap_or(usize::MAX).min(piece.len());
            // A region may vanish meanwhile, with its content.
            let Ok(read @ 1..) = memory.read_at(&mut piece[..max], at) else { break };
            for half in note.chunks(KEY_BYTES / 2) {
                let offsets = addresses(&piece[..read], half);
                found.extend(offsets.map(|offset| format!("{:#x} in {line}", at + offset as u64)));
            }
            piece.as_mut_slice().zeroize();
            // A key across the border of two pieces is found in the next.
            at += if read > KEY_BYTES { (read - KEY_BYTES / 2) as u64 } else { read as u64 };
            if read < max || end - at <= KEY_BYTES as u64 {
                break;
            }
        }
    }
    found
}

fn addresses(memory: &[u8], turned: &[u8]) -> impl Iterator<Item = usize> {
    let is = move |window: &[u8]| window.iter().zip(turned).all(|(byte, turned)| *byte == !turned);
    let windows = memory.windows(turned.len()).enumerate();
    windows.filter(move |(_, window)| is(window)).map(|(offset, _)| offset)
}

#[test]
fn erased_keys_are_nowhere_in_memory() {
    erased_keys_are_gone(Aead::ChaCha20Poly1305, 9);
}

#[test]
fn erased_keys_of_aes_are_nowhere_in_memory() {
    erased_keys_are_gone(Aead::Aes256Gcm, 10);
}

fn erased_keys_are_gone(aead: Aead, seed: u64) {
    let _only = only_reader();
    let (mut air, mut hub) = two_ends_under(aead, seed, Duration::ZERO);
    let (mut packet, mut plaintext) = (Vec::new(), Vec::new());
    for number in 0..50 {
        let (from, to) = if number % 2 == 0 { (&mut air, &mut hub) } else { (&mut hub, &mut air) };
        packet.clear();
        assert!(from.seal(0, number, &[7; 1200], &mut packet));
        let (header, sealed) = DataHeader::parse(&packet).expect("it has a header");
        assert!(to.open(&header, sealed, &mut plaintext));
    }
    let mut notes = take_notes();
    assert_eq!(notes.len(), 4, "two keys at each end");
    notes.dedup();
    for note in &notes {
        let found = copies(note).len();
        assert!(found >= 4, "of both halves of a key, each at two ends, {found} are found");
    }
    // One end's keys end by age, the other's with its session.
    air.erase();
    drop(hub);
    for note in &notes {
        assert_eq!(copies(note), [""; 0], "a key is still in memory");
    }
}

#[test]
fn what_calls_left_on_the_stack_is_not_kept_by_an_ended_key() {
    let _only = only_reader();
    let note: Note = rand::rngs::StdRng::seed_from_u64(11).random();
    paint_stack(&note);
    let cipher = boxed_cipher();
    paint_stack(&note);
    drop(cipher);
    assert_eq!(copies(&note), [""; 0], "a copy is still in memory");
}

/// Creates a cipher, with copies on the stack below the caller.
#[inline(never)]
fn boxed_cipher() -> Box<Cipher> {
    Box::new(Cipher::new(Aead::ChaCha20Poly1305, &[0; KEY_BYTES]))
}

/// Fills the stack below the caller with copies of a noted key, as calls of the cipher may.
#[inline(never)]
fn paint_stack(note: &Note) {
    let mut painted = [note.map(|byte| !byte); 256];
    std::hint::black_box(&mut painted);
}
