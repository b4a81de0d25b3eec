//! Pages and downloads under way, and whose they are: so many, and so many of one aircraft (ground) or
//! passenger (air).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_prefetch::promised::network;

use crate::refusals::Holding;

/// Holder of a place.
pub trait Holder: Ord + Clone + Display {
    /// The network that it may choose its name from, where it may: all of one have a bound too.
    fn network(&self) -> Option<u64>;
}

impl Holder for IpAddr {
    fn network(&self) -> Option<u64> {
        network(*self)
    }
}

/// The name of an aircraft.
impl Holder for String {
    fn network(&self) -> Option<u64> {
        None
    }
}

/// Number of places.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Over all.
    pub all: usize,
    /// Maximum for one holder.
    pub each: usize,
}

/// The places. A page is let in only while it would have a place as a download too, for it may turn out to be
/// one: so a download always has one. While there are few downloads, pages have all of theirs; passengers who have
/// as many downloads as they may, together, leave others no page.
pub struct Places<Whose: Holder> {
    pages: Share,
    downloads: Share,
    taken: Mutex<Taken<Whose>>,
}

/// A page's place, or a download's; free again when dropped.
pub struct Place<Whose: Holder> {
    places: Arc<Places<Whose>>,
    whose: Whose,
    is_download: bool,
}

/// Places of each holder; no entry for a holder without any. There are no more entries than places.
struct Taken<Whose> {
    all: Held,
    each: BTreeMap<Whose, Held>,
    networks: BTreeMap<u64, Held>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    pages: usize,
    downloads: usize,
}

impl<Whose: Holder> Places<Whose> {
    /// So many for pages, and so many more for downloads.
    pub fn new(pages: Share, downloads: Share) -> Arc<Self> {
        let (all, each, networks) = Default::default();
        Arc::new(Self { pages, downloads, taken: Mutex::new(Taken { all, each, networks }) })
    }

    /// A place for a page of `whose`; `None` where all are taken, or all of its own, or of its network.
    pub fn take(self: &Arc<Self>, whose: &Whose) -> Option<Place<Whose>> {
        let mut taken = self.taken();
        let own = taken.each.get(whose).copied().unwrap_or_default();
        let of_network = whose.network().and_then(|it| taken.networks.get(&it).copied());
        let (pages, downloads) = (self.pages, self.downloads);
        let of_all = part_of_network;
        let is_free = taken.all.admits(pages.all, downloads.all)
            && own.admits(pages.each, downloads.each)
            && of_network.is_none_or(|it| it.admits(of_all(pages.all), of_all(downloads.all)));
        is_free.then(|| {
            taken.change(whose, |held| held.pages += 1);
            Place { places: self.clone(), whose: whose.clone(), is_download: false }
        })
    }

    /// Places held, of pages and downloads together, for the log.
    pub fn holding(&self, whose: &Whose) -> Holding {
        let taken = self.taken();
        let largest = taken.each.iter().max_by_key(|(_, held)| held.sum());
        Holding {
            newcomer: whose.to_string(),
            holds: taken.each.get(whose).map_or(0, |held| held.sum()),
            held: taken.all.sum(),
            most: self.pages.all + self.downloads.all,
            largest: largest.map(|(whose, held)| (whose.to_string(), held.sum())),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken<Whose>> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Part of `all` for one network: a quarter is left to the others, whatever addresses somebody in
/// it makes up.
fn part_of_network(all: usize) -> usize {
    all - all / 4
}

impl Held {
    fn sum(self) -> usize {
        self.pages + self.downloads
    }

    fn admits(self, pages: usize, downloads: usize) -> bool {
        self.pages < pages && self.pages + self.downloads < pages + downloads
    }
}

impl<Whose: Holder> Taken<Whose> {
    fn change(&mut self, whose: &Whose, change: impl Fn(&mut Held)) {
        change(&mut self.all);
        change_of(&mut self.each, whose, &change);
        if let Some(network) = whose.network() {
            change_of(&mut self.networks, &network, &change);
        }
    }
}

fn change_of<K: Ord + Clone>(all: &mut BTreeMap<K, Held>, of: &K, change: impl Fn(&mut Held)) {
    let held = all.entry(of.clone()).or_default();
    change(held);
    if *held == Held::default() {
        all.remove(of);
    }
}

impl<Whose: Holder> Place<Whose> {
    /// It turns out to be a download's, and leaves pages theirs.
    pub fn leave_to_pages(&mut self) {
        if !std::mem::replace(&mut self.is_download, true) {
            self.places.taken().change(&self.whose, |held| {
                held.pages -= 1;
                held.downloads += 1;
            });
        }
    }
}

impl<Whose: Holder> Drop for Place<Whose> {
    fn drop(&mut self) {
        let is_download = self.is_download;
        self.places.taken().change(&self.whose, |held| {
            let of_kind = if is_download { &mut held.downloads } else { &mut held.pages };
            *of_kind -= 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn places<Whose: Holder>(all: usize, each: usize) -> Arc<Places<Whose>> {
        Places::new(Share { all, each }, Share { all, each })
    }

    #[test]
    fn nobody_takes_all_places() {
        let places = places(3, 2);
        let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
        let mut ours: Vec<_> = [(); 3].map(|()| places.take(&a)).into_iter().flatten().collect();
        assert_eq!(ours.len(), 2, "a third is not for the first aircraft");
        let theirs = places.take(&b);
        assert!(theirs.is_some() && places.take(&c).is_none(), "all are taken");
        ours.pop();
        assert!(places.take(&b).is_some());
        drop((ours, theirs));
        let taken = places.taken();
        assert!(taken.each.is_empty() && taken.all == Held::default());
    }

    #[test]
    fn downloads_leave_pages_their_places_and_have_a_bound_of_their_own() {
        let places = places(8, 2);
        let ours = "a".to_owned();
        let mut downloads = Vec::new();
        while let Some(mut place) = places.take(&ours) {
            place.leave_to_pages();
            place.leave_to_pages();
            downloads.push(place);
        }
        // Two of them were let in as pages.
        assert_eq!(downloads.len(), 4);
        downloads.pop();
        assert!(places.take(&ours).is_some());
        let held = Held { pages: 0, downloads: 3 };
        let taken = places.taken();
        assert_eq!((taken.all, taken.each[&ours]), (held, held));
        drop(taken);
        drop(downloads);
        assert!(places.taken().each.is_empty());
    }

    #[test]
    fn addresses_that_one_device_makes_up_leave_places_to_others() {
        let places = places(16, 4);
        let address =
            |network, host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host));
        let take = |network| -> Vec<_> {
            (0..100).filter_map(|host| places.take(&address(network, host))).collect()
        };
        let mut ours = take(1);
        assert_eq!(ours.len(), 12);
        ours.iter_mut().for_each(Place::leave_to_pages);
        ours.extend(take(1));
        assert_eq!(ours.len(), 24);
        let others = take(2);
        assert_eq!(others.len(), 4, "what the first left");
        drop((ours, others));
        assert!(places.taken().networks.is_empty());
    }
}
