//! Plan of the ground gateway: what is fetched for a page, in what order, and within which budgets.
//!
//! The planner receives the findings of scanners and the response headers of origins. It decides
//! what to fetch and when to stop. It does not fetch anything itself.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::MAX_OBJECTS;
use crate::address::{Address, Origin};
use crate::digest::CacheDigest;
use crate::pushable::{self, Withheld};
use crate::referrer::ReferrerPolicy;
use crate::scan::{Kind, ObjectRef, Urgency};
pub use rules::{NameList, NameListError, Rules};

/// Maximum depth of modules that import modules. 1 is a module that the page names. Each level
/// costs a browser a round trip.
pub const MAX_MODULE_DEPTH: u8 = 12;

/// Bounds of the fetches for one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Number of objects, at most [`MAX_OBJECTS`].
    pub objects: usize,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Bytes of one object.
    pub object_bytes: u64,
    /// Depth of style sheets that import style sheets. 1 is a sheet that the page names.
    pub depth: u8,
    /// Time from the page's request until the last fetch may begin.
    pub time: Duration,
    /// Simultaneous fetches from one origin. Browsers open six connections.
    pub per_origin: usize,
    /// Simultaneous fetches in total.
    pub concurrency: usize,
}

impl Default for Limits {
    /// 512 objects of 2 MiB each and 8 MiB in total, three levels, 20 s, six fetches per origin and
    /// 24 in total.
    fn default() -> Self {
        Self {
            objects: crate::MAX_OBJECTS,
            bytes: 8 << 20,
            object_bytes: 2 << 20,
            depth: 3,
            time: Duration::from_secs(20),
            per_origin: 6,
            concurrency: 24,
        }
    }
}

/// An object that is to be fetched, and that has been or will be promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Number of the object on the page's stream, from 1.
    pub id: u16,
    /// Address of the object.
    pub address: Address,
    /// Urgency of the object.
    pub urgency: Urgency,
}

/// Reason why nothing is fetched for a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    /// The object is known already.
    #[error("it is known already")]
    Duplicate,
    /// The reference is not a valid URL, is on another host over TLS, or is another origin's font
    /// or module. Clients fetch these themselves.
    #[error("clients fetch it themselves")]
    Foreign,
    /// The operator's rules exclude it.
    #[error("the operator's rules exclude it")]
    Denied,
    /// The air gateway has it in its cache.
    #[error("the air gateway has it")]
    Cached,
    /// A budget of the page is used up.
    #[error("the page's budget is used up")]
    OverBudget,
}

/// Reason why an object that was being fetched is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// Its response may not be pushed.
    #[error(transparent)]
    Withheld(#[from] Withheld),
    /// It exceeds the object limit or the rest of the page's budget.
    #[error("it is too large")]
    TooLarge,
    /// The air gateway does not want it, or it is finished.
    #[error("nobody wants it any more")]
    Unwanted,
}

/// Plan for one page.
#[derive(Debug)]
pub struct Planner {
    page: Address,
    base: Address,
    /// Referrer policy of the page's response.
    referrer: Option<ReferrerPolicy>,
    /// `true` if requests for the page's objects will carry a cookie that the page sets.
    sets_cookie: bool,
    limits: Limits,
    digest: CacheDigest,
    bytes_left: u64,
    objects: Vec<Object>,
    /// References that are one of `objects`, or that the air gateway has: at most twice as many as
    /// objects.
    known: BTreeSet<Address>,
    /// Sorted by urgency, then by the order in which they were found.
    waiting: BTreeSet<(Urgency, u16)>,
    fetching: BTreeMap<Origin, usize>,
    in_flight: usize,
    skipped: BTreeMap<SkipReason, u32>,
}

#[derive(Debug)]
struct Object {
    address: Address,
    kind: Kind,
    urgency: Urgency,
    depth: u8,
    /// Style sheet or module with the reference to this object.
    inside: Option<u16>,
    /// Referrer policy given with the reference, if any.
    referrer: Option<ReferrerPolicy>,
    /// Referrer policy of the object's own response, for references in it.
    within: Option<ReferrerPolicy>,
    bytes: u64,
    /// Announced bytes of the response that have not arrived. They are reserved.
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
    /// Creates a plan for `page`. `digest` describes the air gateway's cache, and `allowance_bytes`
    /// is its push budget for this page.
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

    /// Applies the page's `<base>`.
    pub fn set_base(&mut self, url: &str) {
        if let Ok(base) = self.page.join(url) {
            self.base = base;
        }
    }

    /// Handles the header of the page's response.
    pub fn page_answered(&mut self, headers: &HeaderMap) {
        self.referrer = ReferrerPolicy::of(headers);
        self.sets_cookie = pushable::sets_cookie(headers);
    }

    /// Notes that a script in the page sets a cookie.
    pub fn page_sets_cookie(&mut self) {
        self.sets_cookie = true;
    }

    /// `Referer` of the request for an object. As in browsers it is the document that contains the
    /// reference, the page or a style sheet, as far as the policy allows.
    pub fn referer(&self, id: u16) -> Option<String> {
        let object = self.object(id)?;
        let (document, document_policy) = match object.inside {
            None => (&self.page, self.referrer),
            Some(sheet) => {
                let sheet = self.object(sheet)?;
                (&sheet.address, sheet.within)
            }
        };
        let policy = object.referrer.or(document_policy).unwrap_or_default();
        policy.referer(document, &object.address)
    }

