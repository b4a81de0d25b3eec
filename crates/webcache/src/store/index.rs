//! What is where, and what goes first. No files here, and no clock: only arithmetic.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;

use super::{Counts, Occupancy, Settings};
use crate::head::Head;
use crate::key::Key;
use crate::record::{Record, Sum};

/// The most objects. With heads of 1 KiB they take 64 MiB, if the memory's budget has so much.
const MOST_OBJECTS: usize = 65_536;

/// The most answers under one address. One more takes the place of the oldest.
const MOST_VARIANTS: usize = 8;

/// What a head takes in memory besides its encoded length: the maps' share.
const HEAD_COST: u64 = 512;

/// What file systems count in.
const BLOCK_BYTES: u64 = 4096;

/// One use in so many is told to the disk, so that what is used is known after a restart.
const TOUCH_EVERY: u64 = 64;

/// A stored answer.
pub struct Entry {
    pub id: u64,
    pub key: Key,
    pub body_bytes: u64,
    pub body_sum: Sum,
    /// Held by who reads the body from disk, so that one does.
    pub loading: tokio::sync::Mutex<()>,
    head_cost: u64,
    state: Mutex<State>,
}

struct State {
    head: Arc<Head>,
    body: Option<Bytes>,
}

impl Entry {
    /// `file_bytes` is the length of its head's file.
    pub fn new(record: Record, file_bytes: usize, body: Option<Bytes>) -> Self {
        let Record { id, key, head, body_bytes, body_sum } = record;
        Self {
            id,
            key,
            body_bytes,
            body_sum,
            loading: tokio::sync::Mutex::default(),
            head_cost: file_bytes as u64 + HEAD_COST,
            state: Mutex::new(State { head: head.into(), body }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn head(&self) -> Arc<Head> {
        self.state().head.clone()
    }

    pub fn body(&self) -> Option<Bytes> {
        self.state().body.clone()
    }

    /// Whether somebody reads the body in memory.
    fn is_lent(&self) -> bool {
        self.state().body.as_ref().is_some_and(|body| !body.is_unique())
    }

    pub fn set_head(&self, head: Head) {
        self.state().head = head.into();
    }

    pub fn record_with(&self, head: Head) -> Record {
        let (id, key) = (self.id, self.key.clone());
        Record { id, key, head, body_bytes: self.body_bytes, body_sum: self.body_sum }
    }
}

struct Slot {
    entry: Arc<Entry>,
    /// Its place in `order`, and in `warm`.
    tick: u64,
    uses: u64,
    /// What of `memory` is its own.
    memory: u64,
    /// What of `disk` is its own.
    disk: u64,
    /// Whether its files are complete.
    written: bool,
    pinned: bool,
}

/// The index.
pub struct Index {
    memory_budget: u64,
    disk_budget: u64,
    /// What the disk was found to hold; at most the budget.
    disk_limit: u64,
    by_key: BTreeMap<Key, Vec<u64>>,
    slots: HashMap<u64, Slot>,
    /// Those that may go, by when they were used last.
    order: BTreeMap<u64, u64>,
    /// Those whose bodies are in memory.
    warm: BTreeMap<u64, u64>,
    tick: u64,
    memory: u64,
    disk: u64,
    filling: u64,
    pinned: u64,
    pub counts: Counts,
}

impl Index {
    pub fn new(settings: &Settings) -> Self {
        let disk_budget = if settings.directory.is_some() { settings.disk_bytes } else { 0 };
        Self {
            memory_budget: settings.memory_bytes,
            disk_budget,
            disk_limit: disk_budget,
            by_key: BTreeMap::new(),
            slots: HashMap::new(),
            order: BTreeMap::new(),
            warm: BTreeMap::new(),
            tick: 0,
            memory: 0,
            disk: 0,
            filling: 0,
            pinned: 0,
            counts: Counts::default(),
        }
    }

    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            objects: self.slots.len() as u64,
            memory_bytes: self.memory + self.filling,
            disk_bytes: self.disk,
        }
    }

    /// The entry, and whether the disk should hear of its use.
    pub fn find(&mut self, key: &Key, request: &HeaderMap) -> Option<(Arc<Entry>, bool)> {
        let ids = self.by_key.get(key)?;
        // The latest first.
        let id = *ids.iter().rev().find(|id| {
            self.slots.get(id).is_some_and(|slot| slot.entry.head().selection.fits(request))
        })?;
        self.tick += 1;
        let tick = self.tick;
        let slot = self.slots.get_mut(&id)?;
        let before = std::mem::replace(&mut slot.tick, tick);
        for order in [&mut self.order, &mut self.warm] {
            if order.remove(&before).is_some() {
                order.insert(tick, id);
            }
        }
        slot.uses += 1;
        Some((slot.entry.clone(), slot.written && slot.uses % TOUCH_EVERY == 1))
    }

    pub fn knows(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub fn all_of(&self, key: &Key) -> Vec<Arc<Entry>> {
        let ids = self.by_key.get(key).into_iter().flatten();
        ids.filter_map(|id| Some(self.slots.get(id)?.entry.clone())).collect()
    }

    pub fn pinned(&self) -> Vec<Key> {
        let is_pinned = |id: &u64| self.slots.get(id).is_some_and(|slot| slot.pinned);
        let pinned = self.by_key.iter().filter(|(_, ids)| ids.iter().any(is_pinned));
        pinned.map(|(key, _)| key.clone()).collect()
    }

    pub fn beginning_with(&self, prefix: &str) -> Vec<Arc<Entry>> {
        // Keys are ordered as their text is, and the first that could begin so is the prefix itself.
        let from = Key::least(prefix);
        let range = self.by_key.range((Bound::Included(from), Bound::Unbounded));
        let keys = range.take_while(|(key, _)| key.as_str().starts_with(prefix));
        keys.flat_map(|(key, _)| self.all_of(key)).collect()
    }

    /// Removes those under `key` that fit `request`; gives what is to be deleted.
    pub fn remove_fitting(&mut self, key: &Key, request: &HeaderMap) -> Vec<u64> {
        let fitting = |entry: &Arc<Entry>| entry.head().selection.fits(request);
        let ids: Vec<u64> =
            self.all_of(key).iter().filter(|entry| fitting(entry)).map(|entry| entry.id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes `entry` in, with its body in memory if it has it; `false` where there is no room.
    pub fn insert(&mut self, entry: Arc<Entry>, gone: &mut Vec<u64>) -> bool {
        let of_key = self.by_key.get(&entry.key).map_or(0, Vec::len);
        if of_key >= MOST_VARIANTS
            && let Some(oldest) = self.by_key.get(&entry.key).and_then(|ids| ids.first().copied())
        {
            gone.extend(self.evict(oldest));
        }
        let body = entry.body().map_or(0, |body| body.len() as u64);
        let memory = entry.head_cost + body;
        if !self.make_memory(memory, gone) {
            return false;
        }
        while self.slots.len() >= MOST_OBJECTS {
            let Some((_, &oldest)) = self.order.first_key_value() else { return false };
            gone.extend(self.evict(oldest));
        }
        self.tick += 1;
        let (tick, id) = (self.tick, entry.id);
        let pinned = entry.head().pinned;
        if pinned {
            self.pinned += entry.body_bytes;
        } else {
            self.order.insert(tick, id);
        }
        if body > 0 {
            self.warm.insert(tick, id);
        }
        self.memory += memory;
        self.by_key.entry(entry.key.clone()).or_default().push(id);
        let slot = Slot { entry, tick, uses: 0, memory, disk: 0, written: false, pinned };
        self.slots.insert(id, slot);
        true
    }

    /// Counts the files of `entry` in, `head_bytes` being its head's; `false` where there is no room.
    pub fn reserve_disk(&mut self, entry: &Entry, head_bytes: usize, gone: &mut Vec<u64>) -> bool {
        let bytes = on_disk(entry.body_bytes) + on_disk(head_bytes as u64);
        while self.disk + bytes > self.disk_limit {
            let mut others = self.order.values().filter(|id| **id != entry.id);
            let oldest = others.find(|id| self.slots.get(id).is_some_and(|slot| slot.disk > 0));
            let Some(&oldest) = oldest else { return false };
            gone.extend(self.evict(oldest));
        }
        let Some(slot) = self.slots.get_mut(&entry.id) else { return false };
        slot.disk = bytes;
        self.disk += bytes;
        true
    }

    /// The files of `id` are complete.
    pub fn written(&mut self, id: u64) {
        // What works gives back, little by little, what the disk did not hold once.
        self.disk_limit = (self.disk_limit + self.disk_budget / 100).min(self.disk_budget);
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.written = true;
        }
    }

    /// The files of `id` have not been written; because the disk holds no more, if it `is_full`.
    pub fn not_written(&mut self, id: u64, is_full: bool) {
        if let Some(slot) = self.slots.get_mut(&id) {
            self.disk -= std::mem::take(&mut slot.disk);
        }
        if is_full {
            self.disk_limit = self.disk - self.disk / 10;
        }
    }

    pub fn on_disk(&self, id: u64) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.disk > 0)
    }

    /// Takes the body of `entry` into memory; `false` where there is no room, or it has gone.
    pub fn warm(&mut self, entry: &Entry, body: Bytes, gone: &mut Vec<u64>) -> bool {
        let bytes = body.len() as u64;
        if !self.slots.contains_key(&entry.id) || !self.make_memory(bytes, gone) {
            return false;
        }
        // Making room may have removed it.
        let Some(slot) = self.slots.get_mut(&entry.id) else { return false };
        entry.state().body = Some(body);
        slot.memory += bytes;
        self.memory += bytes;
        self.warm.insert(slot.tick, entry.id);
        true
    }

    /// Removes the entry because others want its place; gives its id where it has files.
    fn evict(&mut self, id: u64) -> Option<u64> {
        if let Some(slot) = self.slots.get(&id) {
            self.counts.evicted += 1;
            self.counts.evicted_bytes += slot.entry.body_bytes;
        }
        self.remove(id)
    }

    /// Removes the entry; gives its id where it has files.
    pub fn remove(&mut self, id: u64) -> Option<u64> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&slot.tick);
        self.warm.remove(&slot.tick);
        self.memory -= slot.memory;
        self.disk -= slot.disk;
        if slot.pinned {
            self.pinned -= slot.entry.body_bytes;
        }
        if let Some(ids) = self.by_key.get_mut(&slot.entry.key) {
            ids.retain(|one| *one != id);
            if ids.is_empty() {
                self.by_key.remove(&slot.entry.key);
            }
        }
        (slot.disk > 0).then_some(id)
    }

    pub fn pin(&mut self, id: u64, pinned: bool) -> bool {
        let most = self.disk_budget.max(self.memory_budget) / 2;
        let Some(slot) = self.slots.get_mut(&id) else { return false };
        if slot.pinned == pinned {
            return true;
        }
        let bytes = slot.entry.body_bytes;
        if pinned {
            if self.pinned + bytes > most {
                return false;
            }
            self.pinned += bytes;
            self.order.remove(&slot.tick);
        } else {
            self.pinned -= bytes;
            self.order.insert(slot.tick, id);
        }
        slot.pinned = pinned;
        true
    }

    pub fn reserve_memory(&mut self, bytes: u64, gone: &mut Vec<u64>) -> bool {
        let fits = self.filling + bytes <= self.memory_budget / 2;
        if !fits || !self.make_memory(bytes, gone) {
            return false;
        }
        self.filling += bytes;
        true
    }

    pub fn release_memory(&mut self, bytes: u64) {
        self.filling -= bytes;
    }

    /// Makes room for `bytes` more in memory. First bodies go that are on disk too, or all of an entry
    /// that is not; then whole entries. Bodies that are being read stay counted, as they stay in memory.
    fn make_memory(&mut self, bytes: u64, gone: &mut Vec<u64>) -> bool {
        while self.memory + self.filling + bytes > self.memory_budget {
            let may_go = |slot: &Slot| (slot.written || !slot.pinned) && !slot.entry.is_lent();
            let mut warm = self.warm.values();
            let cooled = warm.find(|id| self.slots.get(id).is_some_and(may_go));
            if let Some(&id) = cooled {
                if !self.cool(id) {
                    gone.extend(self.evict(id));
                }
                continue;
            }
            let mut order = self.order.values();
            let cold = |id: &&u64| self.slots.get(id).is_some_and(|slot| !slot.entry.is_lent());
            let Some(&oldest) = order.find(cold) else { return false };
            gone.extend(self.evict(oldest));
        }
        true
    }

    /// Forgets the body of `id` in memory, where it is on disk.
    fn cool(&mut self, id: u64) -> bool {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.written) else { return false };
        let body = slot.entry.state().body.take();
        let bytes = body.map_or(0, |body| body.len() as u64);
        slot.memory -= bytes;
        self.memory -= bytes;
        self.warm.remove(&slot.tick);
        true
    }
}

/// What a file of `bytes` takes on disk.
pub fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}
