//! Index of the store: entries by key, budgets, and the order of eviction. It uses neither files
//! nor a clock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};

use super::entry::Entry;
use super::pieces::MAX_FROM_MEMORY_BYTES;
use super::settings::Settings;
use super::usage::{Counts, Occupancy};
use crate::key::Key;

/// Maximum number of objects. With headers of 1 KiB they need 64 MiB of the memory budget.
const MAX_OBJECTS: usize = 65_536;

/// Maximum number of responses under one key. The oldest one is evicted for the next.
const MAX_VARIANTS: usize = 8;

/// Divisor of the space that pinned objects may use: half of the disk, or half of the memory
/// without a disk. Those that are in memory only may use half of the memory. With 1 GiB of disk,
/// pinned objects have 512 MiB.
const PINNED_PART: u64 = 2;

/// Divisor of the memory that transfers may use: half of it.
const FILLING_PART: u64 = 2;

/// Memory that each transfer may use whatever the others use, if it is available.
const MIN_FILLING_BYTES: u64 = crate::fill::SEGMENT_BYTES as u64;

/// Maximum number of entries evicted for one insertion. Scanning them takes about 50 µs.
const MAX_EVICTED_AT_ONCE: usize = 1024;

/// Minimum number of orphans before a sweep. The next sweep comes when there are twice as many as
/// the last one left, plus this number. Scanning 1,000 takes about 50 µs.
const MIN_ORPHANS: usize = 1000;

/// Block size of file systems.
const BLOCK_BYTES: u64 = 4096;

/// Uses of an entry per update of its file time, so that the order of use survives a restart.
const TOUCH_EVERY: u64 = 64;

struct Slot {
    entry: Arc<Entry>,
    /// Key of this entry in `order` and in `warm`.
    tick: u64,
    uses: u64,
    /// Memory of this entry, counted in `memory`.
    memory: u64,
    /// Disk space of this entry, counted in `disk`, and the part of its header file.
    disk: u64,
    disk_head: u64,
    /// `true` if its files are complete.
    written: bool,
    pinned: bool,
}

impl Slot {
    /// Bytes of the entry that exist in memory only: its header, and its body if that is not on
    /// disk.
    fn only_in_memory(&self) -> u64 {
        if self.disk > 0 { self.entry.head_cost() } else { self.entry.cost() }
    }
}

