//! Store of objects: all headers and recent bodies in memory, all bodies on disk if there is one,
//! each within a budget.

mod disk;
mod entry;
mod index;
mod pieces;
mod queue;
mod settings;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};

pub use disk::OpenError;
use disk::{ReadError, Writer};
pub(crate) use entry::Entry;
use index::{Index, lock};
pub use pieces::MAX_FROM_MEMORY_BYTES;
pub(crate) use pieces::{PieceReader, Pieces};
pub use settings::Settings;
pub use usage::{Counts, Occupancy};

use crate::head::Head;
use crate::key::Key;
use crate::record::{MAX_HEAD_BYTES, Record};

/// The store.
pub(crate) struct Store {
    settings: Settings,
    index: Arc<Mutex<Index>>,
    disk: Option<Writer>,
    next_id: AtomicU64,
}

/// Source of a stored body.
pub(crate) enum StoredBody {
    /// From memory.
    Memory(Bytes),
    /// From disk.
    Disk(Pieces),
}

/// Memory reserved for a transfer. Dropping it releases the memory.
pub(crate) struct Room {
    index: Arc<Mutex<Index>>,
    bytes: u64,
}

impl Store {
    /// Opens the directory and starts to read it in the background.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        let index = Arc::new(Mutex::new(Index::new(settings)));
        let (mut disk, mut next_id) = (None, 1);
        if let Some(directory) = &settings.directory {
            let (writer, highest) = Writer::start(directory, settings.object_bytes, index.clone())?;
            disk = Some(writer);
            next_id = highest + 1;
        }
        Ok(Self { settings: settings.clone(), index, disk, next_id: next_id.into() })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    pub fn object_bytes(&self) -> u64 {
        self.settings.object_bytes
    }

    /// Finds the response that is stored under `key` and fits `request`.
    pub fn find(&self, key: &Key, request: &HeaderMap) -> Option<Arc<Entry>> {
        let (entry, touch) = self.index().find(key, request)?;
        if touch && let Some(disk) = &self.disk {
            disk.queue().touch(entry.id);
        }
        Some(entry)
    }

    /// Returns `true` if any response is stored under `key`.
    pub fn contains(&self, key: &Key) -> bool {
        self.index().contains(key)
    }

    /// All responses under `key`.
    pub fn all_of(&self, key: &Key) -> Vec<Arc<Entry>> {
        self.index().all_of(key)
    }

    /// Keys of pinned responses, without duplicates.
    pub fn pinned(&self) -> Vec<Key> {
        self.index().pinned()
    }

    /// Stores a response. It replaces those under `key` that fit `request` too. If it replaces a
    /// pinned one, it is pinned itself, within the limit for pinned objects. Returns `None` if the
    /// response is too large, or nothing can be evicted. A pinned response then stays, and must be
    /// validated before its next use.
    pub fn put(
        &self,
        key: &Key,
        request: &HeaderMap,
        head: Head,
        body: Bytes,
    ) -> Option<Arc<Entry>> {
        if body.len() as u64 > self.settings.object_bytes
            || Record::encoded_bytes(key, &head) > MAX_HEAD_BYTES
        {
            return None;
        }
        let id = self.next_id.fetch_add(1, Relaxed);
        let entry = Arc::new(Entry::new(id, key.clone(), head, body.clone()));
        let mut index = self.index();
        let mut gone = Vec::new();
        for old in index.fitting(key, request, false) {
            gone.extend(index.remove(old));
        }
        let pinned = index.fitting(key, request, true);
        let is_room = index.insert(entry.clone(), &mut gone);
        if is_room {
            pinned.iter().for_each(|old| gone.extend(index.remove(*old)));
        }
        let disk = self.disk.as_ref().filter(|disk| is_room && disk.accepts_writes());
        let write = disk.filter(|_| index.reserve_disk(&entry, &mut gone));
        // Queued while the index is locked, so that no delete is queued before its write.
        self.delete(&gone);
        if is_room && !pinned.is_empty() && index.pin(id, true) {
            entry.set_head(Head { pinned: true, ..Head::clone(&entry.head()) });
        }
        if let Some(disk) = write {
            disk.queue().write(entry.clone(), body);
        }
        if !is_room {
            for old in pinned.iter().filter_map(|id| index.get(*id)) {
                self.change_in(&index, &old, |head| head.invalidated = true);
            }
        }
        if is_room {
            index.counts.stored += 1;
            index.counts.stored_bytes += entry.body_bytes;
        }
        is_room.then_some(entry)
    }

    /// Changes the header of `entry`.
    pub fn change(&self, entry: &Arc<Entry>, change: impl FnOnce(&mut Head)) {
        self.change_in(&self.index(), entry, change);
    }

    fn change_in(&self, index: &Index, entry: &Arc<Entry>, change: impl FnOnce(&mut Head)) {
        let mut head = Head::clone(&entry.head());
        change(&mut head);
        entry.set_head(head);
        if let Some(disk) = self.disk.as_ref().filter(|_| index.on_disk(entry.id)) {
            disk.queue().rewrite(entry.clone());
        }
    }

