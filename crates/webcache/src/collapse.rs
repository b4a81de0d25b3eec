//! Collapsed forwarding: one client fetches, and others with the same request wait for its response.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cache::{Cache, ClientRequest, MAX_COLLAPSE_WAIT, Served};
use crate::fetch::{Fetch, FetchResult, Revalidation};
use crate::flight::{Leader, Progress, ReuseReason, Role};
use crate::head::Head;
use crate::policy::{Use, needs_explicit_freshness, usable};
use crate::status::{Forwarded, Member, Outcome};
use crate::store::Entry;

impl Cache {
    /// Joins the fetch in progress, or starts one.
    pub(crate) async fn share(
        &self,
        fetch: Fetch,
        client: ClientRequest<'_>,
        why: Forwarded,
    ) -> Option<Served> {
        match self.0.flights.join(&fetch.key, || self.next_flight()) {
            Role::Leader(leader) => Some(self.lead(fetch, Some(leader), client, why).await),
            Role::Follower(progress) => match self.follow(progress, client, why).await {
                Some(served) => Some(served),
                None => Some(self.lead(fetch, None, client, why).await),
            },
        }
    }

    /// Fetches, also for the clients that wait for `leader`, if any.
    pub(crate) async fn lead(
        &self,
        fetch: Fetch,
        leader: Option<Leader>,
        client: ClientRequest<'_>,
        why: Forwarded,
    ) -> Served {
        let served = match fetch.start(leader).await {
            FetchResult::Unshared(answer) => return self.respond_forwarded(answer, why),
            FetchResult::Failed(error) => {
                return Served { response: Err(error), outcome: Outcome::Failed };
            }
            FetchResult::Receiving(transfer, _reader) => {
                let (outcome, member) = if transfer.pushed {
                    (Outcome::Pushed, Member::pushed())
                } else {
                    (Outcome::Miss(why), Member { stored: true, ..Member::forwarded(why) })
                };
                self.respond_transfer(&transfer, client, outcome, member)
            }
            FetchResult::Stored(entry, reason) => {
                let (outcome, member) = reuse_status(reason, why);
                self.respond_stored(&entry, client, outcome, member).await
            }
            // The range is forwarded as the client sent it.
            FetchResult::TooLarge => None,
        };
        match served {
            Some(served) => served,
            None => self.forward(client, why).await,
        }
    }

    /// Waits for another client's fetch. Returns `None` if its response does not fit this request.
    async fn follow(
        &self,
        mut progress: watch::Receiver<Progress>,
        client: ClientRequest<'_>,
        why: Forwarded,
    ) -> Option<Served> {
        let waited = matches!(*progress.borrow(), Progress::Waiting);
        let is_decided = |progress: &Progress| !matches!(progress, Progress::Waiting);
        let decided = timeout(MAX_COLLAPSE_WAIT, progress.wait_for(is_decided)).await.ok()?;
        let decided = decided.ok()?.clone();
        let headers = client.request.headers();
        match decided {
            Progress::Receiving(transfer) => {
                let fits = self.fits(&transfer.head, headers, waited);
                fits.then(|| self.respond_collapsed(&transfer, client, why)).flatten()
            }
            Progress::Stored(entry, reason)
                if self.fits(&entry.head(), headers, waited)
                    && self.may_reuse(&entry.head(), headers, reason) =>
            {
                let (outcome, member) = reuse_status(reason, why);
                let member = Member { collapsed: true, ..member };
                self.respond_stored(&entry, client, outcome, member).await
            }
            Progress::Failed(error) => {
                Some(Served { response: Err(error), outcome: Outcome::Failed })
            }
            _ => None,
        }
    }

    /// Returns `true` if a response that has just arrived fits a request with these fields. If the
    /// client `waited` for it, the response fits even if it must be validated before each reuse
    /// (RFC 9111 §4).
    pub(crate) fn fits(&self, head: &Head, request: &HeaderMap, waited: bool) -> bool {
        let usable = || usable(head, request, &self.0.rules, self.now());
        head.selection.fits(request)
            && !needs_explicit_freshness(head, request, &self.0.rules)
            && (waited || usable() == Use::Fresh)
    }

    /// Returns `true` if the stored response may also be used for a request with these fields. The
    /// leading client may have allowed more.
    fn may_reuse(&self, head: &Head, request: &HeaderMap, reason: ReuseReason) -> bool {
        let allowed = usable(head, request, &self.0.rules, self.now());
        match (reason, allowed) {
            (ReuseReason::Error(_), Use::Validate { if_error, .. }) => if_error,
            (ReuseReason::Offline, Use::Validate { if_offline, .. }) => if_offline,
            _ => true,
        }
    }

    /// Revalidates `entry` in the background after it was used stale.
    pub(crate) fn refresh(&self, client: ClientRequest<'_>, entry: &Arc<Entry>) {
        let Ok(permit) = self.0.refreshes.clone().try_acquire_owned() else { return };
        let joined = self.0.flights.join(client.key, || self.next_flight());
        let Role::Leader(leader) = joined else { return };
        let stored = Revalidation { entry: entry.clone(), if_error: true, if_offline: true };
        let fetch =
            Fetch { revalidation: Some(stored), is_background: true, ..Fetch::new(self, client) };
        tokio::spawn(async move {
            let _permit = permit;
            // A response that cannot be stored is dropped.
            drop(fetch.start(Some(leader)).await);
        });
    }
}

/// Outcome and Cache-Status member of a stored response that is used after a request to the origin.
fn reuse_status(reason: ReuseReason, why: Forwarded) -> (Outcome, Member) {
    let forwarded = |status| Member { forwarded_status: status, ..Member::forwarded(why) };
    let hit = |detail| Member { detail: Some(detail), ..Member::hit() };
    match reason {
        ReuseReason::Validated => {
            (Outcome::Validated, forwarded(Some(http::StatusCode::NOT_MODIFIED)))
        }
        ReuseReason::Error(Some(status)) => (Outcome::StaleIfError, forwarded(Some(status))),
        // RFC 9211 §2.1: a response that is used because the origin is unavailable is a hit.
        ReuseReason::Error(None) => (Outcome::StaleIfError, hit("no-answer")),
        ReuseReason::Offline => (Outcome::StaleIfError, hit("offline")),
    }
}
