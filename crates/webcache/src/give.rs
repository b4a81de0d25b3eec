//! Delivery of an answer: a stored one, one in progress, or an origin's answer to one client.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::answer::{Content, answer};
use crate::body::Body;
use crate::cache::{Ask, CACHE_STATUS, Cache, PATIENCE, Served};
use crate::fetch::Known;
use crate::flight::Flowing;
use crate::head::Head;
use crate::origin::Answer;
use crate::policy;
use crate::status::{Forwarded, Member, Outcome};
use crate::store::{Entry, Given};
use crate::validate;

impl Cache {
    /// Answers with what is stored; `None` where it has gone.
    pub(crate) async fn give(
        &self,
        entry: &Arc<Entry>,
        ask: Ask<'_>,
        outcome: Outcome,
        member: Member,
    ) -> Option<Served> {
        let head = entry.head();
        let headers = ask.request.headers();
        let unread = *ask.request.method() == Method::HEAD
            || (head.status == StatusCode::OK && validate::client_has_it(headers, &head));
        let content = if unread {
            Content::Unread(entry.body_bytes)
        } else {
            match self.0.store.given(entry).await? {
                Given::Whole(body) => Content::Whole(body),
                Given::Pieces(pieces) => Content::Pieces(pieces),
            }
        };
        self.answered(&head, content, ask, outcome, member)
    }

    /// Answers with what is on its way; `None` where it is stuck, or its beginning was forgotten.
    pub(crate) fn give_flowing(
        &self,
        flowing: &Flowing,
        ask: Ask<'_>,
        outcome: Outcome,
        member: Member,
    ) -> Option<Served> {
        if flowing.fill.is_stuck(PATIENCE) {
            return None;
        }
        let content = Content::Filling(&flowing.fill, flowing.length);
        self.answered(&flowing.head, content, ask, outcome, member)
    }

    /// The same to one who would have asked for it because of `why`, and need not.
    pub(crate) fn give_collapsed(
        &self,
        flowing: &Flowing,
        ask: Ask<'_>,
        why: Forwarded,
    ) -> Option<Served> {
        // Pushed for another: its bytes cross the link once for both.
        let member = if flowing.pushed {
            Member::pushed()
        } else {
            Member { stored: true, collapsed: true, ..Member::forwarded(why) }
        };
        self.give_flowing(flowing, ask, Outcome::Collapsed, member)
    }

    fn answered(
        &self,
        head: &Head,
        content: Content<'_>,
        ask: Ask<'_>,
        outcome: Outcome,
        mut member: Member,
    ) -> Option<Served> {
        let now = self.now();
        let is_miss = matches!(outcome, Outcome::Miss(_));
        let age = head.age(now).filter(|_| !is_miss);
        let asked = (ask.request.method(), ask.request.headers());
        let mut response = answer(head, content, asked, age)?;
        member.ttl = Some(head.remaining(&self.0.rules, now));
        // What came from the origin as a whole is given as a part, or as 304.
        let differs = member.stored && response.status() != head.status;
        member.forwarded_status = member.forwarded_status.or(differs.then_some(head.status));
        response.headers_mut().append(CACHE_STATUS, member.field());
        Some(Served { response: Ok(response), outcome })
    }

    /// Sends the request on as it is; what comes is for this client alone.
    pub(crate) async fn pass(&self, ask: Ask<'_>, why: Forwarded) -> Served {
        match ask.origin.send(ask.request.clone()).await {
            Ok(answer) => {
                if *ask.request.method() == Method::HEAD && answer.trusted {
                    self.note_head(ask, &answer);
                }
                self.passed(answer, why)
            }
            Err(failure) => Served { response: Err(failure), outcome: Outcome::Failed },
        }
    }

    /// The same; where there is no answer, `known` stands in if it may.
    pub(crate) async fn pass_or_stand_in(
        &self,
        ask: Ask<'_>,
        known: Option<Known>,
        why: Forwarded,
    ) -> Served {
        let served = self.pass(ask, why).await;
        let (Err(failure), Some(known)) = (&served.response, known) else { return served };
        if !known.stands_in_for(failure) {
            return served;
        }
        let detail = Some(if failure.offline { "offline" } else { "no-answer" });
        let member = Member { detail, ..Member::hit() };
        let stale = self.give(&known.entry, ask, Outcome::StoodIn, member).await;
        stale.unwrap_or(served)
    }

    pub(crate) fn passed(&self, answer: Answer, why: Forwarded) -> Served {
        let (outcome, member) = if answer.pushed {
            (Outcome::Pushed, Member::pushed())
        } else {
            (Outcome::Miss(why), Member::forwarded(why))
        };
        let mut response = answer.response.map(Body::passing);
        response.headers_mut().append(CACHE_STATUS, member.field());
        Served { response: Ok(response), outcome }
    }

    /// Applies the answer to a HEAD to the stored one (RFC 9111 §4.3.5).
    fn note_head(&self, ask: Ask<'_>, answer: &Answer) {
        let (asked, newer) = (ask.request.headers(), answer.response.headers());
        let Some(entry) = self.0.store.find(ask.key, asked) else { return };
        if answer.response.status() != StatusCode::OK {
            return;
        }
        let now = self.now();
        let said = (answer.response.status(), newer);
        let storable = policy::storable(ask.key, asked, said, (now, now)).is_some();
        // What may not be stored, as that of somebody's own, says nothing of what everybody has.
        if !storable {
            return;
        }
        self.0.store.change(&entry, |head| {
            if validate::same_object(newer, head, entry.body_bytes) {
                head.freshen(newer, now, now);
            } else {
                head.invalidated = true;
            }
        });
    }
}

/// The length that is told, where it is told once.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// RFC 9111 §5.2.1.7.
pub(crate) fn not_here() -> Served {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_LENGTH, 0.into());
    // It went no further, and nothing was here.
    let member = Member { detail: Some("only-if-cached"), ..Member::default() };
    response.headers_mut().append(CACHE_STATUS, member.field());
    Served { response: Ok(response), outcome: Outcome::NotHere }
}
