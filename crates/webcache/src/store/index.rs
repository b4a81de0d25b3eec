//! Index of the store: places of objects, and the order of eviction. No files here, and no clock:
//! only arithmetic.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::entry::Entry;
use super::pieces::MOST_FROM_MEMORY;
use super::{Counts, Occupancy, Settings};
use crate::key::Key;

/// The most objects. With heads of 1 KiB they take 64 MiB, if the memory's budget has so much.
const MOST_OBJECTS: usize = 65_536;

/// The most answers under one address. One more takes the place of the oldest.
const MOST_VARIANTS: usize = 8;

/// Part of the disk that pinned objects may use, or of the memory if there is no disk; and part of
/// the memory for those in memory alone. One part in so many: with 1 GiB of disk, 512 MiB.
const PINNED_PART: u64 = 2;

/// Part of the memory that bodies in progress may use: one part in so many.
const FILLING_PART: u64 = 2;

/// A body on its way may have so much whatever the others have, if there is any.
const LEAST_FILLING: u64 = crate::fill::SEGMENT_BYTES as u64;

/// The most entries that go at once, with heads and all, for one that comes: a look at them takes some 50 µs.
const MOST_FORGOTTEN: usize = 1024;

/// Objects that are gone and still read are looked at when there are twice as many as were left the last
/// time, and so many more: 1,000 take some 50 µs.
const LEAST_GHOSTS: usize = 1000;

/// Unit in which file systems count.
const BLOCK_BYTES: u64 = 4096;

/// One use in so many is told to the disk, so that what is used is known after a restart.
const TOUCH_EVERY: u64 = 64;

struct Slot {
    entry: Arc<Entry>,
    /// Its place in `order`, and in `warm`.
    tick: u64,
    uses: u64,
    /// Its own part of `memory`.
    memory: u64,
    /// Its own part of `disk`; of that, its head's file.
    disk: u64,
    disk_head: u64,
    /// `true` if its files are complete.
    written: bool,
    pinned: bool,
}

impl Slot {
    /// Bytes of it that can be in memory alone: its head, and its body if no disk has that.
    fn only_in_memory(&self) -> u64 {
        if self.disk > 0 { self.entry.head_cost() } else { self.entry.cost() }
    }
}