    /// Handles a reference in the page, or in the object `inside`. The returned object must be
    /// promised before the bytes that contain the reference are sent.
    pub fn found(
        &mut self,
        found: &ObjectRef,
        inside: Option<u16>,
        rules: &Rules,
    ) -> Result<Promise, SkipReason> {
        let promise = self.admit(found, inside, rules);
        if let Err(why) = &promise {
            *self.skipped.entry(*why).or_default() += 1;
        }
        promise
    }

    fn admit(
        &mut self,
        found: &ObjectRef,
        inside: Option<u16>,
        rules: &Rules,
    ) -> Result<Promise, SkipReason> {
        // The cheapest check comes first, because a page may name a million objects.
        let most = self.limits.objects.min(MAX_OBJECTS);
        if self.objects.len() >= most || self.known.len() > 2 * most || self.bytes_left == 0 {
            return Err(SkipReason::OverBudget);
        }
        let outer = inside.map(|id| self.object(id).ok_or(SkipReason::Foreign)).transpose()?;
        let base = outer.map_or(&self.base, |object| &object.address);
        let depth = outer.map_or(1, |object| object.depth + 1);
        let address = base.join(&found.url).map_err(|_| SkipReason::Foreign)?;
        // A browser sends the page's origin when it requests another origin's font or module
        // (CORS), and the response may depend on it.
        let is_cors = matches!(found.kind, Kind::Font | Kind::Module)
            && address.origin() != self.page.origin();
        if is_cors || !rules.may_be_served(&address, &self.page) {
            return Err(SkipReason::Foreign);
        }
        if self.known.contains(&address) {
            return Err(SkipReason::Duplicate);
        }
        if !rules.permit(address.host()) {
            return Err(SkipReason::Denied);
        }
        let most_deep = match found.kind {
            Kind::Module => MAX_MODULE_DEPTH,
            _ => self.limits.depth,
        };
        if depth > most_deep {
            return Err(SkipReason::OverBudget);
        }
        self.known.insert(address.clone());
        if self.digest.has(&address) {
            return Err(SkipReason::Cached);
        }
        let ObjectRef { kind, urgency, referrer, .. } = *found;
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
        // Fits into `u16`: at most MAX_OBJECTS.
        let id = self.objects.len() as u16;
        self.waiting.insert((urgency, id));
        Ok(Promise { id, address, urgency })
    }

    /// Next object to fetch, `elapsed` after the page was requested. Returns `None` if nothing can
    /// be fetched until something changes.
    pub fn next_fetch(&mut self, elapsed: Duration) -> Option<Promise> {
        if elapsed >= self.limits.time || self.bytes_left == 0 {
            return None;
        }
        if self.in_flight >= self.limits.concurrency {
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

    /// Returns `true` if no fetch is in progress, and none can begin as things stand.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    /// Handles the header of an object's response. Returns the object's new urgency, or the reason
    /// to drop it.
    pub fn answered(
        &mut self,
        id: u16,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Urgency, DropReason> {
        let (most, left) = (self.limits.object_bytes, self.bytes_left);
        let shows_cookie = self.sets_cookie;
        let object = self.going(id).ok_or(DropReason::Unwanted)?;
        if object.reserved > 0 {
            return Err(DropReason::Unwanted); // one response each
        }
        object.within = ReferrerPolicy::of(headers);
        if let Some(urgency) = pushable::may_push(status, headers)? {
            object.urgency = urgency;
        }
        if shows_cookie && !pushable::is_for_any_cookie(headers) {
            return Err(Withheld::Cookie.into());
        }
        let length = pushable::content_length(headers).unwrap_or(0);
        if length > most.min(left) {
            return Err(DropReason::TooLarge);
        }
        // Once the header is sent, aborting the object would break a response that a passenger is
        // receiving.
        object.reserved = length;
        let urgency = object.urgency;
        self.bytes_left -= length;
        Ok(urgency)
    }

    /// Counts bytes received of the object.
    pub fn received(&mut self, id: u16, bytes: u64) -> Result<(), DropReason> {
        let (most, left) = (self.limits.object_bytes, self.bytes_left);
        let object = self.going(id).ok_or(DropReason::Unwanted)?;
        let expected = bytes.min(object.reserved);
        if bytes - expected > left || object.bytes + bytes > most {
            return Err(DropReason::TooLarge);
        }
        object.bytes += bytes;
        object.reserved -= expected;
        self.bytes_left -= bytes - expected;
        Ok(())
    }

    /// Ends the object, complete or not, and frees its slot.
    pub fn finish(&mut self, id: u16) {
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

    /// Returns `true` if the object has ended.
    pub fn is_over(&self, id: u16) -> bool {
        self.object(id).is_none_or(|object| object.state == Fetch::Over)
    }

    /// Promised objects that will not be fetched, `elapsed` after the page was requested, because
    /// the budgets are used up.
    pub fn abandoned(&mut self, elapsed: Duration) -> Vec<u16> {
        if elapsed < self.limits.time && self.bytes_left > 0 {
            return Vec::new();
        }
        let left: Vec<u16> = self.waiting.iter().map(|(_, id)| *id).collect();
        left.iter().for_each(|id| self.finish(*id));
        left
    }

    /// Use of the object.
    pub fn kind(&self, id: u16) -> Option<Kind> {
        Some(self.object(id)?.kind)
    }

    /// Address of the object.
    pub fn address(&self, id: u16) -> Option<&Address> {
        Some(&self.object(id)?.address)
    }

    /// Number of skipped references, by reason.
    pub fn skipped(&self) -> &BTreeMap<SkipReason, u32> {
        &self.skipped
    }

    /// Number of promised objects.
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
