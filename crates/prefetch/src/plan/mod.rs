//! At the ground: what is fetched for a page, in what order, and within which budgets.
//!
//! The planner is told what scanners find and what origins answer, and says what to fetch and
//! whether to go on. It never fetches a thing itself.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::MAX_OBJECTS;
use crate::address::{Address, Origin};
use crate::digest::CacheDigest;
use crate::judge::{self, Withheld};
use crate::referrer::ReferrerPolicy;
use crate::scan::{Found, Kind, Urgency};
pub use rules::{NameList, NameListError, Rules};

/// Modules that import modules: 1 is what the page names. Each level costs a browser a round trip.
pub const MAX_MODULE_DEPTH: u8 = 12;

/// The bounds of what is fetched for one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Objects, at most [`MAX_OBJECTS`].
    pub objects: usize,
    /// All bytes of all of them.
    pub bytes: u64,
    /// The bytes of one of them.
    pub object_bytes: u64,
    /// Style sheets that name style sheets: 1 is what the page names, 3 what those name's names name.
    pub depth: u8,
    /// From the page's request on; no fetch begins after it.
    pub time: Duration,
    /// Fetches at once from one origin. Browsers open six connections.
    pub per_origin: usize,
    /// Fetches at once in all.
    pub at_once: usize,
}

impl Default for Limits {
    /// 512 objects of 2 MiB each and 8 MiB in all, three levels, 20 s, six from one origin and 24 in all.
    fn default() -> Self {
        Self {
            objects: crate::MAX_OBJECTS,
            bytes: 8 << 20,
            object_bytes: 2 << 20,
            depth: 3,
            time: Duration::from_secs(20),
            per_origin: 6,
            at_once: 24,
        }
    }
}

/// An object that is to be fetched, and has been or will be promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Its number on the page's stream, from 1.
    pub id: u16,
    /// Address of the object.
    pub address: Address,
    /// Urgency of the object.
    pub urgency: Urgency,
}

/// Reason for which nothing is fetched for a find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Skipped {
    /// It is found already.
    #[error("it is known already")]
    Known,
    /// It is no URL that may be asked for, or of another host over TLS, or another origin's font or module,
    /// which cabins ask for themselves.
    #[error("it is not for us to fetch")]
    Foreign,
    /// The operator's list says so.
    #[error("the operator's rules leave it out")]
    Ruled,
    /// The cabin has it.
    #[error("the cabin has it")]
    Cached,
    /// A budget of the page is used up.
    #[error("the page's budget is used up")]
    Spent,
}

/// Reason for which an object that was being fetched is not sent after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// Its answer may not go unasked.
    #[error(transparent)]
    Withheld(#[from] Withheld),
    /// It is larger than an object may be, or than what is left of the page's bytes.
    #[error("it is too large")]
    Large,
    /// The cabin does not want it, or it is over.
    #[error("nobody wants it any more")]
    Unwanted,
}

/// Plan for one page.
#[derive(Debug)]
pub struct Planner {
    page: Address,
    base: Address,
    /// Referrer policy of the page's answer.
    referrer: Option<ReferrerPolicy>,
    /// True if requests for the page's objects will show a cookie that it sets.
    sets_cookie: bool,
    limits: Limits,
    digest: CacheDigest,
    bytes_left: u64,
    objects: Vec<Object>,
    /// Finds that are one of `objects`, or that the cabin has: at most twice as many as objects.
    known: BTreeSet<Address>,
    /// By urgency, and then as they were found.
    waiting: BTreeSet<(Urgency, u16)>,
    fetching: BTreeMap<Origin, usize>,
    in_flight: usize,
    skipped: BTreeMap<Skipped, u32>,
}

#[derive(Debug)]
struct Object {
    address: Address,
    kind: Kind,
    urgency: Urgency,
    depth: u8,
    /// The style sheet that it was found in.
    inside: Option<u16>,
    /// Referrer policy given with the find, if any.
    referrer: Option<ReferrerPolicy>,
    /// Referrer policy of its own answer, for finds in it.
    within: Option<ReferrerPolicy>,
    bytes: u64,
    /// Bytes that its answer has announced and not used yet: no other object may use them.
    reserved: u64,
    state: Fetch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    Waiting,
    Going,
    Over,
}

