//! Push cache of the air gateway: objects that are being pushed, so that a GET waits for them
//! instead of crossing the link.

use std::collections::BTreeMap;

use crate::address::Address;
use crate::passenger::{Outcome, Passenger};

/// Maximum number of promises of all passengers. With about 500 bytes each they take 4 MiB; with
/// the longest addresses, of which there are three copies, 50 MiB. Beyond it the promises of a page
/// are cancelled, and its objects cross the link as usual.
pub const MAX_PROMISES: usize = 8192;

/// Number of a page's stream at the air gateway.
pub type PageId = u64;

/// Promised objects and the requests that wait for them. A GET receives a `T`, the handle of the
/// object's bytes.
#[derive(Debug)]
pub struct PushCache<T> {
    entries: BTreeMap<(Passenger, Address), Entry<T>>,
    pages: BTreeMap<PageId, Page>,
    /// Bytes of used objects that were not reported yet, by page.
    newly_used: BTreeMap<PageId, u64>,
}

#[derive(Debug)]
struct Entry<T> {
    page: PageId,
    handle: T,
    bytes: u64,
    is_used: bool,
}

#[derive(Debug)]
struct Page {
    passenger: Passenger,
    site: String,
    /// Promised addresses. An entry may be gone already.
    open: Vec<Address>,
    not_predicted: u32,
    /// Outcome so far.
    outcome: Outcome,
    stats: PushStats,
}

/// Counts of promised objects by result. Each object counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Served to a request. At most this many round trips were saved.
    pub used: u32,
    /// Received at least in part, and never requested.
    pub unused: u32,
    /// Not received: the ground gateway declined it, or the page's stream broke off.
    pub declined: u32,
    /// Cancelled by the air gateway and never requested: it was in the cache already, or there was
    /// no room.
    pub cancelled: u32,
}

/// Reason why a promise ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The ground gateway sends no more of it.
    Declined,
    /// The air gateway has no room for it.
    Cancelled,
}

/// Result of an expired page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// Owner of the page.
    pub passenger: Passenger,
    /// Site of the page, as passed to [`PushCache::begin`].
    pub site: String,
    /// Result in bytes.
    pub outcome: Outcome,
    /// Result in objects.
    pub stats: PushStats,
    /// Requests of the page that were not promised, mostly by scripts.
    pub not_predicted: u32,
}

