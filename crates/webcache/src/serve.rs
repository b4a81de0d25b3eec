//! Lookup: decides how a GET or HEAD is answered.

use std::sync::Arc;

use http::header::{AUTHORIZATION, RANGE};
use http::{Method, Request};

use crate::cache::{Cache, ClientRequest, Served};
use crate::directives::Directives;
use crate::fetch::{Fetch, Revalidation};
use crate::flight::Progress;
use crate::key::Key;
use crate::origin::Origin;
use crate::policy::{Use, usable};
use crate::range::RangeRequest;
use crate::respond::gateway_timeout;
use crate::status::{Forwarded, Member, Outcome};
use crate::store::Entry;
use crate::validate;

/// Largest start of a range for which the cache fetches the whole object, bytes. A range that
/// starts later is forwarded as it is, because all bytes before it would have to arrive first.
pub const MAX_RANGE_START: u64 = 1 << 20;

/// Maximum number of lookups for one request, if entries vanish between lookup and use.
const MAX_LOOKUPS: usize = 3;

impl Cache {
    /// Answers `request` from the store or from `origin`. The request is a GET or HEAD of `key`
    /// without a body.
    pub async fn serve(
        &self,
        key: &Key,
        request: &Request<()>,
        origin: &Arc<dyn Origin>,
    ) -> Served {
        let client = ClientRequest { key, request, origin };
        let headers = request.headers();
        let directives = Directives::of_request(headers);
        if directives.no_store
            || headers.contains_key(AUTHORIZATION)
            || validate::is_for_the_origin(headers)
        {
            return self.forward(client, Forwarded::Request).await;
        }
        for _ in 0..MAX_LOOKUPS {
            let served = match self.0.store.find(key, headers) {
                Some(entry) => self.serve_stored(client, entry, &directives).await,
                None if directives.only_if_cached => Some(gateway_timeout()),
                None => {
                    let has_variant = self.0.store.contains(key);
                    let why = if has_variant { Forwarded::VaryMiss } else { Forwarded::UriMiss };
                    self.fetch(client, None, why).await
                }
            };
            if let Some(served) = served {
                return served;
            }
        }
        if directives.only_if_cached {
            return gateway_timeout();
        }
        self.forward(client, Forwarded::Bypass).await
    }

    /// Answers with `entry`. Returns `None` if it vanished meanwhile or cannot be read now.
    async fn serve_stored(
        &self,
        client: ClientRequest<'_>,
        entry: Arc<Entry>,
        directives: &Directives,
    ) -> Option<Served> {
        let (head, now) = (entry.head(), self.now());
        match usable(&head, client.request.headers(), &self.0.rules, now) {
            Use::Fresh => self.respond_stored(&entry, client, Outcome::Hit, Member::hit()).await,
            Use::MaxStale => {
                self.respond_stored(&entry, client, Outcome::StaleHit, Member::hit()).await
            }
            Use::StaleWhileRevalidate => {
                self.refresh(client, &entry);
                self.respond_stored(&entry, client, Outcome::StaleHit, Member::hit()).await
            }
            Use::Validate { .. } if directives.only_if_cached => Some(gateway_timeout()),
            Use::Validate { if_error, if_offline } => {
                let fresh = head.remaining(&self.0.rules, now) > 0 && !head.directives().no_cache;
                let why = if fresh { Forwarded::Request } else { Forwarded::Stale };
                self.fetch(client, Some(Revalidation { entry, if_error, if_offline }), why).await
            }
        }
    }

    /// Requests a missing response from the origin, or validates a stored one. Collapses the request
    /// with others for the same key if it can. Returns `None` if the caller has to look up again.
    async fn fetch(
        &self,
        client: ClientRequest<'_>,
        revalidation: Option<Revalidation>,
        why: Forwarded,
    ) -> Option<Served> {
        let (headers, now) = (client.request.headers(), self.now());
        let is_head = *client.request.method() == Method::HEAD;
        let is_range = headers.contains_key(RANGE);
        // A validator lets the origin answer 304 instead of sending the whole object again.
        let has_validator = revalidation
            .as_ref()
            .is_some_and(|stored| validate::has_validator(&stored.entry.head().headers));
        let starts_early = match RangeRequest::of(headers) {
            _ if has_validator => true,
            RangeRequest::From(first, _) => first <= MAX_RANGE_START,
            RangeRequest::Last(_) => false,
            RangeRequest::Whole => !is_range,
        };
        let too_large = is_range && !has_validator && self.0.large.contains(client.key, now);
        let as_it_is = is_head || !starts_early || too_large;
        let alone = as_it_is
            // The origin may answer 304, which no other client can use.
            || (revalidation.is_none() && validate::is_conditional(headers))
            || self.0.unstorable.contains(client.key, now);
        if !alone {
            let fetch = Fetch { revalidation, is_range, ..Fetch::new(self, client) };
            return self.share(fetch, client, why).await;
        }
        // Another client's fetch may already be bringing the object.
        if revalidation.is_none()
            && let Some(Progress::Receiving(transfer)) = self.0.flights.progress(client.key)
            && self.fits(&transfer.head, headers, false)
            && let Some(served) = self.respond_collapsed(&transfer, client, why)
        {
            return Some(served);
        }
        if as_it_is {
            return Some(self.forward_or_stale(client, revalidation, why).await);
        }
        // The response may be stored, but no other client waits for it.
        let fetch = Fetch { revalidation, is_range, ..Fetch::new(self, client) };
        Some(self.lead(fetch, None, client, why).await)
    }
}
