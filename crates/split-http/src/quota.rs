//! Slots for pages and downloads in progress: a total, and a share for each aircraft (ground) or
//! passenger (air).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::quota::{Holdings, gives_way};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::flows::Grip;
use crate::refusals::{Holding, Limit, Refusals};

/// Silence after which a page or download may end to make room. A page whose bytes move is worth
/// more to its reader than the newcomer's page is, which crosses the link object by object instead.
const IDLE: Duration = Duration::from_secs(2);

/// Number of slots.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Total over all holders.
    pub all: usize,
    /// Maximum for one holder.
    pub each: usize,
}

/// Slots of pages and downloads. Holders are the labels of passengers or the names of aircraft.
///
/// A page may turn out to be a download. A page is therefore admitted only if a download slot would
/// be available too, so a download always has a slot.
///
/// Pages may use all page slots while downloads are few. Passengers at their download limit can
/// together exhaust the page slots. If no slot is free, the idlest page or download of a holder
/// with more of them ends.
pub struct SlotQuota {
    pages: Share,
    downloads: Share,
    began: Instant,
    taken: Mutex<Taken>,
}

/// Slot of a page or a download; released when dropped.
pub struct Slot {
    slots: Arc<SlotQuota>,
    grip: Arc<Grip>,
}

/// Slots in use: 32 on board, and 128 on the ground by default.
#[derive(Default)]
struct Taken {
    slots: BTreeMap<u64, Used>,
    /// Number of slots of each holder.
    holders: Holdings<Arc<str>>,
    next: u64,
}

struct Used {
    holder: Arc<str>,
    is_download: bool,
    grip: Arc<Grip>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    pages: usize,
    downloads: usize,
}

impl SlotQuota {
    /// Creates slots for `pages`, and additional slots for `downloads`.
    pub fn new(pages: Share, downloads: Share) -> Arc<Self> {
        let (began, taken) = (Instant::now(), Mutex::default());
        Arc::new(Self { pages, downloads, began, taken })
    }

    /// Takes a slot for a page of `holder`. Returns `None` if its share is used up, or if all slots
    /// are and nobody with more has an idle one. `refusals` counts that, and evictions.
    pub fn take(self: &Arc<Self>, holder: &Arc<str>, refusals: &Refusals) -> Option<Slot> {
        let mut taken = self.taken();
        let (own, all) = (taken.held(|it| it == holder), taken.held(|_| true));
        let (pages, downloads) = (self.pages, self.downloads);
        let is_allowed = own.admits(pages.each, downloads.each);
        let is_free = all.admits(pages.all, downloads.all);
        let evicted = if is_allowed && !is_free {
            taken.evict(own.sum(), all.pages >= pages.all, self.began.elapsed())
        } else {
            None
        };
        let slot = (is_allowed && (is_free || evicted.is_some())).then(|| {
            let grip = Grip::new(taken.next, 0, self.began);
            taken.next += 1;
            let used = Used { holder: holder.clone(), is_download: false, grip: grip.clone() };
            taken.holders.add(holder.clone(), 1);
            taken.slots.insert(grip.id(), used);
            Slot { slots: self.clone(), grip }
        });
        drop(taken);
        if let Some(evicted) = evicted {
            refusals.evicted(Limit::Pages, || self.holding(holder));
            evicted.over().cancel();
        } else if slot.is_none() {
            refusals.refused(Limit::Pages, || self.holding(holder));
        }
        slot
    }

