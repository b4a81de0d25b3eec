//! One question to an origin, and what becomes of the answer: stored, passed on, or neither.

use std::future::pending;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::oneshot;

use crate::cache::{Ask, Cache, MOST_BEHIND_RANGE, REMEMBERED};
use crate::fill::{FillReader, SEGMENT_BYTES};
use crate::flight::{Flowing, Held, Lead, Progress};
use crate::give::content_length;
use crate::head::{Moment, is_for_one};
use crate::key::Key;
use crate::origin::{Answer, Confirming, Failure, ForOthers, Origin, STALLED, StandIn};
use crate::policy;
use crate::pump::Pump;
use crate::range::without_range;
use crate::store::Entry;
use crate::validate;

/// A question to be asked.
pub(crate) struct Fetch {
    pub cache: Cache,
    pub key: Key,
    pub request: Request<()>,
    pub origin: Arc<dyn Origin>,
    /// Stored answer.
    pub known: Option<Known>,
    /// `true` if the client wants a part, and all is fetched.
    pub ranged: bool,
    /// `true` if it continues when nobody waits for it.
    pub wanted: bool,
}

/// Stored answer that has to be confirmed.
#[derive(Clone)]
pub(crate) struct Known {
    pub entry: Arc<Entry>,
    /// `true` if it answers when the origin fails.
    pub if_error: bool,
    /// `true` if it answers when the ground cannot be reached.
    pub if_offline: bool,
}

impl Known {
    /// Returns `true` if it answers in place of `failure`.
    pub fn stands_in_for(&self, failure: &Failure) -> bool {
        if failure.offline { self.if_offline } else { self.if_error }
    }
}

/// Result for the client that caused the fetch.
pub(crate) enum Direct {
    Passing(Answer),
    /// With a reader that keeps it going until the one who asked has its own.
    Flowing(Flowing, FillReader),
    Stored(Arc<Entry>, Held),
    /// The object is larger than is fetched whole for a part of it.
    TooLarge,
    Failed(Failure),
}

impl Fetch {
    pub fn new(cache: &Cache, ask: Ask<'_>) -> Self {
        Self {
            cache: cache.clone(),
            key: ask.key.clone(),
            request: ask.request.clone(),
            origin: ask.origin.clone(),
            known: None,
            ranged: false,
            wanted: false,
        }
    }

    /// Asks, in a task of its own: the one who waits here may go, and others wait too.
    pub async fn begin(self, lead: Option<Lead>) -> Direct {
        let (told, direct) = oneshot::channel();
        // As long as this is here somebody waits.
        let _follow = lead.as_ref().map(Lead::follow);
        tokio::spawn(self.run(lead, told));
        // The task tells before it ends, unless the runtime ends first.
        direct.await.unwrap_or(Direct::Failed(Failure { offline: false, code: STALLED }))
    }

    async fn run(mut self, lead: Option<Lead>, mut told: oneshot::Sender<Direct>) {
        let wanted = self.wanted;
        let unwanted = async {
            told.closed().await;
            match &lead {
                _ if wanted => pending().await,
                Some(lead) => lead.unwanted().await,
                None => {}
            }
        };
        let others = lead.as_ref().map(Lead::others);
        let asking = async { self.ask(others).await };
        let asked = tokio::select! {
            biased;
            asked = asking => asked,
            () = unwanted => return,
        };
        match asked {
            Ok((answer, times)) => self.sort(answer, times, lead, told).await,
            Err(failure) => {
                let held = if failure.offline { Held::Offline } else { Held::Error(None) };
                let kept = self.known.filter(|known| known.stands_in_for(&failure));
                let (progress, direct) = match kept {
                    Some(Known { entry, .. }) => {
                        (Progress::Stored(entry.clone(), held), Direct::Stored(entry, held))
                    }
                    None => (Progress::Failed(failure.clone()), Direct::Failed(failure)),
                };
                tell(lead.as_ref(), progress);
                let _ = told.send(direct);
            }
        }
    }

    /// Sends the question; a second time where the first answer was 304 and confirms nothing.
    async fn ask(
        &mut self,
        others: Option<ForOthers>,
    ) -> Result<(Answer, (Moment, Moment)), Failure> {
        if let Some(others) = others {
            self.request.extensions_mut().insert(others);
        }
        let as_it_came = self.request.headers().clone();
        let headers = self.request.headers_mut();
        without_range(headers);
        let Some(known) = &self.known else { return self.send().await };
        let head = known.entry.head();
        validate::ask_whether(headers, &head);
        self.request.extensions_mut().insert(Confirming);
        let first = self.send().await?;
        let (answer, _) = &first;
        if answer.response.status() != StatusCode::NOT_MODIFIED {
            return Ok(first);
        }
        if !answer.trusted {
            // Whoever says so may be anybody: it confirms nothing, and the client has not asked whether
            // something holds that it does not know of.
            *self.request.headers_mut() = as_it_came;
            self.request.extensions_mut().remove::<Confirming>();
            return self.send().await;
        }
        if validate::confirms(answer.response.headers(), &head) {
            return Ok(first);
        }
        // It is about something that is not here.
        self.cache.0.store.supersede(&known.entry);
        self.known = None;
        validate::unconditional(self.request.headers_mut());
        self.send().await
    }

