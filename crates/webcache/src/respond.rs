//! Responses to clients: a stored one, one that is arriving, or one that is only forwarded.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Method, Response, StatusCode};

use crate::answer::{Content, answer};
use crate::body::Body;
use crate::cache::{CACHE_STATUS, Cache, ClientRequest, MAX_COLLAPSE_WAIT, Served};
use crate::fetch::Revalidation;
use crate::flight::Transfer;
use crate::head::Head;
use crate::origin::Answer;
use crate::policy;
use crate::status::{Forwarded, Member, Outcome};
use crate::store::{Entry, StoredBody};
use crate::validate;

impl Cache {
    /// Answers with a stored response. Returns `None` if it vanished.
    pub(crate) async fn respond_stored(
        &self,
        entry: &Arc<Entry>,
        client: ClientRequest<'_>,
        outcome: Outcome,
        member: Member,
    ) -> Option<Served> {
        let head = entry.head();
        let headers = client.request.headers();
        let needs_no_body = *client.request.method() == Method::HEAD
            || (head.status == StatusCode::OK && validate::client_has_it(headers, &head));
        let content = if needs_no_body {
            Content::Unread(entry.body_bytes)
        } else {
            match self.0.store.body_for_client(entry).await? {
                StoredBody::Memory(body) => Content::Whole(body),
                StoredBody::Disk(pieces) => Content::Pieces(pieces),
            }
        };
        self.respond(&head, content, client, outcome, member)
    }

    /// Answers with a response that is arriving. Returns `None` if it is stuck, or its beginning is
    /// no longer in memory.
    pub(crate) fn respond_transfer(
        &self,
        transfer: &Transfer,
        client: ClientRequest<'_>,
        outcome: Outcome,
        member: Member,
    ) -> Option<Served> {
        if transfer.fill.is_stuck(MAX_COLLAPSE_WAIT) {
            return None;
        }
        let content = Content::Filling(&transfer.fill, transfer.length);
        self.respond(&transfer.head, content, client, outcome, member)
    }

    /// Answers with a response that is arriving for another client. Without it the request would
    /// have been forwarded because of `why`.
    pub(crate) fn respond_collapsed(
        &self,
        transfer: &Transfer,
        client: ClientRequest<'_>,
        why: Forwarded,
    ) -> Option<Served> {
        // The bytes of a pushed response cross the link once for both clients.
        let member = if transfer.pushed {
            Member::pushed()
        } else {
            Member { stored: true, collapsed: true, ..Member::forwarded(why) }
        };
        self.respond_transfer(transfer, client, Outcome::Collapsed, member)
    }

    fn respond(
        &self,
        head: &Head,
        content: Content<'_>,
        client: ClientRequest<'_>,
        outcome: Outcome,
        mut member: Member,
    ) -> Option<Served> {
        let now = self.now();
        let is_miss = matches!(outcome, Outcome::Miss(_));
        let age = head.age(now).filter(|_| !is_miss);
        let request = (client.request.method(), client.request.headers());
        let mut response = answer(head, content, request, age)?;
        member.ttl = Some(head.remaining(&self.0.rules, now));
        // The origin sent the whole object, but the client gets 206 or 304.
        let differs = member.stored && response.status() != head.status;
        member.forwarded_status = member.forwarded_status.or(differs.then_some(head.status));
        response.headers_mut().append(CACHE_STATUS, member.field());
        Some(Served { response: Ok(response), outcome })
    }

    /// Forwards the request as it is. The response is for this client alone.
    pub(crate) async fn forward(&self, client: ClientRequest<'_>, why: Forwarded) -> Served {
        match client.origin.send(client.request.clone().into()).await {
            Ok(answer) => {
                if *client.request.method() == Method::HEAD && answer.trusted {
                    self.update_from_head(client, &answer);
                }
                self.respond_forwarded(answer, why)
            }
            Err(error) => Served { response: Err(error), outcome: Outcome::Failed },
        }
    }

    /// Forwards the request as it is. If the origin fails, uses the stored response if that is
    /// allowed.
    pub(crate) async fn forward_or_stale(
        &self,
        client: ClientRequest<'_>,
        revalidation: Option<Revalidation>,
        why: Forwarded,
    ) -> Served {
        let served = self.forward(client, why).await;
        let (Err(error), Some(stored)) = (&served.response, revalidation) else { return served };
        if !stored.allows_stale(error) {
            return served;
        }
        let detail = Some(if error.is_offline() { "offline" } else { "no-answer" });
        let member = Member { detail, ..Member::hit() };
        let stale = self.respond_stored(&stored.entry, client, Outcome::StaleIfError, member).await;
        stale.unwrap_or(served)
    }

    pub(crate) fn respond_forwarded(&self, answer: Answer, why: Forwarded) -> Served {
        let (outcome, member) = if answer.pushed {
            (Outcome::Pushed, Member::pushed())
        } else {
            (Outcome::Miss(why), Member::forwarded(why))
        };
        let mut response = answer.response.map(Body::passing);
        response.headers_mut().append(CACHE_STATUS, member.field());
        Served { response: Ok(response), outcome }
    }

    /// Updates the stored response from the answer to a HEAD (RFC 9111 §4.3.5).
    fn update_from_head(&self, client: ClientRequest<'_>, answer: &Answer) {
        let (request, newer) = (client.request.headers(), answer.response.headers());
        let Some(entry) = self.0.store.find(client.key, request) else { return };
        if answer.response.status() != StatusCode::OK {
            return;
        }
        let now = self.now();
        let response = (answer.response.status(), newer);
        // An answer that may not be stored, for example a personal one, says nothing about the
        // public one.
        if policy::storable(client.key, request, response, (now, now)).is_none() {
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

/// Response to a request with `only-if-cached` for an object that is not stored
/// (RFC 9111 §5.2.1.7).
pub(crate) fn gateway_timeout() -> Served {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_LENGTH, 0.into());
    // Neither a hit nor forwarded.
    let member = Member { detail: Some("only-if-cached"), ..Member::default() };
    response.headers_mut().append(CACHE_STATUS, member.field());
    Served { response: Ok(response), outcome: Outcome::OnlyIfCached }
}
