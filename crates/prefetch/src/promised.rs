//! On board: what is on its way without having been asked for, so that a GET waits for it instead of
//! crossing the link.

use std::collections::BTreeMap;

use crate::account::Outcome;
use crate::address::Address;

/// Promises that are held at once, over all passengers: at about 500 bytes each, 4 MiB. Beyond it a
/// page's promises are cancelled, and its objects cross the link as ever.
pub const MAX_PROMISES: usize = 8192;

/// A page's stream, as the air gateway numbers them.
pub type PageId = u64;

/// What waits for whom. `T` is what a GET is given: how the object's bytes are got at.
#[derive(Debug)]
pub struct Promised<T> {
    entries: BTreeMap<(u32, Address), Entry<T>>,
    pages: BTreeMap<PageId, Page>,
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
    passenger: u32,
    site: String,
    /// Objects whose entries are still there.
    open: Vec<Address>,
    page_bytes: u64,
    not_foreseen: u32,
}

/// What came of a page's promises, once they have lapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lapsed {
    /// Whose page it was.
    pub passenger: u32,
    /// Its site, as [`Promised::begin`] was told.
    pub site: String,
    /// In bytes.
    pub outcome: Outcome,
    /// Objects that were pushed and asked for: as many round trips were saved at most.
    pub used: u32,
    /// Objects that were pushed and never asked for.
    pub unused: u32,
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
        Self { entries: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// A page of `site` is being asked for, for `passenger`.
    pub fn begin(&mut self, page: PageId, passenger: u32, site: &str) {
        let (site, open) = (site.to_owned(), Vec::new());
        let begun = Page { passenger, site, open, page_bytes: 0, not_foreseen: 0 };
        self.pages.insert(page, begun);
    }

    /// The ground promises an object of `page`. `false` where it should be cancelled: this passenger
    /// has a promise of it already, or there are too many.
    pub fn promise(&mut self, page: PageId, address: Address, handle: T) -> bool {
        let Some(known) = self.pages.get_mut(&page) else { return false };
        let key = (known.passenger, address);
        if self.entries.len() >= MAX_PROMISES || self.entries.contains_key(&key) {
            return false;
        }
        known.open.push(key.1.clone());
        self.entries.insert(key, Entry { page, handle, bytes: 0, is_used: false });
        true
    }

    /// A passenger's GET: what was promised, and is used from now on.
    pub fn ask(&mut self, passenger: u32, address: &Address) -> Option<&T> {
        let entry = self.entries.get_mut(&(passenger, address.clone()))?;
        entry.is_used = true;
        Some(&entry.handle)
    }

    /// A passenger's GET, with a `Referer` perhaps, was of no use here: it is counted for the page that
    /// it belongs to, the newest of that passenger's at `site`.
    pub fn not_foreseen(&mut self, passenger: u32, site: &str) {
        let of_site = |page: &&mut Page| page.passenger == passenger && page.site == site;
        if let Some(page) = self.pages.values_mut().rev().find(of_site) {
            page.not_foreseen = page.not_foreseen.saturating_add(1);
        }
    }

    /// So many bytes of the page itself have come, or of an object of it that was asked for across the
    /// link.
    pub fn page_bytes(&mut self, page: PageId, bytes: u64) {
        if let Some(page) = self.pages.get_mut(&page) {
            page.page_bytes = page.page_bytes.saturating_add(bytes);
        }
    }

    /// So many bytes of a promised object have come.
    pub fn object_bytes(&mut self, page: PageId, address: &Address, bytes: u64) {
        let Some(known) = self.pages.get(&page) else { return };
        if let Some(entry) = self.entries.get_mut(&(known.passenger, address.clone()))
            && entry.page == page
        {
            entry.bytes = entry.bytes.saturating_add(bytes);
        }
    }

    /// The object will not come after all; gives back what a waiting GET holds.
    pub fn withdraw(&mut self, page: PageId, address: &Address) -> Option<T> {
        let key = (self.pages.get(&page)?.passenger, address.clone());
        if self.entries.get(&key)?.page != page {
            return None;
        }
        self.entries.remove(&key).map(|entry| entry.handle)
    }

    /// The page's time is over, some while after its stream: forgets what was promised, and says what
    /// came of it.
    pub fn lapse(&mut self, id: PageId) -> Option<Lapsed> {
        let page = self.pages.remove(&id)?;
        let (mut outcome, mut used, mut unused) = (Outcome::default(), 0, 0);
        outcome.page_bytes = page.page_bytes;
        for address in page.open {
            let key = (page.passenger, address);
            if self.entries.get(&key).is_none_or(|entry| entry.page != id) {
                continue; // withdrawn
            }
            let Some(entry) = self.entries.remove(&key) else { continue };
            outcome.pushed_bytes += entry.bytes;
            if entry.is_used {
                used += 1;
                outcome.page_bytes += entry.bytes;
            } else {
                unused += u32::from(entry.bytes > 0);
                outcome.wasted_bytes += entry.bytes;
            }
        }
        let Page { passenger, site, not_foreseen, .. } = page;
        Some(Lapsed { passenger, site, outcome, used, unused, not_foreseen })
    }

    /// What has come of `passenger`'s promises so far: there is no need to send it again.
    pub fn held_by(&self, passenger: u32) -> impl Iterator<Item = &Address> {
        let of_passenger = self.entries.iter().filter(move |((whose, _), _)| *whose == passenger);
        of_passenger.filter(|(_, entry)| entry.bytes > 0).map(|((_, address), _)| address)
    }

    /// Promises that are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(path: &str) -> Address {
        Address::parse(&format!("http://site.test/{path}")).unwrap()
    }

    #[test]
    fn a_get_finds_what_was_promised_to_its_passenger_alone() {
        let mut promised = Promised::new();
        promised.begin(1, 7, "site.test");
        assert!(promised.promise(1, url("a.css"), "a"));
        assert_eq!(promised.ask(7, &url("a.css")), Some(&"a"));
        assert_eq!(promised.ask(8, &url("a.css")), None);
        assert_eq!(promised.ask(7, &url("b.css")), None);
        assert!(!promised.promise(1, url("a.css"), "again"), "one promise is enough");
        assert!(!promised.promise(2, url("c.css"), "of no page"));
    }

    #[test]
    fn what_nobody_asked_for_is_wasted() {
        let mut promised = Promised::new();
        promised.begin(1, 7, "site.test");
        for path in ["a", "b", "c", "d"] {
            assert!(promised.promise(1, url(path), path));
            promised.object_bytes(1, &url(path), 1000);
        }
        promised.page_bytes(1, 500);
        promised.ask(7, &url("a"));
        promised.ask(7, &url("b"));
        promised.not_foreseen(7, "site.test");
        promised.not_foreseen(7, "other.test");
        assert_eq!(promised.withdraw(1, &url("d")), Some("d"));
        let held: Vec<&Address> = promised.held_by(7).collect();
        assert_eq!(held, [&url("a"), &url("b"), &url("c")]);
        assert_eq!(promised.held_by(8).count(), 0);
        let lapsed = promised.lapse(1).unwrap();
        assert_eq!(promised.lapse(1), None);
        let outcome = Outcome { page_bytes: 2500, pushed_bytes: 3000, wasted_bytes: 1000 };
        assert_eq!(lapsed.outcome, outcome);
        assert_eq!((lapsed.used, lapsed.unused, lapsed.not_foreseen), (2, 1, 1));
        assert_eq!((lapsed.passenger, &lapsed.site[..]), (7, "site.test"));
        assert!(promised.is_empty() && promised.ask(7, &url("a")).is_none());
    }

    #[test]
    fn a_later_page_may_promise_what_an_earlier_one_has_lost() {
        let mut promised = Promised::new();
        promised.begin(1, 7, "site.test");
        promised.begin(2, 7, "site.test");
        assert!(promised.promise(1, url("a"), 1));
        assert!(!promised.promise(2, url("a"), 2));
        assert_eq!(promised.withdraw(2, &url("a")), None, "it is the first page's");
        assert_eq!(promised.withdraw(1, &url("a")), Some(1));
        assert!(promised.promise(2, url("a"), 2));
        let lapsed = promised.lapse(1).unwrap();
        assert_eq!((lapsed.used, lapsed.unused, promised.len()), (0, 0, 1));
    }

    #[test]
    fn promises_are_bounded() {
        let mut promised = Promised::new();
        promised.begin(1, 7, "site.test");
        let taken =
            (0..MAX_PROMISES + 9).filter(|n| promised.promise(1, url(&n.to_string()), ())).count();
        assert_eq!((taken, promised.len()), (MAX_PROMISES, MAX_PROMISES));
    }
}