    async fn send(&self) -> Result<(Answer, (Moment, Moment)), Failure> {
        let clock = &self.cache.0.clock;
        let requested_at = clock();
        let mut request = self.request.clone();
        if self.known.as_ref().is_some_and(|known| known.if_offline) {
            request.extensions_mut().insert(StandIn);
        }
        let answer = self.origin.send(request).await?;
        Ok((answer, (requested_at, clock())))
    }

    /// Decides what becomes of `answer`.
    async fn sort(
        self,
        answer: Answer,
        times: (Moment, Moment),
        lead: Option<Lead>,
        told: oneshot::Sender<Direct>,
    ) {
        let store = &self.cache.0.store;
        let status = answer.response.status();
        if let Some((entry, held)) = self.kept(&answer, times) {
            tell(lead.as_ref(), Progress::Stored(entry.clone(), held));
            let _ = told.send(Direct::Stored(entry, held));
            return;
        }
        let length = content_length(answer.response.headers());
        if self.ranged && status == StatusCode::OK && length.is_none_or(|it| it > MOST_BEHIND_RANGE)
        {
            self.cache.0.large.note(&self.key, times.1, REMEMBERED);
            self.note_superseded(&answer);
            tell(lead.as_ref(), Progress::Alone);
            let _ = told.send(Direct::TooLarge);
            return;
        }
        let said = (status, answer.response.headers());
        let head = policy::storable(&self.key, self.request.headers(), said, times)
            .filter(|_| answer.trusted && *self.request.method() == Method::GET);
        let fits = length.is_none_or(|it| it <= store.object_bytes());
        if head.is_none() || !fits {
            self.note_unstorable(&answer, times, fits);
        }
        let mut room = store.room();
        let first = length.unwrap_or(u64::MAX).min(SEGMENT_BYTES as u64);
        let Some(head) = head.filter(|_| fits && room.grow_to(store, first)) else {
            self.note_superseded(&answer);
            tell(lead.as_ref(), Progress::Alone);
            let _ = told.send(Direct::Passing(answer));
            return;
        };
        let flowing =
            Flowing { head: head.into(), fill: Arc::default(), length, pushed: answer.pushed };
        tell(lead.as_ref(), Progress::Flowing(flowing.clone()));
        if let Some(hold) = flowing.fill.read(0, None) {
            let _ = told.send(Direct::Flowing(flowing.clone(), hold));
        }
        let request = self.request.headers().clone();
        let mut pump = Pump::new(self.cache, self.key, request, flowing, room, (lead, self.origin));
        // Who asks for a part will ask for others, and each fetch begins at the first byte.
        pump.take(answer.response, self.wanted || self.ranged).await;
    }

    /// Stored answer, if `answer` confirms it, or is a failure for which it stands in.
    fn kept(&self, answer: &Answer, times: (Moment, Moment)) -> Option<(Arc<Entry>, Held)> {
        let known = self.known.as_ref()?;
        let status = answer.response.status();
        if status == StatusCode::NOT_MODIFIED && answer.trusted {
            let newer = answer.response.headers();
            if is_for_one(newer) {
                // The body was everybody's until now; it is given this once.
                self.cache.0.store.supersede(&known.entry);
                return Some((known.entry.clone(), Held::Confirmed));
            }
            let freshen = |head: &mut crate::head::Head| head.freshen(newer, times.0, times.1);
            self.cache.0.store.change(&known.entry, freshen);
            return Some((known.entry.clone(), Held::Confirmed));
        }
        let stands_in = known.if_error && is_failure(status);
        stands_in.then(|| (known.entry.clone(), Held::Error(Some(status))))
    }

    /// Notes that `answer`, which is not stored, supersedes the stored one, if it does so for
    /// everybody.
    fn note_superseded(&self, answer: &Answer) {
        let status = answer.response.status();
        if let Some(known) = self.known.as_ref().filter(|_| self.is_for_all(answer))
            && !is_failure(status)
        {
            self.cache.0.store.supersede(&known.entry);
        }
    }

    /// Nobody shall wait for what cannot be stored, if nobody's could be: neither because of who asked,
    /// nor because of how, nor for a moment.
    fn note_unstorable(&self, answer: &Answer, times: (Moment, Moment), fits: bool) {
        let status = answer.response.status();
        let said = (status, answer.response.headers());
        let nobodys = || policy::storable(&self.key, &HeaderMap::new(), said, times).is_none();
        if self.is_for_all(answer) && !status.is_server_error() && (!fits || nobodys()) {
            self.cache.0.unstorable.note(&self.key, times.1, REMEMBERED);
        }
    }

    /// Returns `true` if `answer` certainly is the origin's, and the same that others would get.
    fn is_for_all(&self, answer: &Answer) -> bool {
        let about_one =
            matches!(answer.response.status().as_u16(), 206 | 304 | 401 | 407 | 412 | 416);
        let headers = answer.response.headers();
        answer.trusted && !about_one && !policy::is_about_who_asks(self.request.headers(), headers)
    }
}

/// The statuses for which what is stored may stand in (RFC 5861 §4).
fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

fn tell(lead: Option<&Lead>, progress: Progress) {
    if let Some(lead) = lead {
        lead.tell(progress);
    }
}