/// The index.
pub struct Index {
    memory_budget: u64,
    disk_budget: u64,
    /// Capacity found on the disk; at most the budget.
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
    /// Those that are gone while somebody still reads their bodies, and the bytes of these, which `memory`
    /// counts as long.
    ghosts: Vec<Arc<Entry>>,
    /// The ghosts that were left when they were looked at last.
    looked_at: usize,
    /// Bytes of what is pinned, heads and bodies; of those, the ones that are on no disk, all heads
    /// among them.
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
            ghosts: Vec::new(),
            looked_at: 0,
            pinned: 0,
            pinned_in_memory: 0,
            counts: Counts::default(),
        }
    }

    pub fn occupancy(&self) -> Occupancy {
        let over = self.ghosts.iter().filter(|ghost| !ghost.is_lent());
        let over: u64 = over.map(|ghost| ghost.warm_bytes()).sum();
        Occupancy {
            objects: self.slots.len() as u64,
            memory_bytes: self.memory - over + self.filling,
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

    pub fn get(&self, id: u64) -> Option<Arc<Entry>> {
        self.slots.get(&id).map(|slot| slot.entry.clone())
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

    /// Those under `key` that fit `request`, and are pinned or not.
    pub fn fitting(&self, key: &Key, request: &HeaderMap, pinned: bool) -> Vec<u64> {
        let ids = self.by_key.get(key).into_iter().flatten();
        let slots = ids.filter_map(|id| self.slots.get(id));
        let fitting =
            slots.filter(|slot| slot.pinned == pinned && slot.entry.head().selection.fits(request));
        fitting.map(|slot| slot.entry.id).collect()
    }

    /// Takes `entry` in, with its body in memory if it has it; `false` where there is no room.
    pub fn insert(&mut self, entry: Arc<Entry>, gone: &mut Vec<u64>) -> bool {
        let ids = self.by_key.get(&entry.key).map_or(&[][..], Vec::as_slice);
        if ids.len() >= MOST_VARIANTS {
            let free = |id: &&u64| self.slots.get(id).is_some_and(|slot| !slot.pinned);
            let Some(&oldest) = ids.iter().find(free) else { return false };
            gone.extend(self.evict(oldest));
        }
        let body = entry.body().map_or(0, |body| body.len() as u64);
        let memory = entry.head_cost() + body;
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
            // It comes from the disk.
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

    /// Counts the files of `entry` in; `false` where there is no room.
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

    /// The head's file of `id` is now so long. What is over the budget by that goes when the next object
    /// is written: a head has at most 32 KiB.
    pub fn head_grows(&mut self, id: u64, bytes: usize) {
        if let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.disk > 0) {
            let head = on_disk(bytes as u64);
            slot.disk = slot.disk - slot.disk_head + head;
            self.disk = self.disk - slot.disk_head + head;
            slot.disk_head = head;
        }
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
            let disk = std::mem::take(&mut slot.disk);
            self.disk -= disk;
            if slot.pinned && disk > 0 {
                self.pinned_in_memory += slot.entry.body_bytes;
            }
        }
        if is_full {
            // Never so little that no object fits: nothing would show that there is room again.
            self.disk_limit = (self.disk - self.disk / 10).max(self.disk_budget / 100);
        }
        // In memory fewer can be kept. That is no word of the operator's: the disk has failed.
        if self.pinned_in_memory > self.memory_budget / PINNED_PART {
            self.pin(id, false);
        }
    }

    /// Returns `true` if `entry` is read from disk; its body in memory is then useless.
    pub fn is_given_from_disk(&mut self, entry: &Entry) -> bool {
        let is_written = self.slots.get(&entry.id).is_some_and(|slot| slot.written);
        let is_given = is_written && entry.body_bytes > MOST_FROM_MEMORY;
        if is_given && !entry.is_lent() {
            self.cool(entry.id);
        }
        is_given
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
        entry.set_body(body);
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
        if slot.entry.is_lent() {
            self.memory += slot.entry.warm_bytes();
            self.ghosts.push(slot.entry.clone());
            if self.ghosts.len() > 2 * self.looked_at + LEAST_GHOSTS {
                self.lay_ghosts();
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

    /// Keeps `id` whatever comes, or no longer; gives whether it is as was asked.
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

    /// Takes `bytes` more for a body on its way that has `held` already. All such have a part of the
    /// memory, and each no more than it leaves to those to come: the first half of that part, the second
    /// a third of it, and so on, so that however many large ones come slowly, there is room for others.
    pub fn reserve_memory(&mut self, held: u64, bytes: u64, gone: &mut Vec<u64>) -> bool {
        let most = self.memory_budget / FILLING_PART;
        let Some(left) = most.checked_sub(self.filling + bytes) else { return false };
        let is_fair = held + bytes <= left.max(LEAST_FILLING);
        if !is_fair || !self.make_memory(bytes, gone) {
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
        if self.memory + self.filling + bytes > self.memory_budget {
            self.lay_ghosts();
        }
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
            return self
                .forget_oldest(self.memory + self.filling + bytes - self.memory_budget, gone);
        }
        true
    }

    /// Gives back the memory of those that nobody reads any more.
    fn lay_ghosts(&mut self) {
        let memory = &mut self.memory;
        self.ghosts.retain(|ghost| {
            let is_lent = ghost.is_lent();
            if !is_lent {
                *memory -= ghost.warm_bytes();
            }
            is_lent
        });
        self.looked_at = self.ghosts.len();
    }

    /// Removes the oldest entries that nobody reads until `bytes` of memory are free; none where that
    /// would not do.
    fn forget_oldest(&mut self, bytes: u64, gone: &mut Vec<u64>) -> bool {
        let (mut freed, mut oldest) = (0, Vec::new());
        for slot in self.order.values().take(MOST_FORGOTTEN).filter_map(|id| self.slots.get(id)) {
            if freed >= bytes {
                break;
            }
            if !slot.entry.is_lent() {
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

    /// Forgets the body of `id` in memory, where it is on disk.
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

/// Disk space of a file of `bytes`.
pub fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

#[cfg(test)]
mod tests;
