use http::StatusCode;

use super::*;
use crate::head::Head;
use crate::vary::Selection;

/// An object with a body of `bytes`.
fn entry(id: u64, bytes: usize) -> Arc<Entry> {
    let key = Key::parse(&format!("http://a.test:80/{id}")).unwrap();
    let head = Head {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        selection: Selection::default(),
        requested_at: Default::default(),
        received_at: Default::default(),
        heuristic_ok: true,
        invalidated: false,
        pinned: false,
    };
    Arc::new(Entry::new(id, key, head, vec![1; bytes].into()))
}

/// An index with a disk budget of 10 MB.
fn index() -> Index {
    let directory = Some("somewhere".into());
    Index::new(&Settings { directory, disk_bytes: 10_000_000, ..Settings::default() })
}

#[test]
fn a_full_disk_is_tried_again() {
    let (mut index, mut gone) = (index(), Vec::new());
    // The store is empty: other programs have filled the disk.
    let first = entry(1, 20_000);
    assert!(index.insert(first.clone(), &mut gone) && index.reserve_disk(&first, &mut gone));
    index.not_written(1, true);
    assert_eq!(index.occupancy().disk_bytes, 0);
    for id in 2..200 {
        let next = entry(id, 20_000);
        assert!(index.insert(next.clone(), &mut gone));
        assert!(index.reserve_disk(&next, &mut gone), "{id}");
        index.written(id);
    }
    // Each successful write restores some capacity.
    assert_eq!(index.occupancy().disk_bytes, 198 * (on_disk(20_000) + BLOCK_BYTES));
    assert_eq!(gone, []);
}

#[test]
fn a_removed_body_counts_until_its_readers_are_gone() {
    let (mut index, mut gone) = (index(), Vec::new());
    index.memory_budget = 100_000;
    let slow = entry(1, 60_000);
    assert!(index.insert(slow.clone(), &mut gone));
    let reader = slow.body();
    drop(slow);
    index.remove(1);
    assert_eq!(index.occupancy(), Occupancy { memory_bytes: 60_000, ..Occupancy::default() });
    assert!(!index.insert(entry(2, 60_000), &mut gone), "there is no room while it is read");
    drop(reader);
    assert_eq!(index.occupancy().memory_bytes, 0);
    assert!(index.insert(entry(3, 60_000), &mut gone));
    assert_eq!(
        (index.memory, index.orphans.len()),
        (60_000 + index.get(3).unwrap().head_cost(), 0)
    );
}