impl<T> Default for PushCache<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PushCache<T> {
    /// Creates an empty push cache.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), pages: BTreeMap::new(), newly_used: BTreeMap::new() }
    }

    /// Adds a page of `site` that is requested for `passenger`.
    pub fn begin(&mut self, page: PageId, passenger: Passenger, site: &str) {
        let (site, open, outcome) = (site.to_owned(), Vec::new(), Outcome::default());
        let stats = PushStats::default();
        let begun = Page { passenger, site, open, not_predicted: 0, outcome, stats };
        self.pages.insert(page, begun);
    }

    /// Adds a promised object of `page`. Returns `false` if it should be cancelled: there are too
    /// many promises, or this passenger has a promise of the same object that is not `spent`.
    pub fn promise(
        &mut self,
        page: PageId,
        address: Address,
        handle: T,
        spent: impl FnOnce(&T) -> bool,
    ) -> bool {
        let Some(passenger) = self.pages.get(&page).map(|known| known.passenger) else {
            return false;
        };
        let key = (passenger, address);
        let is_wanted = match self.entries.get(&key) {
            Some(earlier) => spent(&earlier.handle),
            None => self.entries.len() < MAX_PROMISES,
        };
        if is_wanted {
            self.close(&key, None);
        }
        if let Some(known) = self.pages.get_mut(&page) {
            if !is_wanted {
                known.stats.cancelled += 1;
                return false;
            }
            known.open.push(key.1.clone());
        }
        self.entries.insert(key, Entry { page, handle, bytes: 0, is_used: false });
        true
    }

    /// Object that was promised to `passenger` at `address`.
    pub fn find(&self, passenger: Passenger, address: &Address) -> Option<&T> {
        Some(&self.entries.get(&(passenger, address.clone()))?.handle)
    }

    /// Marks an object as used by a GET.
    pub fn used(&mut self, passenger: Passenger, address: &Address) {
        let Some(entry) = self.entries.get_mut(&(passenger, address.clone())) else { return };
        if !std::mem::replace(&mut entry.is_used, true) {
            add(&mut self.newly_used, entry.page, entry.bytes);
        }
    }

    /// Bytes used since the last call, for each page with such bytes.
    pub fn take_used(&mut self) -> BTreeMap<PageId, u64> {
        std::mem::take(&mut self.newly_used)
    }

    /// Counts a GET that was not promised for the page that it belongs to: this passenger's newest
    /// page at `site`.
    pub fn not_predicted(&mut self, passenger: Passenger, site: &str) {
        let of_site = |page: &&mut Page| page.passenger == passenger && page.site == site;
        if let Some(page) = self.pages.values_mut().rev().find(of_site) {
            page.not_predicted = page.not_predicted.saturating_add(1);
        }
    }

    /// Counts bytes of the page itself, or of an object of it that was requested across the link.
    pub fn page_bytes(&mut self, page: PageId, bytes: u64) {
        if let Some(page) = self.pages.get_mut(&page) {
            page.outcome.page_bytes = page.outcome.page_bytes.saturating_add(bytes);
        }
    }

    /// Counts bytes of a promised object.
    pub fn object_bytes(&mut self, page: PageId, address: &Address, bytes: u64) {
        let Some(known) = self.pages.get(&page) else { return };
        if let Some(entry) = self.entries.get_mut(&(known.passenger, address.clone()))
            && entry.page == page
        {
            entry.bytes = entry.bytes.saturating_add(bytes);
            if entry.is_used {
                add(&mut self.newly_used, page, bytes);
            }
        }
    }

    /// Counts bytes of a cancelled object that were in flight.
    pub fn late_bytes(&mut self, page: PageId, bytes: u64) {
        if let Some(Page { outcome, .. }) = self.pages.get_mut(&page) {
            outcome.pushed_bytes = outcome.pushed_bytes.saturating_add(bytes);
            outcome.wasted_bytes = outcome.wasted_bytes.saturating_add(bytes);
        }
    }

    /// Ends a promise early, and returns the handle for which a GET may wait. Received bytes still
    /// count.
    pub fn withdraw(&mut self, page: PageId, address: &Address, why: Withdrawal) -> Option<T> {
        let key = (self.pages.get(&page)?.passenger, address.clone());
        if self.entries.get(&key)?.page != page {
            return None;
        }
        self.close(&key, Some(why))
    }

    /// Removes the page and its promises some time after its stream has ended, and returns the
    /// result.
    pub fn expire(&mut self, id: PageId) -> Option<Expired> {
        let page = self.pages.get_mut(&id)?;
        let (passenger, open) = (page.passenger, std::mem::take(&mut page.open));
        for address in open {
            let key = (passenger, address);
            // The object may have been withdrawn, and promised again for another page.
            if self.entries.get(&key).is_some_and(|entry| entry.page == id) {
                self.close(&key, None);
            }
        }
        self.newly_used.remove(&id);
        let page = self.pages.remove(&id)?;
        let Page { passenger, site, not_predicted, outcome, stats, .. } = page;
        Some(Expired { passenger, site, outcome, stats, not_predicted })
    }

    /// Removes an entry, because it was withdrawn or its page expired, and adds its result to the
    /// page's.
    fn close(&mut self, key: &(Passenger, Address), withdrawn: Option<Withdrawal>) -> Option<T> {
        let entry = self.entries.remove(key)?;
        if let Some(Page { outcome, stats, .. }) = self.pages.get_mut(&entry.page) {
            outcome.pushed_bytes += entry.bytes;
            if entry.is_used {
                outcome.page_bytes += entry.bytes;
            } else {
                outcome.wasted_bytes += entry.bytes;
            }
            let fate = match withdrawn {
                _ if entry.is_used => &mut stats.used,
                Some(Withdrawal::Cancelled) => &mut stats.cancelled,
                Some(Withdrawal::Declined) if entry.bytes == 0 => &mut stats.declined,
                _ => &mut stats.unused,
            };
            *fate += 1;
        }
        Some(entry.handle)
    }

    /// Objects of `passenger` of which something has arrived.
    pub fn received_by(&self, passenger: Passenger) -> impl Iterator<Item = (&Address, &T)> {
        let of_passenger = self.entries.iter().filter(move |((whose, _), _)| *whose == passenger);
        let come = of_passenger.filter(|(_, entry)| entry.bytes > 0);
        come.map(|((_, address), entry)| (address, &entry.handle))
    }

    /// Number of promises.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no promises.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn add(used: &mut BTreeMap<PageId, u64>, page: PageId, bytes: u64) {
    if bytes > 0 {
        let sum = used.entry(page).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const A: Passenger = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const B: Passenger = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 8));

    fn url(path: &str) -> Address {
        Address::parse(&format!("http://site.test/{path}")).unwrap()
    }

    #[test]
    fn promises_belong_to_one_passenger() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        let mut promise = |page, path, handle| promised.promise(page, url(path), handle, |_| false);
        assert!(promise(1, "a.css", "a"));
        assert!(!promise(1, "a.css", "again"), "one promise is enough");
        assert!(!promise(2, "c.css", "of no page"));
        assert_eq!(promised.find(A, &url("a.css")), Some(&"a"));
        assert_eq!(promised.find(B, &url("a.css")), None);
        assert_eq!(promised.find(A, &url("b.css")), None);
    }

    #[test]
    fn unrequested_objects_are_wasted() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        for path in ["a", "b", "c", "d"] {
            assert!(promised.promise(1, url(path), path, |_| false));
            promised.object_bytes(1, &url(path), 1000);
        }
        promised.page_bytes(1, 500);
        promised.used(A, &url("a"));
        assert_eq!(promised.take_used(), [(1, 1000)].into());
        promised.used(A, &url("a"));
        promised.used(A, &url("b"));
        promised.object_bytes(1, &url("b"), 0);
        promised.used(B, &url("c"));
        assert_eq!(promised.take_used(), [(1, 1000)].into(), "each once");
        assert!(promised.take_used().is_empty());
        promised.not_predicted(A, "site.test");
        promised.not_predicted(A, "other.test");
        let held: Vec<_> = promised.received_by(A).map(|(_, handle)| *handle).collect();
        assert_eq!(held, ["a", "b", "c", "d"]);
        assert_eq!(promised.received_by(B).count(), 0);
        assert_eq!(promised.withdraw(1, &url("d"), Withdrawal::Declined), Some("d"));
        // An object that never arrives, one without room, and one that is cached already.
        for (path, why) in [("e", Withdrawal::Declined), ("f", Withdrawal::Cancelled)] {
            assert!(promised.promise(1, url(path), path, |_| false));
            assert_eq!(promised.withdraw(1, &url(path), why), Some(path));
        }
        assert!(!promised.promise(1, url("a"), "again", |_| false));
        promised.late_bytes(1, 70);
        let lapsed = promised.expire(1).unwrap();
        assert_eq!(promised.expire(1), None);
        // Bytes received before and after a cancellation are wasted.
        let outcome = Outcome { page_bytes: 2500, pushed_bytes: 4070, wasted_bytes: 2070 };
        assert_eq!(lapsed.outcome, outcome);
        assert_eq!(lapsed.stats, PushStats { used: 2, unused: 2, declined: 1, cancelled: 2 });
        assert_eq!(lapsed.not_predicted, 1);
        assert_eq!((lapsed.passenger, &lapsed.site[..]), (A, "site.test"));
        assert!(promised.is_empty() && promised.find(A, &url("a")).is_none());
    }

    #[test]
    fn bytes_of_a_used_object_are_used() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        for path in ["a", "b"] {
            assert!(promised.promise(1, url(path), path, |_| false));
        }
        promised.used(A, &url("a"));
        assert!(promised.take_used().is_empty());
        for path in ["a", "b"] {
            promised.object_bytes(1, &url(path), 70);
        }
        assert_eq!(promised.take_used(), [(1, 70)].into());
    }

    #[test]
    fn a_withdrawn_object_can_be_promised_again() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        promised.begin(2, A, "site.test");
        assert!(promised.promise(1, url("a"), 1, |_| false));
        assert!(!promised.promise(2, url("a"), 2, |_| false));
        let mut withdraw = |page| promised.withdraw(page, &url("a"), Withdrawal::Declined);
        assert_eq!(withdraw(2), None, "it is the first page's");
        assert_eq!(withdraw(1), Some(1));
        assert!(promised.promise(2, url("a"), 2, |_| false));
        let lapsed = promised.expire(1).unwrap();
        assert_eq!(lapsed.stats, PushStats { declined: 1, ..PushStats::default() });
        assert_eq!(promised.len(), 1);
    }

    #[test]
    fn a_spent_object_can_be_promised_again() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        promised.begin(2, A, "site.test");
        assert!(promised.promise(1, url("a"), 1, |_| false));
        promised.object_bytes(1, &url("a"), 10);
        promised.used(A, &url("a"));
        assert!(promised.promise(2, url("a"), 2, |first| *first == 1));
        promised.object_bytes(1, &url("a"), 5);
        promised.object_bytes(2, &url("a"), 20);
        let outcomes = [1, 2].map(|page| promised.expire(page).unwrap().outcome);
        let used = Outcome { page_bytes: 10, pushed_bytes: 10, wasted_bytes: 0 };
        let wasted = Outcome { page_bytes: 0, pushed_bytes: 20, wasted_bytes: 20 };
        assert_eq!(outcomes, [used, wasted]);
    }

    #[test]
    fn promises_are_bounded() {
        let mut promised = PushCache::new();
        promised.begin(1, A, "site.test");
        let mut promise = |n: usize| promised.promise(1, url(&n.to_string()), (), |()| false);
        let taken = (0..MAX_PROMISES + 9).filter(|n| promise(*n)).count();
        assert_eq!((taken, promised.len()), (MAX_PROMISES, MAX_PROMISES));
    }
}