    /// Slots in use, of pages and downloads together, for the log.
    fn holding(&self, holder: &Arc<str>) -> Holding {
        let taken = self.taken();
        Holding {
            newcomer: holder.to_string(),
            holds: taken.holders.of(holder),
            held: taken.holders.total(),
            most: self.pages.all + self.downloads.all,
            largest: taken.holders.largest().map(|(holder, held)| (holder.to_string(), held)),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

impl Held {
    fn sum(self) -> usize {
        self.pages + self.downloads
    }

    fn admits(self, pages: usize, downloads: usize) -> bool {
        self.pages < pages && self.pages + self.downloads < pages + downloads
    }
}

impl Taken {
    fn held(&self, is_of: impl Fn(&Arc<str>) -> bool) -> Held {
        let mut held = Held::default();
        for used in self.slots.values().filter(|used| is_of(&used.holder)) {
            let of_kind = if used.is_download { &mut held.downloads } else { &mut held.pages };
            *of_kind += 1;
        }
        held
    }

    /// Removes the idlest slot of the largest holder for a holder with `own` slots, if nothing has
    /// moved in it for [`IDLE`]. The largest holder still has as many as the newcomer afterwards. If
    /// it `must_be_page`, downloads are kept. `now` is the time since the slots were created.
    fn evict(&mut self, own: usize, must_be_page: bool, now: Duration) -> Option<Arc<Grip>> {
        let may_end = |used: &&Used| {
            gives_way(self.holders.of(&used.holder), own, 1)
                && !(must_be_page && used.is_download)
                && now.saturating_sub(Duration::from_millis(used.grip.moved_ms())) >= IDLE
        };
        let rank = |used: &&Used| {
            (
                self.holders.of(&used.holder),
                std::cmp::Reverse((used.grip.moved_ms(), used.grip.id())),
            )
        };
        let id = self.slots.values().filter(may_end).max_by_key(rank)?.grip.id();
        self.remove(id)
    }

    /// Removes a slot if it is still taken.
    fn remove(&mut self, id: u64) -> Option<Arc<Grip>> {
        let used = self.slots.remove(&id)?;
        self.holders.remove(used.holder, 1);
        Some(used.grip)
    }
}

impl Slot {
    /// Turns the page into a download, and releases its page slot.
    pub fn leave_to_pages(&mut self) {
        if let Some(used) = self.slots.taken().slots.get_mut(&self.grip.id()) {
            used.is_download = true;
        }
    }

    /// Entry that records the activity of the page or download.
    pub fn activity(&self) -> Arc<Grip> {
        self.grip.clone()
    }

    /// Token that is cancelled when the page or download must make room.
    pub fn over(&self) -> CancellationToken {
        self.grip.over().clone()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken().remove(self.grip.id());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Slots, and what takes them.
    struct Bench(Arc<SlotQuota>, Refusals);

    impl Bench {
        fn new(all: usize, each: usize) -> Self {
            let share = Share { all, each };
            Self(SlotQuota::new(share, share), Refusals::default())
        }

        fn take(&self, holder: &str) -> Option<Slot> {
            self.0.take(&holder.into(), &self.1)
        }

        fn counts(&self) -> (u64, u64) {
            (self.1.count_refused(Limit::Pages), self.1.count_evicted(Limit::Pages))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_all_places() {
        let bench = Bench::new(3, 2);
        let mut ours: Vec<_> = (0..3).filter_map(|_| bench.take("a")).collect();
        assert_eq!(ours.len(), 2, "a third is not for the first aircraft");
        let theirs = bench.take("b");
        assert!(theirs.is_some() && bench.take("c").is_none(), "all are taken");
        ours.pop();
        assert!(bench.take("b").is_some());
        assert_eq!(bench.counts(), (2, 0));
        drop((ours, theirs));
        assert!(bench.0.taken().slots.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_leave_pages_their_places_and_have_a_bound_of_their_own() {
        let bench = Bench::new(8, 2);
        let mut downloads = Vec::new();
        while let Some(mut place) = bench.take("a") {
            place.leave_to_pages();
            place.leave_to_pages();
            downloads.push(place);
        }
        // Two of them were admitted as pages.
        assert_eq!(downloads.len(), 4);
        downloads.pop();
        assert!(bench.take("a").is_some());
        let held = Held { pages: 0, downloads: 3 };
        assert_eq!(bench.0.taken().held(|_| true), held);
        drop(downloads);
        assert!(bench.0.taken().slots.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_gets_the_idlest_place_of_whoever_has_most() {
        let bench = Bench::new(4, 3);
        let held: Vec<_> = ["a", "b", "a", "a"].map(|who| bench.take(who).unwrap()).into();
        assert!(bench.take("c").is_none(), "all of them move");
        advance(IDLE).await;
        held[0].activity().touch();
        let is_over = |n: usize| held[n].over().is_cancelled();
        let newcomer = bench.take("c").unwrap();
        assert_eq!([0, 1, 2, 3].map(is_over), [false, false, true, false]);
        assert_eq!(bench.counts(), (1, 1));
        assert!(bench.take("b").is_none(), "nobody has two more than it");
        // One that ended has no slot to release any more.
        drop(held);
        assert_eq!(bench.0.taken().slots.len(), 1);
        drop(newcomer);
        assert!(bench.0.taken().slots.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_makes_room_only_if_downloads_fill_the_places() {
        let bench = Bench::new(2, 2);
        let mut downloads = Vec::new();
        for who in ["a", "a", "a"] {
            let mut slot = bench.take(who).unwrap();
            slot.leave_to_pages();
            downloads.push(slot);
        }
        let _page = bench.take("b").unwrap();
        advance(IDLE).await;
        // Three downloads and a page: their sum is used up, and only downloads of "a" are many.
        assert!(bench.take("c").is_some());
        assert_eq!(downloads.iter().filter(|it| it.over().is_cancelled()).count(), 1);
    }
}
