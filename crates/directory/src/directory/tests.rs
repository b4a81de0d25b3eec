use proptest::prelude::*;

use super::*;
use crate::entry::{MAX_INITIAL_VERSION, MAX_LIFETIME, MAX_VERSION};
use crate::testing::{entry_of, ground, statement};
use crate::{
    LIFETIME, MAX_INTRODUCED, MAX_REFRESH, MIN_FRAME_CHARGE, MIN_REFRESH, MIN_STREAM_INTERVAL,
    RECEIVE_BURST_BYTES,
};

const START: Duration = Duration::from_secs(1000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(number: u32) -> Key {
    ground(number).1
}

/// The directory of ground 1, whose file has `peers`.
fn directory(peers: &[u32]) -> Directory {
    let peers: Vec<_> = peers.iter().map(|number| key(*number)).collect();
    Directory::new(ground(1), &peers, 0)
}

fn frame_of(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_entry(entry, &mut bytes);
    bytes
}

/// Gives an entry to `directory` on the stream of neighbour `from`.
fn give(
    directory: &mut Directory,
    from: u32,
    entry: &Entry,
    now: Duration,
) -> Result<bool, Malformed> {
    directory.receive((key(from), Side::Ours), &frame_of(entry), now)
}

/// Numbers of the grounds whose entries `directory` sends to neighbour `to`, with their versions.
fn sent(directory: &mut Directory, to: u32, now: Duration) -> Vec<(u32, u64)> {
    let bytes = directory.take((key(to), Side::Ours), now);
    let mut entries = Vec::new();
    let number = |key: Key| (0..100).find(|number| ground(*number).1 == key).unwrap();
    let take = |frame| {
        if let Frame::Entry(claimed) = frame {
            let entry = claimed.verify().unwrap();
            entries.push((number(entry.key()), entry.version()));
        }
        Ok(())
    };
    Decoder::default().decode(&bytes, take).unwrap();
    entries
}

fn knows(grounds: &[u32]) -> Vec<u8> {
    let (mut bytes, keys) = (Vec::new(), grounds.iter().map(|it| key(*it)).collect::<Vec<_>>());
    put_knows(keys.iter(), &mut bytes);
    bytes
}

/// Connects neighbour `number`, whose file has `grounds`.
fn meet(directory: &mut Directory, number: u32, grounds: &[u32]) {
    meet_at(START, directory, number, grounds);
}

fn meet_at(now: Duration, directory: &mut Directory, number: u32, grounds: &[u32]) {
    let at = (key(number), Side::Ours);
    assert!(directory.connect(at.0, at.1, now));
    directory.receive(at, &knows(grounds), now).unwrap();
}

fn load_of(directory: &Directory, number: u32, now: Duration) -> Option<u8> {
    let seen = directory.seen(now).into_iter().find(|it| it.key == key(number));
    seen.and_then(|it| it.statement).map(|(statement, _)| statement.load)
}

fn loaded(number: u32, version: u64, load: u8) -> Entry {
    let (secret, key) = ground(number);
    let statement = Statement { load, ..statement() };
    Entry::sign((&secret, key), version, LIFETIME, &statement, [3; 64])
}

#[test]
fn a_neighbours_entry_goes_to_those_who_do_not_hear_it_themselves() {
    let mut here = directory(&[2, 3, 4]);
    meet(&mut here, 2, &[1]);
    meet(&mut here, 3, &[1]);
    meet(&mut here, 4, &[1, 2]);
    assert_eq!(give(&mut here, 2, &entry_of(2, 5), START), Ok(true));
    assert_eq!(sent(&mut here, 3, START), [(2, 5)]);
    assert_eq!(sent(&mut here, 3, START), [], "once");
    assert_eq!(sent(&mut here, 4, START), [], "2 speaks to 4 itself");
    assert_eq!(sent(&mut here, 2, START), [], "it knows");
    let now = START + MIN_STREAM_INTERVAL;
    meet_at(now, &mut here, 3, &[1]);
    assert_eq!(sent(&mut here, 3, now), [(2, 5)], "again on a new stream");
    assert_eq!(sent(&mut here, 3, START + MAX_LIFETIME), []);
    meet_at(START + MAX_LIFETIME, &mut here, 3, &[1]);
    assert_eq!(sent(&mut here, 3, START + MAX_LIFETIME), [], "not once it has expired");
}

#[test]
fn an_introduced_ground_is_not_passed_on() {
    let mut here = directory(&[2, 3]);
    meet(&mut here, 2, &[]);
    meet(&mut here, 3, &[]);
    assert_eq!(give(&mut here, 2, &entry_of(9, 5), START), Ok(false));
    assert_eq!(load_of(&here, 9, START), Some(40));
    assert_eq!(sent(&mut here, 3, START), []);
}

#[test]
fn a_ground_in_the_file_speaks_for_itself_alone() {
    let mut here = directory(&[2, 3]);
    meet(&mut here, 2, &[]);
    meet(&mut here, 3, &[]);
    give(&mut here, 2, &loaded(2, 5, 10), START).unwrap();
    // A later entry, and rightly signed, on the wrong connection.
    assert_eq!(give(&mut here, 3, &loaded(2, 9, 200), START), Ok(false));
    assert_eq!(load_of(&here, 2, START), Some(10));
    assert_eq!(give(&mut here, 2, &loaded(2, 9, 200), START), Ok(true));
    assert_eq!(load_of(&here, 2, START), Some(200));
}

fn is_connected(directory: &Directory, number: u32) -> bool {
    let seen = directory.seen(START).into_iter().find(|it| it.key == key(number)).unwrap();
    seen.source == Source::Directly { is_connected: true }
}

/// A frame with an entry of a ground, whose signature is wrong.
fn forged(number: u32) -> Vec<u8> {
    let mut bytes = frame_of(&loaded(number, 6, 200));
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

#[test]
fn a_forged_entry_of_the_neighbour_itself_ends_the_stream() {
    let mut here = directory(&[2, 3]);
    meet(&mut here, 2, &[]);
    give(&mut here, 2, &loaded(2, 5, 10), START).unwrap();
    let error = here.receive((key(2), Side::Ours), &forged(2), START).unwrap_err();
    assert!(error.to_string().contains("not signed"), "{error}");
    assert_eq!(load_of(&here, 2, START), Some(10));
    assert!(!is_connected(&here, 2));
    assert_eq!(give(&mut here, 2, &loaded(2, 7, 200), START), Ok(false), "it is over");
}

#[test]
fn an_invalid_entry_of_the_neighbour_itself_ends_the_stream() {
    let mut here = directory(&[2]);
    meet(&mut here, 2, &[]);
    let mut bytes = frame_of(&loaded(2, 5, 10));
    bytes[3 + 32] = 0xff; // the version
    here.receive((key(2), Side::Ours), &bytes, START).unwrap_err();
    assert!(!is_connected(&here, 2));
}

#[test]
fn an_invalid_entry_of_another_ground_is_skipped() {
    // It is about this ground, or about one that is not in the file.
    for number in [1, 9] {
        let mut here = directory(&[2, 3]);
        meet(&mut here, 2, &[]);
        let mut invalid = frame_of(&loaded(number, 6, 200));
        invalid[3 + 32] = 0xff; // the version
        let all = [forged(number), invalid, frame_of(&loaded(8, 5, 10))].concat();
        assert_eq!(here.receive((key(2), Side::Ours), &all, START), Ok(false));
        assert!(is_connected(&here, 2));
        assert_eq!(load_of(&here, 8, START), Some(10), "what follows counts");
        assert!(here.seen(START).iter().all(|it| it.key != key(number)));
    }
}

#[test]
fn strangers_have_no_stream() {
    let mut here = directory(&[2]);
    assert!(!here.connect(key(3), Side::Theirs, START));
    assert!(!here.connect(key(1), Side::Theirs, START), "nor has this ground itself");
    assert_eq!(give(&mut here, 3, &entry_of(3, 1), START), Ok(false));
    assert_eq!(here.seen(START).len(), 1);
}

#[test]
fn invented_grounds_fill_only_the_slots_of_their_inventor() {
    let mut here = directory(&[2, 3]);
    meet(&mut here, 2, &[]);
    meet(&mut here, 3, &[]);
    for number in 100..100 + 2 * MAX_INTRODUCED as u32 {
        give(&mut here, 2, &entry_of(number, 1), START).unwrap();
    }
    assert_eq!(here.seen(START).len(), 2 + MAX_INTRODUCED);
    give(&mut here, 3, &entry_of(9, 1), START).unwrap();
    assert!(load_of(&here, 9, START).is_some());
    // Once they are silent, others have their slots.
    let later = START + MAX_LIFETIME;
    assert_eq!(load_of(&here, 99, later), None);
    give(&mut here, 2, &entry_of(99, 1), later).unwrap();
    assert!(load_of(&here, 99, later).is_some());
}

#[test]
fn an_expired_entry_cannot_be_repeated() {
    let mut here = directory(&[2]);
    meet(&mut here, 2, &[]);
    for number in [2, 9] {
        give(&mut here, 2, &loaded(number, 5, 10), START).unwrap();
        assert_eq!(load_of(&here, number, START + LIFETIME), None);
        give(&mut here, 2, &loaded(number, 5, 10), START + LIFETIME).unwrap();
        assert_eq!(load_of(&here, number, START + LIFETIME), None);
        give(&mut here, 2, &loaded(number, 6, 10), START + LIFETIME).unwrap();
        assert_eq!(load_of(&here, number, START + LIFETIME), Some(10));
    }
}

#[test]
fn a_ground_that_counts_from_a_lower_number_catches_up() {
    // The neighbour, 2, has restarted with a clock that was behind.
    let mut here = directory(&[2]);
    meet(&mut here, 2, &[1]);
    give(&mut here, 2, &loaded(2, 1000, 10), START).unwrap();
    let mut there = Directory::new(ground(2), &[key(1)], 0);
    let statement = Statement { load: 77, ..statement() };
    there.state(&statement, START, [1; 64]);
    let (to_here, to_there) = ((key(2), Side::Ours), (key(1), Side::Theirs));
    there.connect(key(1), Side::Theirs, START);
    let first = there.take(to_there, START);
    assert_eq!(here.receive(to_here, &first, START), Ok(true));
    assert_eq!(load_of(&here, 2, START), Some(10), "the later version counts");
    let answer = here.take(to_here, START);
    there.receive(to_there, &answer, START).unwrap();
    let now = START + seconds(1);
    assert!(there.state(&statement, now, [2; 64]));
    let second = there.take(to_there, now);
    assert_eq!(here.receive(to_here, &second, now), Ok(true));
    assert_eq!(load_of(&here, 2, now), Some(77));
    assert!(!there.state(&statement, now + seconds(5), [2; 64]), "and stays there");
}

#[test]
fn versions_are_due_when_something_has_changed() {
    let mut here = directory(&[2]);
    let base = statement();
    let mut is_due = |load, is_leaving, at| {
        here.state(&Statement { load, is_leaving, ..base.clone() }, START + seconds(at), [1; 64])
    };
    let refresh = MAX_REFRESH.as_secs();
    assert!(is_due(40, false, 0), "the first");
    assert!(!is_due(40, false, MIN_REFRESH.as_secs() - 1));
    assert!(is_due(40, false, refresh), "a refresh");
    assert!(!is_due(56, false, refresh + 9), "load within 10 s");
    assert!(!is_due(55, false, refresh + 11), "a small change of load");
    assert!(is_due(56, false, refresh + 11));
    assert!(!is_due(56, true, refresh + 11), "within the same second");
    assert!(is_due(56, true, refresh + 12), "it is leaving");
}

#[test]
fn a_broken_clock_leaves_room_to_count() {
    let mut here = Directory::new(ground(1), &[key(2)], u64::MAX);
    meet(&mut here, 2, &[]);
    assert!(here.state(&statement(), START, [1; 64]));
    assert_eq!(sent(&mut here, 2, START), [(1, MAX_INITIAL_VERSION + 1)]);
    let now = START + MAX_REFRESH;
    assert!(here.state(&statement(), now, [1; 64]));
    assert_eq!(sent(&mut here, 2, now), [(1, MAX_INITIAL_VERSION + 2)]);
}

#[test]
fn an_entry_with_an_equal_version_is_sent_too() {
    let mut here = directory(&[2, 3]);
    meet(&mut here, 2, &[]);
    meet(&mut here, 3, &[]);
    // An earlier process of this ground has used the last version.
    give(&mut here, 2, &entry_of(1, MAX_VERSION), START).unwrap();
    for number in 0..3 {
        let now = START + MAX_REFRESH * number;
        assert!(here.state(&statement(), now, [number as u8; 64]));
        assert_eq!(sent(&mut here, 3, now), [(1, MAX_VERSION)], "{number}");
    }
    // The greater of two entries of a neighbour follows the other.
    let mut both = [loaded(2, 5, 10), loaded(2, 5, 200)];
    both.sort_by(Entry::order);
    let now = START + MAX_REFRESH * 3;
    for entry in both {
        assert_eq!(give(&mut here, 2, &entry, now), Ok(true));
        assert_eq!(sent(&mut here, 3, now), [(2, 5)]);
    }
}

/// Begins a stream of neighbour `number`, and gives its first entry.
fn give_first(directory: &mut Directory, number: u32) {
    meet(directory, number, &[]);
    assert_eq!(give(directory, number, &entry_of(number, 1), START), Ok(true));
}

#[test]
fn a_new_stream_does_not_refill_the_budget() {
    let peers: Vec<u32> = (2..=MAX_PEERS as u32 + 1).collect();
    let mut here = directory(&peers);
    peers.iter().for_each(|peer| give_first(&mut here, *peer));
    let (mut bytes, mut now) = (0, START);
    // It opens a stream as often as it may, and reads everything.
    for _ in 0..60 {
        now += MIN_STREAM_INTERVAL;
        meet_at(now, &mut here, 2, &[]);
        let sent = here.take((key(2), Side::Ours), now).len() as u64;
        bytes += sent + if sent > 0 { HEADER_BYTES } else { 0 };
    }
    let share = |all: u64| all / MAX_PEERS as u64;
    // The last frame may exceed the budget.
    let earned = share(SEND_RATE.bps() / 8) * (now - START).as_secs();
    let max = earned + share(SEND_BURST_BYTES) + 4_099 + HEADER_BYTES;
    assert!(bytes <= max, "{bytes} bytes, at most {max}");
    assert!(bytes >= share(SEND_BURST_BYTES), "{bytes} bytes: the test sends too few");
}

#[test]
fn streams_of_a_neighbour_begin_at_an_interval() {
    let mut here = directory(&[2, 3]);
    give_first(&mut here, 2);
    let early = START + MIN_STREAM_INTERVAL - Duration::from_millis(1);
    assert!(!here.connect(key(2), Side::Ours, early));
    assert_eq!(give(&mut here, 2, &entry_of(2, 2), early), Ok(true), "the first one goes on");
    assert!(here.connect(key(2), Side::Theirs, early), "the other side is another stream");
    assert!(here.connect(key(3), Side::Ours, early));
    here.disconnect(key(2), Side::Ours);
    assert!(!here.connect(key(2), Side::Ours, early), "also after its end");
    assert!(here.connect(key(2), Side::Ours, START + MIN_STREAM_INTERVAL));
}

#[test]
fn what_changes_nothing_is_not_news() {
    let mut here = directory(&[2, 3]);
    let at = (key(2), Side::Ours);
    meet(&mut here, 2, &[1]);
    assert_eq!(here.receive(at, &knows(&[1]), START), Ok(false), "the same list");
    assert_eq!(here.receive(at, &knows(&[1, 3]), START), Ok(true));
    assert_eq!(give(&mut here, 2, &entry_of(2, 5), START), Ok(true));
    assert_eq!(give(&mut here, 2, &entry_of(2, 5), START), Ok(false), "the same entry");
    assert_eq!(give(&mut here, 2, &entry_of(2, 4), START), Ok(true), "it has to be corrected");
    assert_eq!(give(&mut here, 2, &entry_of(2, 3), START), Ok(false), "it will be corrected");
    assert_eq!(sent(&mut here, 2, START), [(2, 5)]);
    assert_eq!(give(&mut here, 2, &entry_of(2, 4), START), Ok(false), "it was corrected");
    assert_eq!(sent(&mut here, 2, START), []);
}

#[test]
fn short_frames_are_charged_as_longer_ones() {
    let mut here = directory(&[2]);
    meet(&mut here, 2, &[]);
    let (at, empty) = ((key(2), Side::Ours), knows(&[]));
    assert!((empty.len() as u64) < MIN_FRAME_CHARGE);
    let frames = (RECEIVE_BURST_BYTES / MIN_FRAME_CHARGE) as usize;
    here.receive(at, &empty.repeat(frames - 2), START).unwrap();
    assert_eq!(here.pause(&key(2), START), Duration::ZERO);
    here.receive(at, &empty.repeat(2), START).unwrap();
    assert!(here.pause(&key(2), START) > Duration::ZERO);
}

#[test]
fn everything_sent_is_within_the_rate() {
    let peers: Vec<u32> = (2..52).collect();
    let mut here = directory(&peers);
    peers.iter().for_each(|peer| meet(&mut here, *peer, &[]));
    let keys: Vec<Key> = peers.iter().map(|peer| key(*peer)).collect();
    let (mut version, mut bytes, mut now) = (0, 0, START);
    // A neighbour says something new twice a second, for 10 minutes.
    while now < START + seconds(600) {
        version += 1;
        let peer = 2 + version as u32 % 50;
        give(&mut here, peer, &entry_of(peer, version), now).unwrap();
        for key in &keys {
            let sent = here.take((*key, Side::Ours), now).len();
            bytes += sent + if sent > 0 { HEADER_BYTES as usize } else { 0 };
        }
        now += Duration::from_millis(500);
    }
    let max = SEND_RATE.bps() / 8 * 600 + SEND_BURST_BYTES + 50 * (2 + 50 * 32 + 768);
    assert!(bytes as u64 <= max, "{bytes} bytes, at most {max}");
    assert!(bytes as u64 >= max / 2, "{bytes} bytes: the test sends too few");
}

#[test]
fn a_neighbour_that_sends_too_much_is_read_slowly() {
    let mut here = directory(&[2]);
    meet(&mut here, 2, &[]);
    let at = (key(2), Side::Ours);
    assert_eq!(here.pause(&key(2), START), Duration::ZERO);
    let garbage = [&[99, 0x0f, 0xfd][..], &[0; 0x0ffd]].concat();
    for _ in 0..RECEIVE_BURST_BYTES / 4096 + 1 {
        here.receive(at, &garbage, START).unwrap();
    }
    let pause = here.pause(&key(2), START);
    assert!(pause > Duration::from_secs(2) && pause < Duration::from_secs(3), "{pause:?}");
    assert_eq!(here.pause(&key(2), START + pause), Duration::ZERO);
}

#[test]
fn a_directory_full_of_the_largest_entries_has_20_mb() {
    let entry = Claimed::decode(entry_of(2, 1).bytes()).unwrap();
    let held = size_of::<Key>() + size_of::<StoredEntry>() + entry.unproven().bytes().len();
    // The largest statement has two names of 255 bytes; a tree uses at least half of its room.
    let largest = 2 * (held - entry.unproven().bytes().len())
        + crate::entry::MAX_ENTRY_BYTES
        + 2 * (size_of::<bentpipe_flow::Target>() + 256);
    let link = size_of::<Link>() + 2 * MAX_PEERS * 2 * (size_of::<Key>() + 8) + 4099;
    let all = MAX_PEERS * ((MAX_INTRODUCED + 1) * largest + 2 * link);
    assert!(all <= 20 << 20, "{all} bytes");
}

/// Versions of entries of grounds 2 to 4, of which each ground has two that differ.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (2u32..5, 1u64..5, any::<bool>()).prop_map(|(number, version, is_other)| {
        loaded(number, version, if is_other { 200 } else { 10 })
    });
    prop::collection::vec(one, 0..6)
}

/// Everything that neighbour 2 has said after it has said `all`, in this order.
fn merged(all: &[&[Entry]]) -> Vec<Entry> {
    let mut here = directory(&[2]);
    here.connect(key(2), Side::Ours, START);
    for entry in all.iter().copied().flatten() {
        give(&mut here, 2, entry, START).unwrap();
    }
    let state = &here.peers[&key(2)];
    let stored = state.own.iter().chain(state.introduced.values());
    stored.map(|stored| stored.entry.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn entries_merge_in_any_order(a in entries(), b in entries(), c in entries()) {
        let all = merged(&[&a, &b, &c]);
        prop_assert_eq!(&merged(&[&b, &a, &c]), &all, "commutative");
        prop_assert_eq!(&merged(&[&a, &merged(&[&b, &c])]), &all, "associative");
        prop_assert_eq!(&merged(&[&merged(&[&a, &b]), &c]), &all, "associative");
        prop_assert_eq!(&merged(&[&all, &all, &a]), &all, "idempotent");
    }
}
