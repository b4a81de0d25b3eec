//! Objects that the ground sends unasked: promised, then pushed.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Response};

use crate::cache::Cache;
use crate::fill::SEGMENT_BYTES;
use crate::flight::{Flowing, Lead, Progress, Role};
use crate::give::content_length;
use crate::head::Moment;
use crate::key::Key;
use crate::origin::{Failure, STALLED};
use crate::policy;
use crate::pump::Pump;

/// Word that an object is on its way: until it comes, those who ask for it wait, each at most
/// [`PATIENCE`](crate::PATIENCE). Dropping it sends them to the origin.
pub struct Promise {
    cache: Cache,
    key: Key,
    request: HeaderMap,
    lead: Lead,
    made_at: Moment,
}

/// A promised object whose body is coming. Dropping it before [`Push::end`] breaks it off.
pub struct Push(Option<Pump>);

impl Cache {
    /// Announces the answer to a GET of `key` with the fields `request`; `None` where it is here, fresh,
    /// or somebody is fetching it.
    pub fn promise(&self, key: &Key, request: HeaderMap) -> Option<Promise> {
        if self.has(key, &request) {
            return None;
        }
        let Role::Leads(lead) = self.0.flights.join(key, || self.next_flight()) else {
            return None;
        };
        let made_at = (self.0.clock)();
        Some(Promise { cache: self.clone(), key: key.clone(), request, lead, made_at })
    }
}

impl Promise {
    /// The head has come; `None` where it may not be stored: then it is for nobody. Its Content-Length,
    /// if it has one, is held against the body.
    pub fn begin(self, response: Response<()>) -> Option<Push> {
        let shared = &self.cache.0;
        let now = (shared.clock)();
        let said = (response.status(), response.headers());
        let head = policy::storable(&self.key, &self.request, said, (self.made_at, now))?;
        let length = content_length(response.headers());
        let mut room = shared.store.room();
        let fits = length.is_none_or(|it| it <= shared.store.object_bytes());
        if !fits
            || !room.grow_to(&shared.store, length.unwrap_or(u64::MAX).min(SEGMENT_BYTES as u64))
        {
            return None;
        }
        let flowing = Flowing { head: head.into(), fill: Default::default(), length, pushed: true };
        self.lead.tell(Progress::Flowing(flowing.clone()));
        let Self { cache, key, request, lead, .. } = self;
        Some(Push(Some(Pump::new(cache, key, request, flowing, room, Some(lead)))))
    }
}

impl Push {
    /// More of the body.
    pub async fn push(&mut self, bytes: Bytes) {
        if let Some(pump) = &mut self.0 {
            pump.push(&bytes).await;
        }
    }

    /// That was all: it is stored; a large one a moment later, until when those who ask for it join it.
    pub fn end(mut self) {
        let Some(mut pump) = self.0.take() else { return };
        if pump.is_large() {
            tokio::spawn(async move { pump.end().await });
        } else {
            // What is not large is stored without waiting for anything.
            let stored = pump.end().now_or_never();
            debug_assert!(stored.is_some());
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if let Some(mut pump) = self.0.take() {
            pump.fail(Failure { offline: false, code: STALLED });
        }
    }
}