impl Planner {
    /// Plans for `page`. `digest` is what the cabin has, and `allowance_bytes` what may be pushed as far
    /// as the cabin's accounts go.
    pub fn new(page: Address, digest: CacheDigest, allowance_bytes: u64, limits: Limits) -> Self {
        Self {
            base: page.clone(),
            known: BTreeSet::from([page.clone()]),
            page,
            referrer: None,
            sets_cookie: false,
            bytes_left: limits.bytes.min(allowance_bytes),
            limits,
            digest,
            objects: Vec::new(),
            waiting: BTreeSet::new(),
            fetching: BTreeMap::new(),
            in_flight: 0,
            skipped: BTreeMap::new(),
        }
    }

    /// The page's own `<base>`.
    pub fn set_base(&mut self, url: &str) {
        if let Ok(base) = self.page.join(url) {
            self.base = base;
        }
    }

    /// The page's answer has these fields.
    pub fn page_answered(&mut self, headers: &HeaderMap) {
        self.referrer = ReferrerPolicy::of(headers);
        self.sets_cookie = judge::sets_cookie(headers);
    }

    /// A script in the page sets a cookie.
    pub fn page_sets_cookie(&mut self) {
        self.sets_cookie = true;
    }

    /// `Referer` of the request for an object. As in browsers it names the document that contains
    /// it, the page or a style sheet, as far as the policy allows.
    pub fn referer(&self, id: u16) -> Option<String> {
        let object = self.object(id)?;
        let (document, said) = match object.inside {
            None => (&self.page, self.referrer),
            Some(sheet) => {
                let sheet = self.object(sheet)?;
                (&sheet.address, sheet.within)
            }
        };
        let policy = object.referrer.or(said).unwrap_or_default();
        policy.referer(document, &object.address)
    }

    /// A scanner has found `found` in the page, or in the object `inside`. What is returned is to be
    /// promised to the cabin before the bytes in which it was found.
    pub fn found(
        &mut self,
        found: &Found,
        inside: Option<u16>,
        rules: &Rules,
    ) -> Result<Promise, Skipped> {
        let promise = self.admit(found, inside, rules);
        if let Err(why) = &promise {
            *self.skipped.entry(*why).or_default() += 1;
        }
        promise
    }

    fn admit(
        &mut self,
        found: &Found,
        inside: Option<u16>,
        rules: &Rules,
    ) -> Result<Promise, Skipped> {
        // First what is cheapest: a page may name a million objects.
        let most = self.limits.objects.min(MAX_OBJECTS);
        if self.objects.len() >= most || self.known.len() > 2 * most || self.bytes_left == 0 {
            return Err(Skipped::Spent);
        }
        let outer = inside.map(|id| self.object(id).ok_or(Skipped::Foreign)).transpose()?;
        let base = outer.map_or(&self.base, |object| &object.address);
        let depth = outer.map_or(1, |object| object.depth + 1);
        let address = base.join(&found.url).map_err(|_| Skipped::Foreign)?;
        // A browser names the page's origin when it asks for another origin's font or module (CORS), and the
        // answer may depend on that.
        let is_cors = matches!(found.kind, Kind::Font | Kind::Module)
            && address.origin() != self.page.origin();
        if is_cors || !rules.may_be_served(&address, &self.page) {
            return Err(Skipped::Foreign);
        }
        if self.known.contains(&address) {
            return Err(Skipped::Known);
        }
        if !rules.permit(address.host()) {
            return Err(Skipped::Ruled);
        }
        let most_deep = match found.kind {
            Kind::Module => MAX_MODULE_DEPTH,
            _ => self.limits.depth,
        };
        if depth > most_deep {
            return Err(Skipped::Spent);
        }
        self.known.insert(address.clone());
        if self.digest.has(&address) {
            return Err(Skipped::Cached);
        }
        let Found { kind, urgency, referrer, .. } = *found;
        let state = Fetch::Waiting;
        self.objects.push(Object {
            address: address.clone(),
            kind,
            urgency,
            depth,
            inside,
            referrer,
            within: None,
            bytes: 0,
            reserved: 0,
            state,
        });
        // Fits: at most MAX_OBJECTS.
        let id = self.objects.len() as u16;
        self.waiting.insert((urgency, id));
        Ok(Promise { id, address, urgency })
    }

