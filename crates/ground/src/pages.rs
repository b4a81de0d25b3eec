//! Streams to Split HTTP in the ground gateway.

use std::io;

use bentpipe_flow::ResetCode;
use bentpipe_prefetch::wire::WireError;

use super::Shared;
use super::fleet::FlowPermit;
use super::origins::PageOrigins;
use bentpipe_relay::flows::Activity;
use bentpipe_relay::layer::Layered;
use bentpipe_transport::{Carried, FlowStream, Incoming};

impl Shared {
    /// Serves one page with its objects, if Split HTTP is enabled.
    pub(super) async fn serve_pages(&self, incoming: Incoming, permit: FlowPermit) {
        let aircraft = incoming.aircraft;
        let (pages, mut stream) = match (&self.pages, incoming.carries) {
            (Some(pages), Carried::Stream(stream)) => (pages, stream),
            (_, mut carries) => {
                self.counters.count_reset(ResetCode::Forbidden);
                return carries.reset(ResetCode::Forbidden);
            }
        };
        stream.connected();
        let origins = PageOrigins { shared: self, aircraft };
        let recorded = Layered::new(&mut stream, Activity(permit.activity()));
        if let Err(error) = pages.serve(&origins, permit.aircraft(), recorded).await {
            self.broke_off(stream, error);
        }
    }

    /// Ends a failed stream. A request in an unknown version is closed without a reset code, which
    /// tells the air gateway the reason; all others are reset with a code.
    fn broke_off(&self, mut stream: Box<dyn FlowStream>, error: io::Error) {
        let wire = error.get_ref().and_then(|error| error.downcast_ref::<WireError>());
        if let Some(unknown @ WireError::Version(_)) = wire {
            return self
                .log
                .warn("an aircraft asks for a page as this ground does not know it", unknown);
        }
        tracing::debug!(%error, "a page's stream broke off");
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        stream.reset(if is_late { ResetCode::Timeout } else { ResetCode::Internal });
    }
}