    /// Marks the responses under `key`: they must be validated before their next use.
    pub fn invalidate(&self, key: &Key) {
        let index = self.index();
        for entry in index.all_of(key) {
            self.change_in(&index, &entry, |head| head.invalidated = true);
        }
    }

    /// Pins or unpins `entry`. Pinned objects use at most half of the space. Returns `true` if the
    /// entry is in the requested state.
    pub fn pin(&self, entry: &Arc<Entry>, pinned: bool) -> bool {
        let mut index = self.index();
        let is_so = index.pin(entry.id, pinned);
        if is_so {
            self.change_in(&index, entry, |head| head.pinned = pinned);
        }
        is_so
    }

    /// Removes `entry`, because the origin has a newer response. A pinned one stays, and must be
    /// validated before its next use.
    pub fn supersede(&self, entry: &Arc<Entry>) {
        let mut index = self.index();
        if index.is_pinned(entry.id) {
            self.change_in(&index, entry, |head| head.invalidated = true);
        } else {
            let gone = index.remove(entry.id);
            self.delete(gone.as_slice());
        }
    }

    /// Removes `entry`, pinned or not.
    pub fn remove(&self, entry: &Entry) {
        let mut index = self.index();
        let gone = index.remove(entry.id);
        self.delete(gone.as_slice());
    }

    fn delete(&self, gone: &[u64]) {
        if let Some(disk) = &self.disk {
            gone.iter().for_each(|id| disk.queue().delete(*id));
        }
    }

    /// Loads the body of `entry` into memory. Returns `None` if the body is gone or damaged, which
    /// also removes the entry. Returns `None` as well if it cannot be read now, or all memory is in
    /// use.
    pub async fn body(&self, entry: &Arc<Entry>) -> Option<Bytes> {
        if let Some(body) = entry.body() {
            return Some(body);
        }
        let _alone = entry.loading.lock().await;
        if let Some(body) = entry.body() {
            return Some(body);
        }
        let disk = self.disk.as_ref()?;
        let body = self.unless_gone(entry, disk.read(entry).await)?;
        let mut gone = Vec::new();
        let mut index = self.index();
        let is_here = index.warm(entry, body.clone(), &mut gone);
        self.delete(&gone);
        is_here.then_some(body)
    }

    /// Source of the body of `entry` for a client. A large body on disk is not loaded into memory,
    /// where a slow client would keep it.
    pub async fn body_for_client(&self, entry: &Arc<Entry>) -> Option<StoredBody> {
        let from_disk = self.index().is_read_from_disk(entry);
        let Some(disk) = self.disk.as_ref().filter(|_| from_disk) else {
            return self.body(entry).await.map(StoredBody::Memory);
        };
        // The first reader verifies the whole file.
        let _alone = entry.loading.lock().await;
        let pieces = disk.pieces(entry).await;
        self.unless_gone(entry, pieces).map(StoredBody::Disk)
    }

    /// Result of a `read` of `entry`. Removes the entry if its file is gone.
    fn unless_gone<T>(&self, entry: &Entry, read: Result<T, ReadError>) -> Option<T> {
        if let Err(ReadError::Gone) = read {
            self.remove(entry);
        }
        read.ok()
    }

    /// Creates an empty memory reservation for a transfer.
    pub fn room(&self) -> Room {
        Room { index: self.index.clone(), bytes: 0 }
    }

    /// Hashes of fresh responses whose keys begin with `prefix`: the `max` newest ones, newest
    /// first.
    pub fn hashes(&self, prefix: &str, max: usize, is_fresh: impl Fn(&Head) -> bool) -> Vec<u64> {
        let mut entries = self.index().beginning_with(prefix);
        // Ids increase in the order of storing.
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
        let fresh = entries.iter().filter(|entry| is_fresh(&entry.head()));
        fresh.take(max).map(|entry| entry.hash).collect()
    }

    pub fn occupancy(&self) -> Occupancy {
        self.index().occupancy()
    }

    /// Number of objects that were kept in memory only, because too many writes were pending.
    pub fn unwritten(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.queue().refused())
    }

    pub fn counts(&self) -> Counts {
        self.index().counts
    }

    /// Waits until the directory has been read and all queued writes are done.
    pub async fn settle(&self) {
        if let Some(disk) = &self.disk {
            disk.settle().await;
        }
    }
}

impl Room {
    /// Grows the reservation to `bytes`, if there is memory and the share is fair.
    pub fn grow_to(&mut self, store: &Store, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let mut gone = Vec::new();
        let mut index = lock(&self.index);
        let is_there = index.reserve_memory(self.bytes, more, &mut gone);
        store.delete(&gone);
        if is_there {
            self.bytes += more;
        }
        is_there
    }

    /// Shrinks the reservation to `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.bytes -= less;
            lock(&self.index).release_memory(less);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.index).release_memory(self.bytes);
    }
}
