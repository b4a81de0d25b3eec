//! On board: what is on its way without having been asked for, so that a GET waits for it instead of
//! crossing the link.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::account::Outcome;
use crate::address::Address;

/// Promises that are held at once, over all passengers: at about 500 bytes each, 4 MiB; with the longest
/// addresses, of which there are three copies, 50 MiB. Beyond it a page's promises are cancelled, and its
/// objects cross the link as ever.
pub const MAX_PROMISES: usize = 8192;

/// A page's stream, as the air gateway numbers them.
pub type PageId = u64;

/// Owner of a page: a passenger's address. Numbers that are used again, or by several, would give
/// one passenger what came for another.
pub type Passenger = IpAddr;

/// The network of IPv6 that a passenger may choose addresses from (RFC 4291 section 2.5.4): a /64, which is often
/// all of a cabin's.
pub fn network(passenger: Passenger) -> Option<u64> {
    match passenger.to_canonical() {
        IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
        IpAddr::V4(_) => None,
    }
}

/// Promised objects and their waiting requests. `T` is what a GET is given: access to the object's
/// bytes.
#[derive(Debug)]
pub struct Promised<T> {
    entries: BTreeMap<(Passenger, Address), Entry<T>>,
    pages: BTreeMap<PageId, Page>,
    /// Bytes of pages' objects that are in use, and that nobody was told of yet.
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
    /// Objects whose entries are still there.
    open: Vec<Address>,
    not_foreseen: u32,
    /// Outcome so far.
    outcome: Outcome,
    fates: Fates,
}

/// Fates of promised objects: each has one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// It was given to somebody who asked: as many round trips were saved at most.
    pub used: u32,
    /// It, or some of it, came, and nobody asked for it.
    pub unused: u32,
    /// Nothing of it came: the ground declined it, or the page's stream broke off.
    pub declined: u32,
    /// It was not wanted here: it was here already, or there was no room, and nobody had asked for it.
    pub cancelled: u32,
}

/// Reason for the end of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The ground sends no more of it.
    Declined,
    /// There is no room for it here.
    Cancelled,
}

/// Results of a page's promises, once they have lapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lapsed {
    /// Owner of the page.
    pub passenger: Passenger,
    /// Its site, as [`Promised::begin`] was told.
    pub site: String,
    /// In bytes.
    pub outcome: Outcome,
    /// In objects.
    pub fates: Fates,
    /// Requests for this page that nobody had promised: scripts' mostly.
    pub not_foreseen: u32,
}

