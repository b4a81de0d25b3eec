//! Streams to the ground's half of Split HTTP: pages, and single requests with packed heads.

use std::io;
use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::wire::WireError;
use tokio::time::timeout;

use super::Shared;
use super::fleet::Permit;
use crate::far::{Carried, FarStream, Incoming};
use crate::replay::Replay;
use crate::single::{Opening, Unpacked};

/// How long the cabin may take to say what a stream is for: that travels with its opening.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// One page with what it will ask for, or a flow of single requests, where that is done here.
    pub(super) async fn serve_pages(&self, incoming: Incoming, permit: Permit) {
        let Incoming { class, passenger, claim, carries, .. } = incoming;
        let (pages, mut stream) = match (&self.pages, carries) {
            (Some(pages), Carried::Stream(stream)) => (pages, stream),
            (_, mut carries) => {
                self.counters.count_reset(ResetCode::Forbidden);
                return carries.reset(ResetCode::Forbidden);
            }
        };
        stream.connected();
        let opening = timeout(PATIENCE, Opening::read(&mut stream)).await;
        match opening.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            // Where it leads it may lead only by all that holds for a flow that was opened to there.
            Ok(Opening::Single(target, packed)) => {
                let flow = Box::new(Unpacked::new(stream, packed));
                self.serve_stream(target, (class, passenger), claim, flow, permit).await;
            }
            Ok(Opening::Page(read)) => {
                let mut stream = Replay::new(stream, read);
                if let Err(error) = pages.serve(self, permit.aircraft(), &mut stream).await {
                    self.broke_off(stream.into_inner(), error);
                }
            }
            Err(error) => self.broke_off(stream, error),
        }
    }

    /// Ends a stream. One that asks in an unknown version ends with no code of ours, by which the cabin
    /// knows it; all others do with one.
    fn broke_off(&self, mut stream: Box<dyn FarStream>, error: io::Error) {
        let wire = error.get_ref().and_then(|error| error.downcast_ref::<WireError>());
        if let Some(unknown @ WireError::Version(_)) = wire {
            return self
                .quiet
                .warn("an aircraft asks for a page as this ground does not know it", unknown);
        }
        tracing::debug!(%error, "a page's stream broke off");
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        stream.reset(if is_late { ResetCode::Timeout } else { ResetCode::Internal });
    }
}
