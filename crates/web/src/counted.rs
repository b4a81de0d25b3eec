//! Counters of the cache: requests by outcome, and bytes when they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bentpipe_webcache::{OriginError, Outcome, Served};
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::message::respond::Body;
use bentpipe_metering::counters::Counters;

/// Counts the outcome, and the bytes of the body that did not cross the link for this request.
pub fn count(served: Served, counters: &Arc<Counters>) -> Result<Response<Body>, OriginError> {
    let Served { response, outcome } = served;
    let counter = match outcome {
        Outcome::Hit | Outcome::Pushed => &counters.http_hits,
        Outcome::StaleHit | Outcome::StaleIfError => &counters.http_stale_hits,
        Outcome::Validated => &counters.http_validated,
        Outcome::Collapsed => &counters.http_collapsed,
        Outcome::Miss(_) => &counters.http_misses,
        Outcome::OnlyIfCached | Outcome::Failed => &counters.http_failed,
    };
    counter.add(1);
    if outcome.saves_round_trip() {
        counters.http_round_trips_saved.add(1);
    }
    let counters = outcome.saves_bytes().then(|| counters.clone());
    let is_here = outcome != Outcome::Collapsed;
    let body = |body| Counted { body, counters, is_here }.map_err(Into::into).boxed_unsync();
    Ok(response?.map(body))
}

/// A body that counts its bytes as they are read, because a client may leave early.
struct Counted {
    body: bentpipe_webcache::Body,
    counters: Option<Arc<Counters>>,
    /// `true` if the bytes come from the cache, and not from another request's fetch.
    is_here: bool,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let data = polled.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(data), Some(counters)) = (data, &self.counters) {
            let bytes = data.len() as u64;
            counters.http_bytes_saved.add(bytes);
            if self.is_here {
                counters.http_bytes_from_cache.add(bytes);
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
