//! One question to an origin, and what becomes of the answer: stored, passed on, or neither.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cache::{Cache, MOST_BEHIND_RANGE, REMEMBERED, content_length, without_range};
use crate::fill::{FillReader, SEGMENT_BYTES};
use crate::flight::{Flowing, Held, Lead, Progress};
use crate::head::{Head, Moment};
use crate::key::Key;
use crate::origin::{Answer, Failure, Origin, OriginBody, STALLED, StandIn};
use crate::policy;
use crate::store::{Entry, Room};
use crate::validate;

/// A body of which nothing comes for so long has failed, with all who read it.
pub const STALL: Duration = Duration::from_secs(60);

/// A question to be asked.
pub(crate) struct Fetch {
    pub cache: Cache,
    pub key: Key,
    pub request: Request<()>,
    pub origin: Arc<dyn Origin>,
    /// What is stored, and whether it is used when the origin fails, or cannot be reached.
    pub known: Option<(Arc<Entry>, bool, bool)>,
    /// Whether the client wants a part, and all is fetched.
    pub ranged: bool,
    /// Whether it goes on when nobody waits for it.
    pub wanted: bool,
}

/// What the one who asked gets.
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
    pub fn new(cache: &Cache, key: &Key, request: &Request<()>, origin: &Arc<dyn Origin>) -> Self {
        Self {
            cache: cache.clone(),
            key: key.clone(),
            request: request.clone(),
            origin: origin.clone(),
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
        let asking = async { self.ask().await };
        let asked = tokio::select! {
            biased;
            asked = asking => asked,
            () = unwanted => return,
        };
        match asked {
            Ok((answer, times)) => self.sort(answer, times, lead, told).await,
            Err(failure) => {
                let kept = self.known.filter(
                    |(_, error, offline)| {
                        if failure.offline { *offline } else { *error }
                    },
                );
                let held = if failure.offline { Held::Offline } else { Held::Error };
                let (progress, direct) = match kept {
                    Some((entry, ..)) => {
                        (Progress::Stored(entry.clone(), held), Direct::Stored(entry, held))
                    }
                    None => (Progress::Failed(failure.clone()), Direct::Failed(failure)),
                };
                tell(lead.as_ref(), progress);
                let _ = told.send(direct);
            }
        }
    }

    /// Sends the question; a second time, without conditions, where the first answer was 304 for
    /// something that is not here.
    async fn ask(&mut self) -> Result<(Answer, (Moment, Moment)), Failure> {
        let headers = self.request.headers_mut();
        without_range(headers);
        if let Some((entry, ..)) = &self.known {
            validate::ask_whether(headers, &entry.head());
        }
        let first = self.send().await?;
        let confused = first.0.response.status() == StatusCode::NOT_MODIFIED
            && self.known.as_ref().is_some_and(|(entry, ..)| {
                !validate::confirms(first.0.response.headers(), &entry.head())
            });
        if !confused {
            return Ok(first);
        }
        if let Some((entry, ..)) = self.known.take() {
            self.cache.0.store.remove(&entry);
        }
        validate::unconditional(self.request.headers_mut());
        self.send().await
    }

    async fn send(&self) -> Result<(Answer, (Moment, Moment)), Failure> {
        let clock = &self.cache.0.clock;
        let requested_at = clock();
        let mut request = self.request.clone();
        if let Some((_, _, true)) = &self.known {
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
        let kept = match &self.known {
            Some((entry, ..)) if status == StatusCode::NOT_MODIFIED && answer.trusted => {
                let mut head = Head::clone(&entry.head());
                head.freshen(answer.response.headers(), times.0, times.1);
                store.set_head(entry, head);
                Some((entry.clone(), Held::Confirmed))
            }
            Some((entry, true, _)) if is_failure(status) => Some((entry.clone(), Held::Error)),
            _ => None,
        };
        if let Some((entry, held)) = kept {
            tell(lead.as_ref(), Progress::Stored(entry.clone(), held));
            let _ = told.send(Direct::Stored(entry, held));
            return;
        }
        let said = (status, answer.response.headers());
        let head = policy::storable(&self.key, self.request.headers(), said, times)
            .filter(|_| answer.trusted && *self.request.method() == Method::GET);
        let length = content_length(answer.response.headers());
        if self.ranged && status == StatusCode::OK && length.is_none_or(|it| it > MOST_BEHIND_RANGE)
        {
            self.cache.0.large.note(&self.key, times.1, REMEMBERED);
            tell(lead.as_ref(), Progress::Alone);
            let _ = told.send(Direct::TooLarge);
            return;
        }
        let mut room = store.room();
        let fits = length.is_none_or(|it| it <= store.object_bytes());
        let first = length.unwrap_or(SEGMENT_BYTES as u64);
        let head = head.filter(|_| fits && room.grow_to(store, first));
        let Some(head) = head else {
            self.forget(status, times.1);
            tell(lead.as_ref(), Progress::Alone);
            let _ = told.send(Direct::Passing(answer));
            return;
        };
        let flowing = Flowing { head: head.into(), fill: Arc::default(), length, pushed: false };
        tell(lead.as_ref(), Progress::Flowing(flowing.clone()));
        if let Some(hold) = flowing.fill.read(0, None) {
            let _ = told.send(Direct::Flowing(flowing.clone(), hold));
        }
        let request = self.request.headers().clone();
        let room = Some(room);
        let mut pump = Pump { cache: self.cache, key: self.key, request, flowing, room, lead };
        pump.take(answer.response, self.wanted).await;
    }

    /// What was stored has been superseded by what cannot be, and nobody shall wait for that.
    fn forget(&self, status: StatusCode, now: Moment) {
        if let Some((entry, ..)) = &self.known
            && !is_failure(status)
        {
            self.cache.0.store.remove(entry);
        }
        // Why that is so may lie in who asked.
        if self.request.headers().contains_key(http::header::COOKIE) {
            return;
        }
        self.cache.0.unstorable.note(&self.key, now, REMEMBERED);
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

/// What moves a body from the origin to its readers and, at its end, into the store.
pub(crate) struct Pump {
    pub cache: Cache,
    pub key: Key,
    pub request: HeaderMap,
    pub flowing: Flowing,
    /// What the body takes of the memory.
    pub room: Option<Room>,
    /// While it is here others may join.
    pub lead: Option<Lead>,
}

impl Pump {
    /// Takes all of the body, unless nobody wants it any more.
    async fn take(&mut self, response: Response<OriginBody>, wanted: bool) {
        let mut body = response.into_body();
        loop {
            if !wanted && self.flowing.fill.is_unread() && !self.is_nearly_done() {
                break self.fail(Failure { offline: false, code: STALLED });
            }
            match timeout(STALL, body.frame()).await {
                Ok(None) => break self.end(),
                Ok(Some(Ok(frame))) => {
                    // Trailers are not kept (RFC 9110 §6.5.1).
                    if let Ok(bytes) = frame.into_data() {
                        self.push(&bytes).await;
                    }
                }
                Ok(Some(Err(failure))) => break self.fail(failure),
                Err(_) => break self.fail(Failure { offline: false, code: STALLED }),
            }
        }
    }

    /// Adds to the body.
    pub async fn push(&mut self, bytes: &[u8]) {
        let length = self.flowing.fill.length() + bytes.len() as u64;
        let store = &self.cache.0.store;
        let room = self.room.as_mut().filter(|_| length <= store.object_bytes());
        if !room.is_some_and(|room| room.grow_to(store, length)) {
            // It will not be stored; whoever reads it now still gets all of it.
            self.lead = None;
            self.flowing.fill.forget_what_is_read();
        }
        self.flowing.fill.push(bytes).await;
    }

    /// Whether more has come than is still to come.
    fn is_nearly_done(&self) -> bool {
        let here = self.flowing.fill.length();
        self.flowing.length.is_some_and(|length| length.saturating_sub(here) <= here)
    }

    /// All has come.
    pub fn end(&mut self) {
        let fill = &self.flowing.fill;
        let is_whole = self.flowing.length.is_none_or(|length| length == fill.length());
        if !is_whole {
            return self.fail(Failure { offline: false, code: STALLED });
        }
        fill.finish(Ok(()));
        if let Some(room) = self.room.take().filter(|_| !fill.is_unread()) {
            // Slow readers still need it.
            fill.hold(room);
        }
        if let Some(body) = fill.whole() {
            let head = Head::clone(&self.flowing.head);
            self.cache.0.store.put(&self.key, &self.request, head, body);
        }
        self.lead = None;
    }

    /// No more comes.
    pub fn fail(&mut self, failure: Failure) {
        self.flowing.fill.finish(Err(failure));
        self.lead = None;
    }
}