impl<T> Default for Promised<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Promised<T> {
    /// Nothing is promised yet.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), pages: BTreeMap::new(), newly_used: BTreeMap::new() }
    }

    /// A page of `site` is being asked for, for `passenger`.
    pub fn begin(&mut self, page: PageId, passenger: Passenger, site: &str) {
        let (site, open, outcome) = (site.to_owned(), Vec::new(), Outcome::default());
        let fates = Fates::default();
        let begun = Page { passenger, site, open, not_foreseen: 0, outcome, fates };
        self.pages.insert(page, begun);
    }

    /// The ground promises an object of `page`. `false` where it should be cancelled: this passenger
    /// has a promise of it already that is not `spent`, or there are too many.
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
                known.fates.cancelled += 1;
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

    /// A GET was answered with it.
    pub fn used(&mut self, passenger: Passenger, address: &Address) {
        let Some(entry) = self.entries.get_mut(&(passenger, address.clone())) else { return };
        if !std::mem::replace(&mut entry.is_used, true) {
            add(&mut self.newly_used, entry.page, entry.bytes);
        }
    }

    /// Number of bytes of each page's objects that were used since the last call; pages without any
    /// are left out.
    pub fn take_used(&mut self) -> BTreeMap<PageId, u64> {
        std::mem::take(&mut self.newly_used)
    }

    /// A passenger's GET, with a `Referer` perhaps, was of no use here: it is counted for the page that
    /// it belongs to, the newest of that passenger's at `site`.
    pub fn not_foreseen(&mut self, passenger: Passenger, site: &str) {
        let of_site = |page: &&mut Page| page.passenger == passenger && page.site == site;
        if let Some(page) = self.pages.values_mut().rev().find(of_site) {
            page.not_foreseen = page.not_foreseen.saturating_add(1);
        }
    }

    /// So many bytes of the page itself have come, or of an object of it that was asked for across the
    /// link.
    pub fn page_bytes(&mut self, page: PageId, bytes: u64) {
        if let Some(page) = self.pages.get_mut(&page) {
            page.outcome.page_bytes = page.outcome.page_bytes.saturating_add(bytes);
        }
    }

    /// So many bytes of a promised object have come.
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

    /// So many bytes have come of an object that had been cancelled: they were on their way.
    pub fn late_bytes(&mut self, page: PageId, bytes: u64) {
        if let Some(Page { outcome, .. }) = self.pages.get_mut(&page) {
            outcome.pushed_bytes = outcome.pushed_bytes.saturating_add(bytes);
            outcome.wasted_bytes = outcome.wasted_bytes.saturating_add(bytes);
        }
    }

    /// The object, or the rest of it, will not come after all; gives back what a waiting GET holds. What
    /// has come of it counts.
    pub fn withdraw(&mut self, page: PageId, address: &Address, why: Withdrawal) -> Option<T> {
        let key = (self.pages.get(&page)?.passenger, address.clone());
        if self.entries.get(&key)?.page != page {
            return None;
        }
        self.close(&key, Some(why))
    }

    /// The page's time is over, some while after its stream: forgets what was promised, and says what
    /// came of it.
    pub fn lapse(&mut self, id: PageId) -> Option<Lapsed> {
        let page = self.pages.get_mut(&id)?;
        let (passenger, open) = (page.passenger, std::mem::take(&mut page.open));
        for address in open {
            let key = (passenger, address);
            // It may have been withdrawn, and promised again for another page.
            if self.entries.get(&key).is_some_and(|entry| entry.page == id) {
                self.close(&key, None);
            }
        }
        self.newly_used.remove(&id);
        let page = self.pages.remove(&id)?;
        let Page { passenger, site, not_foreseen, outcome, fates, .. } = page;
        Some(Lapsed { passenger, site, outcome, fates, not_foreseen })
    }

    /// Removes an entry, whose time is over unless it is withdrawn, and adds what came of it to its page.
    fn close(&mut self, key: &(Passenger, Address), withdrawn: Option<Withdrawal>) -> Option<T> {
        let entry = self.entries.remove(key)?;
        if let Some(Page { outcome, fates, .. }) = self.pages.get_mut(&entry.page) {
            outcome.pushed_bytes += entry.bytes;
            if entry.is_used {
                outcome.page_bytes += entry.bytes;
            } else {
                outcome.wasted_bytes += entry.bytes;
            }
            let fate = match withdrawn {
                _ if entry.is_used => &mut fates.used,
                Some(Withdrawal::Cancelled) => &mut fates.cancelled,
                Some(Withdrawal::Declined) if entry.bytes == 0 => &mut fates.declined,
                _ => &mut fates.unused,
            };
            *fate += 1;
        }
        Some(entry.handle)
    }

    /// Fates of `passenger`'s promises so far.
    pub fn held_by(&self, passenger: Passenger) -> impl Iterator<Item = (&Address, &T)> {
        let of_passenger = self.entries.iter().filter(move |((whose, _), _)| *whose == passenger);
        let come = of_passenger.filter(|(_, entry)| entry.bytes > 0);
        come.map(|((_, address), entry)| (address, &entry.handle))
    }

    /// Promises that are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there is none.
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
    use super::*;

    const A: Passenger = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const B: Passenger = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 8));

    fn url(path: &str) -> Address {
        Address::parse(&format!("http://site.test/{path}")).unwrap()
    }

    #[test]
    fn a_get_finds_what_was_promised_to_its_passenger_alone() {
        let mut promised = Promised::new();
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
    fn what_nobody_asked_for_is_wasted() {
        let mut promised = Promised::new();
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
        promised.not_foreseen(A, "site.test");
        promised.not_foreseen(A, "other.test");
        let held: Vec<_> = promised.held_by(A).map(|(_, handle)| *handle).collect();
        assert_eq!(held, ["a", "b", "c", "d"]);
        assert_eq!(promised.held_by(B).count(), 0);
        assert_eq!(promised.withdraw(1, &url("d"), Withdrawal::Declined), Some("d"));
        // One that never comes, one that there is no room for, and one that is here.
        for (path, why) in [("e", Withdrawal::Declined), ("f", Withdrawal::Cancelled)] {
            assert!(promised.promise(1, url(path), path, |_| false));
            assert_eq!(promised.withdraw(1, &url(path), why), Some(path));
        }
        assert!(!promised.promise(1, url("a"), "again", |_| false));
        promised.late_bytes(1, 70);
        let lapsed = promised.lapse(1).unwrap();
        assert_eq!(promised.lapse(1), None);
        // What came of an object before and after it was cancelled was in vain too.
        let outcome = Outcome { page_bytes: 2500, pushed_bytes: 4070, wasted_bytes: 2070 };
        assert_eq!(lapsed.outcome, outcome);
        assert_eq!(lapsed.fates, Fates { used: 2, unused: 2, declined: 1, cancelled: 2 });
        assert_eq!(lapsed.not_foreseen, 1);
        assert_eq!((lapsed.passenger, &lapsed.site[..]), (A, "site.test"));
        assert!(promised.is_empty() && promised.find(A, &url("a")).is_none());
    }

    #[test]
    fn what_comes_while_it_is_read_is_used() {
        let mut promised = Promised::new();
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
    fn a_later_page_may_promise_what_an_earlier_one_has_lost() {
        let mut promised = Promised::new();
        promised.begin(1, A, "site.test");
        promised.begin(2, A, "site.test");
        assert!(promised.promise(1, url("a"), 1, |_| false));
        assert!(!promised.promise(2, url("a"), 2, |_| false));
        let mut withdraw = |page| promised.withdraw(page, &url("a"), Withdrawal::Declined);
        assert_eq!(withdraw(2), None, "it is the first page's");
        assert_eq!(withdraw(1), Some(1));
        assert!(promised.promise(2, url("a"), 2, |_| false));
        let lapsed = promised.lapse(1).unwrap();
        assert_eq!(lapsed.fates, Fates { declined: 1, ..Fates::default() });
        assert_eq!(promised.len(), 1);
    }

    #[test]
    fn what_is_spent_may_be_promised_again_and_counts_for_its_own_page() {
        let mut promised = Promised::new();
        promised.begin(1, A, "site.test");
        promised.begin(2, A, "site.test");
        assert!(promised.promise(1, url("a"), 1, |_| false));
        promised.object_bytes(1, &url("a"), 10);
        promised.used(A, &url("a"));
        assert!(promised.promise(2, url("a"), 2, |first| *first == 1));
        promised.object_bytes(1, &url("a"), 5);
        promised.object_bytes(2, &url("a"), 20);
        let outcomes = [1, 2].map(|page| promised.lapse(page).unwrap().outcome);
        let used = Outcome { page_bytes: 10, pushed_bytes: 10, wasted_bytes: 0 };
        let wasted = Outcome { page_bytes: 0, pushed_bytes: 20, wasted_bytes: 20 };
        assert_eq!(outcomes, [used, wasted]);
    }

    #[test]
    fn promises_are_bounded() {
        let mut promised = Promised::new();
        promised.begin(1, A, "site.test");
        let mut promise = |n: usize| promised.promise(1, url(&n.to_string()), (), |()| false);
        let taken = (0..MAX_PROMISES + 9).filter(|n| promise(*n)).count();
        assert_eq!((taken, promised.len()), (MAX_PROMISES, MAX_PROMISES));
    }
}
