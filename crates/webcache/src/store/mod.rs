//! Store of objects: all heads and the latest bodies in memory, all bodies on disk if there is one,
//! within a budget for each.

mod disk;
mod entry;
mod index;
mod pieces;
mod queue;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;

pub use disk::OpenError;
use disk::{Unread, Writer};
pub(crate) use entry::Entry;
use index::Index;
pub use pieces::MOST_FROM_MEMORY;
pub(crate) use pieces::{PieceReader, Pieces};

use crate::head::Head;
use crate::key::Key;
use crate::record::{MOST_HEAD_BYTES, Record};

/// Budgets and place of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Memory for heads, for the bodies used last, and for bodies on their way, bytes.
    pub memory_bytes: u64,
    /// The directory that is the cache's alone; without one everything is in memory.
    pub directory: Option<PathBuf>,
    /// Maximum size of the directory, in bytes as the file system counts them: in blocks of 4 KiB.
    pub disk_bytes: u64,
    /// The largest object that is stored, bytes.
    pub object_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            directory: None,
            disk_bytes: 1 << 30,
            object_bytes: 16 << 20,
        }
    }
}

/// Occupancy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Objects.
    pub objects: u64,
    /// Bytes in memory, those of bodies on their way included.
    pub memory_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

/// Objects that came and went since the cache was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that were stored.
    pub stored: u64,
    /// Bytes of their bodies.
    pub stored_bytes: u64,
    /// Objects that others displaced.
    pub evicted: u64,
    /// Bytes of their bodies.
    pub evicted_bytes: u64,
}

/// The store.
pub(crate) struct Store {
    settings: Settings,
    index: Arc<Mutex<Index>>,
    disk: Option<Writer>,
    next_id: AtomicU64,
}

/// A stored body as a client is given it.
pub(crate) enum Given {
    /// From memory.
    Whole(Bytes),
    /// From disk.
    Pieces(Pieces),
}

/// Memory that a body on its way may take; given back when it is dropped.
pub(crate) struct Room {
    index: Arc<Mutex<Index>>,
    bytes: u64,
}

impl Store {
    /// Opens the directory, and begins to read what is there.
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

    /// The answer stored under `key` that fits `request`.
    pub fn find(&self, key: &Key, request: &HeaderMap) -> Option<Arc<Entry>> {
        let (entry, touch) = self.index().find(key, request)?;
        if touch && let Some(disk) = &self.disk {
            disk.queue().touch(entry.id);
        }
        Some(entry)
    }

    /// Returns `true` if anything is stored under `key`, whatever it fits.
    pub fn knows(&self, key: &Key) -> bool {
        self.index().knows(key)
    }

    /// All answers under `key`.
    pub fn all_of(&self, key: &Key) -> Vec<Arc<Entry>> {
        self.index().all_of(key)
    }

    /// The keys of what is pinned, each once.
    pub fn pinned(&self) -> Vec<Key> {
        self.index().pinned()
    }

    /// Stores the answer to `request`, in the place of those that fit it too; in that of a pinned one it
    /// is pinned, if that is not too much. Gives nothing where it is too large or everything is full of
    /// what has to stay: then a pinned one stays too, and has to be confirmed.
    pub fn put(
        &self,
        key: &Key,
        request: &HeaderMap,
        head: Head,
        body: Bytes,
    ) -> Option<Arc<Entry>> {
        if body.len() as u64 > self.settings.object_bytes
            || Record::encoded_bytes(key, &head) > MOST_HEAD_BYTES
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
        let disk = self.disk.as_ref().filter(|disk| is_room && disk.has_time());
        let write = disk.filter(|_| index.reserve_disk(&entry, &mut gone));
        // Told while the index is locked, so that nothing is told to be deleted before it is to be
        // written.
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

    /// Changes the head of `entry`.
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

    /// Marks the answers under `key`: they have to be confirmed before their next use.
    pub fn invalidate(&self, key: &Key) {
        let index = self.index();
        for entry in index.all_of(key) {
            self.change_in(&index, &entry, |head| head.invalidated = true);
        }
    }

    /// Keeps `entry` whatever comes, or no longer; gives whether it is as was asked. At most half of
    /// the room there is can be kept like that.
    pub fn pin(&self, entry: &Arc<Entry>, pinned: bool) -> bool {
        let mut index = self.index();
        let is_so = index.pin(entry.id, pinned);
        if is_so {
            self.change_in(&index, entry, |head| head.pinned = pinned);
        }
        is_so
    }

    /// Forgets `entry`, which what the origin has now supersedes. Where it is pinned it stays, and has to
    /// be confirmed.
    pub fn supersede(&self, entry: &Arc<Entry>) {
        let mut index = self.index();
        if index.is_pinned(entry.id) {
            self.change_in(&index, entry, |head| head.invalidated = true);
        } else {
            let gone = index.remove(entry.id);
            self.delete(gone.as_slice());
        }
    }

    /// Forgets `entry`, pinned or not.
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

    /// The body of `entry`, from memory or from disk. `None` where it is not there any more, or not
    /// what was written: then `entry` is forgotten; or where it cannot be read now, or all memory is being
    /// read.
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

    /// The same for who is given it: a large one that is on disk is not taken into memory, where a slow
    /// client would keep it.
    pub async fn given(&self, entry: &Arc<Entry>) -> Option<Given> {
        let from_disk = self.index().is_given_from_disk(entry);
        let Some(disk) = self.disk.as_ref().filter(|_| from_disk) else {
            return self.body(entry).await.map(Given::Whole);
        };
        // The first looks at all of it.
        let _alone = entry.loading.lock().await;
        let pieces = disk.pieces(entry).await;
        self.unless_gone(entry, pieces).map(Given::Pieces)
    }

    /// Result of a `read` of `entry`, which is forgotten if the read has shown that it is gone.
    fn unless_gone<T>(&self, entry: &Entry, read: Result<T, Unread>) -> Option<T> {
        if let Err(Unread::Gone) = read {
            self.remove(entry);
        }
        read.ok()
    }

    /// Memory for a body on its way, at first none.
    pub fn room(&self) -> Room {
        Room { index: self.index.clone(), bytes: 0 }
    }

    /// The hashes of the `most` newest that are fresh by `is_fresh`, of addresses that begin with
    /// `prefix`; the newest first.
    pub fn hashes(&self, prefix: &str, most: usize, is_fresh: impl Fn(&Head) -> bool) -> Vec<u64> {
        let mut entries = self.index().beginning_with(prefix);
        // They are numbered as they are stored.
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
        let fresh = entries.iter().filter(|entry| is_fresh(&entry.head()));
        fresh.take(most).map(|entry| entry.hash).collect()
    }

    pub fn occupancy(&self) -> Occupancy {
        self.index().occupancy()
    }

    /// Objects so far that stayed in memory alone because too much waited for the disk.
    pub fn unwritten(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.queue().refused())
    }

    pub fn counts(&self) -> Counts {
        self.index().counts
    }

    /// Waits until all that was begun has been written, and what lay there has been read.
    pub async fn settle(&self) {
        if let Some(disk) = &self.disk {
            disk.settle().await;
        }
    }
}

impl Room {
    /// Takes memory until it is `bytes`, where there is so much, and a fair share of it leaves so much.
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

    /// Gives back what is more than `bytes`.
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

/// Nothing panics while the index is held, so what it guards is whole.
fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