    /// Next object to fetch, `elapsed` after the page was requested; `None` until something
    /// changes.
    pub fn next_fetch(&mut self, elapsed: Duration) -> Option<Promise> {
        if elapsed >= self.limits.time || self.bytes_left == 0 {
            return None;
        }
        if self.in_flight >= self.limits.at_once {
            return None;
        }
        let free = |id: u16| {
            let origin = self.object(id).map(|object| object.address.origin());
            origin.is_some_and(|origin| {
                self.fetching.get(&origin).is_none_or(|going| *going < self.limits.per_origin)
            })
        };
        let next = *self.waiting.iter().find(|(_, id)| free(*id))?;
        self.waiting.remove(&next);
        self.in_flight += 1;
        let object = self.objects.get_mut(usize::from(next.1) - 1)?;
        object.state = Fetch::Going;
        *self.fetching.entry(object.address.origin()).or_default() += 1;
        Some(Promise { id: next.1, address: object.address.clone(), urgency: object.urgency })
    }

    /// Returns `true` if nothing is being fetched and nothing waits to be, as things stand.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    /// An origin has begun to answer: the urgency that the object has from now on, or why it stays.
    pub fn answered(
        &mut self,
        id: u16,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Urgency, Dropped> {
        let (most, left) = (self.limits.object_bytes, self.bytes_left);
        let shows_cookie = self.sets_cookie;
        let object = self.going(id).ok_or(Dropped::Unwanted)?;
        if object.reserved > 0 {
            return Err(Dropped::Unwanted); // one answer each
        }
        object.within = ReferrerPolicy::of(headers);
        if let Some(urgency) = judge::may_push(status, headers)? {
            object.urgency = urgency;
        }
        if shows_cookie && !judge::is_for_any_cookie(headers) {
            return Err(Withheld::Cookie.into());
        }
        let length = judge::content_length(headers).unwrap_or(0);
        if length > most.min(left) {
            return Err(Dropped::Large);
        }
        // Once its head is on its way, breaking it off would break what a passenger is being given.
        object.reserved = length;
        let urgency = object.urgency;
        self.bytes_left -= length;
        Ok(urgency)
    }

    /// So many more bytes of the object have come.
    pub fn came(&mut self, id: u16, bytes: u64) -> Result<(), Dropped> {
        let (most, left) = (self.limits.object_bytes, self.bytes_left);
        let object = self.going(id).ok_or(Dropped::Unwanted)?;
        let expected = bytes.min(object.reserved);
        if bytes - expected > left || object.bytes + bytes > most {
            return Err(Dropped::Large);
        }
        object.bytes += bytes;
        object.reserved -= expected;
        self.bytes_left -= bytes - expected;
        Ok(())
    }

    /// The object has come, or will not: its place is free.
    pub fn over(&mut self, id: u16) {
        let Some(object) = self.objects.get_mut(usize::from(id).wrapping_sub(1)) else { return };
        self.bytes_left += std::mem::take(&mut object.reserved);
        match std::mem::replace(&mut object.state, Fetch::Over) {
            Fetch::Waiting => {
                self.waiting.remove(&(object.urgency, id));
            }
            Fetch::Going => {
                self.in_flight -= 1;
                if let Some(going) = self.fetching.get_mut(&object.address.origin()) {
                    *going -= 1;
                }
            }
            Fetch::Over => {}
        }
    }

    /// Returns `true` if the object has arrived, or will not.
    pub fn is_over(&self, id: u16) -> bool {
        self.object(id).is_none_or(|object| object.state == Fetch::Over)
    }

    /// Promised objects that will not be fetched any more, `elapsed` after the page was requested,
    /// because the budgets are used up.
    pub fn given_up(&mut self, elapsed: Duration) -> Vec<u16> {
        if elapsed < self.limits.time && self.bytes_left > 0 {
            return Vec::new();
        }
        let left: Vec<u16> = self.waiting.iter().map(|(_, id)| *id).collect();
        left.iter().for_each(|id| self.over(*id));
        left
    }

    /// Purpose of the object.
    pub fn kind(&self, id: u16) -> Option<Kind> {
        Some(self.object(id)?.kind)
    }

    /// Address of the object.
    pub fn address(&self, id: u16) -> Option<&Address> {
        Some(&self.object(id)?.address)
    }

    /// Finds that were skipped, by reason.
    pub fn skipped(&self) -> &BTreeMap<Skipped, u32> {
        &self.skipped
    }

    /// Objects that were promised.
    pub fn promised(&self) -> usize {
        self.objects.len()
    }

    fn object(&self, id: u16) -> Option<&Object> {
        self.objects.get(usize::from(id).wrapping_sub(1))
    }

    fn going(&mut self, id: u16) -> Option<&mut Object> {
        let object = self.objects.get_mut(usize::from(id).wrapping_sub(1))?;
        (object.state == Fetch::Going).then_some(object)
    }
}

#[cfg(test)]
mod tests;