/// The index.
pub struct Index {
    memory_budget: u64,
    disk_budget: u64,
    /// Usable capacity of the disk, as learned from failures. At most the budget.
    disk_limit: u64,
    by_key: BTreeMap<Key, Vec<u64>>,
    slots: HashMap<u64, Slot>,
    /// Entries that can be evicted, by last use.
    order: BTreeMap<u64, u64>,
    /// Entries whose bodies are in memory, by last use.
    warm: BTreeMap<u64, u64>,
    tick: u64,
    memory: u64,
    disk: u64,
    filling: u64,
    /// Removed entries whose bodies are still being read. `memory` counts these bodies.
    orphans: Vec<Arc<Entry>>,
    /// Number of orphans that the last sweep left.
    orphans_at_last_sweep: usize,
    /// Bytes of pinned entries with header and body, and the part of it that is on no disk. All
    /// headers are in that part.
    pinned: u64,
    pinned_in_memory: u64,
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
            orphans: Vec::new(),
            orphans_at_last_sweep: 0,
            pinned: 0,
            pinned_in_memory: 0,
            counts: Counts::default(),
        }
    }

    pub fn occupancy(&self) -> Occupancy {
        let over = self.orphans.iter().filter(|orphan| !orphan.is_being_read());
        let over: u64 = over.map(|orphan| orphan.warm_bytes()).sum();
        Occupancy {
            objects: self.slots.len() as u64,
            memory_bytes: self.memory - over + self.filling,
            disk_bytes: self.disk,
        }
    }

    /// Finds an entry, and tells if the disk should note its use.
    pub fn find(&mut self, key: &Key, request: &HeaderMap) -> Option<(Arc<Entry>, bool)> {
        let ids = self.by_key.get(key)?;
        // The newest one first.
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

    pub fn get(&self, id: u64) -> Option<Arc<Entry>> {
        self.slots.get(&id).map(|slot| slot.entry.clone())
    }

    pub fn contains(&self, key: &Key) -> bool {
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
        // Keys are sorted as text, so the prefix itself is the lower bound.
        let from = Key::least(prefix);
        let range = self.by_key.range((Bound::Included(from), Bound::Unbounded));
        let keys = range.take_while(|(key, _)| key.as_str().starts_with(prefix));
        keys.flat_map(|(key, _)| self.all_of(key)).collect()
    }

    /// Entries under `key` that fit `request`, either the pinned or the other ones.
    pub fn fitting(&self, key: &Key, request: &HeaderMap, pinned: bool) -> Vec<u64> {
        let ids = self.by_key.get(key).into_iter().flatten();
        let slots = ids.filter_map(|id| self.slots.get(id));
        let fitting =
            slots.filter(|slot| slot.pinned == pinned && slot.entry.head().selection.fits(request));
        fitting.map(|slot| slot.entry.id).collect()
    }

    /// Inserts `entry`, with its body if that is in memory. Returns `false` if there is no room.
    pub fn insert(&mut self, entry: Arc<Entry>, gone: &mut Vec<u64>) -> bool {
        let ids = self.by_key.get(&entry.key).map_or(&[][..], Vec::as_slice);
        if ids.len() >= MAX_VARIANTS {
            let free = |id: &&u64| self.slots.get(id).is_some_and(|slot| !slot.pinned);
            let Some(&oldest) = ids.iter().find(free) else { return false };
            gone.extend(self.evict(oldest));
        }
        let body = entry.body().map_or(0, |body| body.len() as u64);
        let memory = entry.head_cost() + body;
        if !self.make_memory(memory, gone) {
            return false;
        }
        while self.slots.len() >= MAX_OBJECTS {
            let Some((_, &oldest)) = self.order.first_key_value() else { return false };
            gone.extend(self.evict(oldest));
        }
        self.tick += 1;
        let (tick, id) = (self.tick, entry.id);
        let pinned = entry.head().pinned;
        if pinned {
            // The entry was loaded from disk.
            self.pinned += entry.cost();
            self.pinned_in_memory += entry.cost();
        } else {
            self.order.insert(tick, id);
        }
        if body > 0 {
            self.warm.insert(tick, id);
        }
        self.memory += memory;
        self.by_key.entry(entry.key.clone()).or_default().push(id);
        let slot =
            Slot { entry, tick, uses: 0, memory, disk: 0, disk_head: 0, written: false, pinned };
        self.slots.insert(id, slot);
        true
    }

    /// Reserves disk space for the files of `entry`. Returns `false` if there is no room.
    pub fn reserve_disk(&mut self, entry: &Entry, gone: &mut Vec<u64>) -> bool {
        let head = on_disk(entry.head_bytes());
        let bytes = on_disk(entry.body_bytes) + head;
        while self.disk + bytes > self.disk_limit {
            let mut others = self.order.values().filter(|id| **id != entry.id);
            let oldest = others.find(|id| self.slots.get(id).is_some_and(|slot| slot.disk > 0));
            let Some(&oldest) = oldest else { return false };
            gone.extend(self.evict(oldest));
        }
        let Some(slot) = self.slots.get_mut(&entry.id) else { return false };
        (slot.disk, slot.disk_head) = (bytes, head);
        self.disk += bytes;
        if slot.pinned {
            self.pinned_in_memory -= entry.body_bytes;
        }
        true
    }

    /// Updates the size of the header file of `id`. The budget may be exceeded until the next
    /// write; a header has at most 32 KiB.
    pub fn head_grows(&mut self, id: u64, bytes: usize) {
        if let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.disk > 0) {
            let head = on_disk(bytes as u64);
            slot.disk = slot.disk - slot.disk_head + head;
            self.disk = self.disk - slot.disk_head + head;
            slot.disk_head = head;
        }
    }

    /// Marks the files of `id` as complete.
    pub fn written(&mut self, id: u64) {
        // Each success raises the learned capacity by 1 % of the budget.
        self.disk_limit = (self.disk_limit + self.disk_budget / 100).min(self.disk_budget);
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.written = true;
        }
    }

    /// Releases the disk space of `id`, whose files could not be written. `is_full` lowers the
    /// learned capacity.
    pub fn not_written(&mut self, id: u64, is_full: bool) {
        if let Some(slot) = self.slots.get_mut(&id) {
            let disk = std::mem::take(&mut slot.disk);
            self.disk -= disk;
            if slot.pinned && disk > 0 {
                self.pinned_in_memory += slot.entry.body_bytes;
            }
        }
        if is_full {
            // Small objects must still fit: only a successful write shows that there is room again.
            self.disk_limit = (self.disk - self.disk / 10).max(self.disk_budget / 100);
        }
        // Memory can pin less than the disk. The operator did not ask for this; the disk failed.
        if self.pinned_in_memory > self.memory_budget / PINNED_PART {
            self.pin(id, false);
        }
    }

    /// Returns `true` if `entry` is read from disk. Drops its body in memory, which is then
    /// useless.
    pub fn is_read_from_disk(&mut self, entry: &Entry) -> bool {
        let is_written = self.slots.get(&entry.id).is_some_and(|slot| slot.written);
        let is_given = is_written && entry.body_bytes > MAX_FROM_MEMORY_BYTES;
        if is_given && !entry.is_being_read() {
            self.cool(entry.id);
        }
        is_given
    }

    pub fn on_disk(&self, id: u64) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.disk > 0)
    }

    /// Loads the body of `entry` into memory. Returns `false` if there is no room, or the entry is
    /// gone.
    pub fn warm(&mut self, entry: &Entry, body: Bytes, gone: &mut Vec<u64>) -> bool {
        let bytes = body.len() as u64;
        if !self.slots.contains_key(&entry.id) || !self.make_memory(bytes, gone) {
            return false;
        }
        // Making room may have removed the entry.
        let Some(slot) = self.slots.get_mut(&entry.id) else { return false };
        entry.set_body(body);
        slot.memory += bytes;
        self.memory += bytes;
        self.warm.insert(slot.tick, entry.id);
        true
    }

    /// Evicts the entry. Returns its id if it has files.
    fn evict(&mut self, id: u64) -> Option<u64> {
        if let Some(slot) = self.slots.get(&id) {
            self.counts.evicted += 1;
            self.counts.evicted_bytes += slot.entry.body_bytes;
        }
        self.remove(id)
    }

    /// Removes the entry. Returns its id if it has files.
    pub fn remove(&mut self, id: u64) -> Option<u64> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&slot.tick);
        self.warm.remove(&slot.tick);
        self.memory -= slot.memory;
        self.disk -= slot.disk;
        if slot.entry.is_being_read() {
            self.memory += slot.entry.warm_bytes();
            self.orphans.push(slot.entry.clone());
            if self.orphans.len() > 2 * self.orphans_at_last_sweep + MIN_ORPHANS {
                self.release_orphans();
            }
        }
        if slot.pinned {
            self.pinned -= slot.entry.cost();
            self.pinned_in_memory -= slot.only_in_memory();
        }
        if let Some(ids) = self.by_key.get_mut(&slot.entry.key) {
            ids.retain(|one| *one != id);
            if ids.is_empty() {
                self.by_key.remove(&slot.entry.key);
            }
        }
        (slot.disk > 0).then_some(id)
    }

    pub fn is_pinned(&self, id: u64) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.pinned)
    }

    /// Pins or unpins `id`. Returns `true` if it is in the requested state.
    pub fn pin(&mut self, id: u64, pinned: bool) -> bool {
        let most = self.disk_budget.max(self.memory_budget) / PINNED_PART;
        let Some(slot) = self.slots.get_mut(&id) else { return false };
        if slot.pinned == pinned {
            return true;
        }
        let (bytes, in_memory) = (slot.entry.cost(), slot.only_in_memory());
        if pinned {
            if self.pinned + bytes > most
                || self.pinned_in_memory + in_memory > self.memory_budget / PINNED_PART
            {
                return false;
            }
            self.pinned += bytes;
            self.pinned_in_memory += in_memory;
            self.order.remove(&slot.tick);
        } else {
            self.pinned -= bytes;
            self.pinned_in_memory -= in_memory;
            self.order.insert(slot.tick, id);
        }
        slot.pinned = pinned;
        true
    }

    /// Reserves `bytes` more for a transfer that has `held` already. Each transfer may use at most
    /// what it leaves to others: the first half of the transfer memory, the second a third, and so
    /// on. However many large transfers are slow, there is room for others.
    pub fn reserve_memory(&mut self, held: u64, bytes: u64, gone: &mut Vec<u64>) -> bool {
        let most = self.memory_budget / FILLING_PART;
        let Some(left) = most.checked_sub(self.filling + bytes) else { return false };
        let is_fair = held + bytes <= left.max(MIN_FILLING_BYTES);
        if !is_fair || !self.make_memory(bytes, gone) {
            return false;
        }
        self.filling += bytes;
        true
    }

    pub fn release_memory(&mut self, bytes: u64) {
        self.filling -= bytes;
    }

    /// Makes room for `bytes` in memory. First drops bodies that are also on disk, and evicts
    /// entries that are not. Then evicts whole entries. A body that is being read stays counted,
    /// because it stays in memory.
    fn make_memory(&mut self, bytes: u64, gone: &mut Vec<u64>) -> bool {
        if self.memory + self.filling + bytes > self.memory_budget {
            self.release_orphans();
        }
        while self.memory + self.filling + bytes > self.memory_budget {
            let may_go =
                |slot: &Slot| (slot.written || !slot.pinned) && !slot.entry.is_being_read();
            let mut warm = self.warm.values();
            let cooled = warm.find(|id| self.slots.get(id).is_some_and(may_go));
            if let Some(&id) = cooled {
                if !self.cool(id) {
                    gone.extend(self.evict(id));
                }
                continue;
            }
            return self
                .forget_oldest(self.memory + self.filling + bytes - self.memory_budget, gone);
        }
        true
    }

    /// Releases the memory of orphans that nobody reads any more.
    fn release_orphans(&mut self) {
        let memory = &mut self.memory;
        self.orphans.retain(|orphan| {
            let is_being_read = orphan.is_being_read();
            if !is_being_read {
                *memory -= orphan.warm_bytes();
            }
            is_being_read
        });
        self.orphans_at_last_sweep = self.orphans.len();
    }

    /// Evicts the oldest unread entries until `bytes` of memory are free. Evicts none if that is
    /// impossible.
    fn forget_oldest(&mut self, bytes: u64, gone: &mut Vec<u64>) -> bool {
        let (mut freed, mut oldest) = (0, Vec::new());
        for slot in
            self.order.values().take(MAX_EVICTED_AT_ONCE).filter_map(|id| self.slots.get(id))
        {
            if freed >= bytes {
                break;
            }
            if !slot.entry.is_being_read() {
                freed += slot.memory;
                oldest.push(slot.entry.id);
            }
        }
        if freed < bytes {
            return false;
        }
        oldest.into_iter().for_each(|id| gone.extend(self.evict(id)));
        true
    }

    /// Drops the body of `id` from memory if it is on disk.
    fn cool(&mut self, id: u64) -> bool {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.written) else { return false };
        let body = slot.entry.forget_body();
        let bytes = body.map_or(0, |body| body.len() as u64);
        slot.memory -= bytes;
        self.memory -= bytes;
        self.warm.remove(&slot.tick);
        true
    }
}

/// Locks the index.
pub fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock()
}

/// Disk space of a file of `bytes`.
pub fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

#[cfg(test)]
mod tests;
