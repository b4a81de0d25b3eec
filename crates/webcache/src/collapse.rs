//! One fetch for all who ask for the same at the same time: who leads, and who follows.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cache::{Ask, Cache, PATIENCE, Served};
use crate::fetch::{Direct, Fetch, Known};
use crate::flight::{Held, Lead, Progress, Role};
use crate::head::Head;
use crate::policy::{Use, is_anothers_guess, usable};
use crate::status::{Forwarded, Member, Outcome};
use crate::store::Entry;

impl Cache {
    /// Joins the fetch under way, or begins it; `None` where what is stored has to be looked at again.
    pub(crate) async fn share(&self, fetch: Fetch, ask: Ask<'_>, why: Forwarded) -> Option<Served> {
        match self.0.flights.join(&fetch.key, || self.next_flight()) {
            Role::Leads(lead) => Some(self.lead(fetch, Some(lead), ask, why).await),
            Role::Follows(progress) => match self.follow(progress, ask, why).await {
                Some(served) => Some(served),
                None => Some(self.lead(fetch, None, ask, why).await),
            },
        }
    }

    /// Fetches, for all who wait for it too if `lead` is there.
    pub(crate) async fn lead(
        &self,
        fetch: Fetch,
        lead: Option<Lead>,
        ask: Ask<'_>,
        why: Forwarded,
    ) -> Served {
        let served = match fetch.begin(lead).await {
            Direct::Passing(answer) => return self.passed(answer, why),
            Direct::Failed(failure) => {
                return Served { response: Err(failure), outcome: Outcome::Failed };
            }
            Direct::Flowing(flowing, _hold) => {
                let (outcome, member) = if flowing.pushed {
                    (Outcome::Pushed, Member::pushed())
                } else {
                    (Outcome::Miss(why), Member { stored: true, ..Member::forwarded(why) })
                };
                self.give_flowing(&flowing, ask, outcome, member)
            }
            Direct::Stored(entry, held) => {
                let (outcome, member) = of_held(held, why);
                self.give(&entry, ask, outcome, member).await
            }
            // Asked for as the client did, this time.
            Direct::TooLarge => None,
        };
        match served {
            Some(served) => served,
            None => self.pass(ask, why).await,
        }
    }

    /// Follows another client's fetch, if its answer suits this request too.
    async fn follow(
        &self,
        mut progress: watch::Receiver<Progress>,
        ask: Ask<'_>,
        why: Forwarded,
    ) -> Option<Served> {
        let waited = matches!(*progress.borrow(), Progress::Waiting);
        let known = |progress: &Progress| !matches!(progress, Progress::Waiting);
        let now = timeout(PATIENCE, progress.wait_for(known)).await.ok()?.ok()?.clone();
        let headers = ask.request.headers();
        match now {
            Progress::Flowing(flowing) => {
                let fits = self.fits(&flowing.head, headers, waited);
                fits.then(|| self.give_collapsed(&flowing, ask, why)).flatten()
            }
            Progress::Stored(entry, held)
                if self.fits(&entry.head(), headers, waited)
                    && self.may_hold(&entry.head(), headers, held) =>
            {
                let (outcome, member) = of_held(held, why);
                self.give(&entry, ask, outcome, Member { collapsed: true, ..member }).await
            }
            Progress::Failed(failure) => {
                Some(Served { response: Err(failure), outcome: Outcome::Failed })
            }
            _ => None,
        }
    }

    /// Returns `true` if an answer that has just arrived suits a request with these fields. One
    /// that was `waited` for does, even if it must be confirmed each time (RFC 9111 §4).
    pub(crate) fn fits(&self, head: &Head, request: &HeaderMap, waited: bool) -> bool {
        let usable = || usable(head, request, &self.0.rules, self.now());
        head.selection.fits(request)
            && !is_anothers_guess(head, request, &self.0.rules)
            && (waited || usable() == Use::Fresh)
    }

    /// Returns `true` if a stored answer may stand in for a failure for a request with these fields
    /// too: the first client may have allowed more.
    fn may_hold(&self, head: &Head, request: &HeaderMap, held: Held) -> bool {
        let allowed = usable(head, request, &self.0.rules, self.now());
        match (held, allowed) {
            (Held::Error(_), Use::Validate { if_error, .. }) => if_error,
            (Held::Offline, Use::Validate { if_offline, .. }) => if_offline,
            _ => true,
        }
    }

    /// Asks anew for `entry` behind an answer that has been given.
    pub(crate) fn refresh(&self, ask: Ask<'_>, entry: &Arc<Entry>) {
        let Ok(permit) = self.0.refreshes.clone().try_acquire_owned() else { return };
        let Role::Leads(lead) = self.0.flights.join(ask.key, || self.next_flight()) else { return };
        let known = Known { entry: entry.clone(), if_error: true, if_offline: true };
        let fetch = Fetch { known: Some(known), wanted: true, ..Fetch::new(self, ask) };
        tokio::spawn(async move {
            let _permit = permit;
            // For nobody: an answer that cannot be stored ends here.
            drop(fetch.begin(Some(lead)).await);
        });
    }
}

/// Outcome and log member for a stored answer that is used after the origin was asked.
fn of_held(held: Held, why: Forwarded) -> (Outcome, Member) {
    let forwarded = |status| Member { forwarded_status: status, ..Member::forwarded(why) };
    match held {
        Held::Confirmed => (Outcome::Validated, forwarded(Some(http::StatusCode::NOT_MODIFIED))),
        Held::Error(Some(status)) => (Outcome::StoodIn, forwarded(Some(status))),
        // RFC 9211 §2.1: what is used because the origin is not available is a hit.
        Held::Error(None) => {
            (Outcome::StoodIn, Member { detail: Some("no-answer"), ..Member::hit() })
        }
        Held::Offline => (Outcome::StoodIn, Member { detail: Some("offline"), ..Member::hit() }),
    }
}
