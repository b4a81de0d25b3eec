//! Random flows over an unreliable link in virtual time, checked byte by byte.
//!
//! A [`Scenario`] is drawn from a seed. It has a lossy link with an outage. Its flows send, pause,
//! close, reset and drop at both ends. The aircraft's address or the session's keys may change. A
//! [`Transport`] carries it. [`run`] plays it and reports the first fault.

mod bytes;
pub mod compare;
mod over_link;
mod over_masque;
mod play;
mod scenario;
mod side;

pub use over_link::OverLink;
pub use over_masque::OverMasque;
pub use play::{Report, Testbed, run};
pub use scenario::{Break, FlowPlan, Limits, LinkPlan, Memory, Outage, Scenario, SidePlan};

use ::bytes::Bytes;
use bentpipe_flow::ResetCode;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// One end of a flow over any transport.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Ends both directions at once.
    fn reset(&mut self, code: ResetCode);
    /// Reason of the flow's end, once reading or writing has failed.
    fn reset_code(&self) -> Option<ResetCode>;
}

/// Both gateways' ends of a transport, running in a [`Testbed`].
pub trait Transport: Send + Sync {
    /// Opens flow `number` from the aircraft. Waits for a session if none exists yet.
    fn open(&self, number: u16, first: Bytes) -> BoxFuture<'_, Result<Box<dyn Stream>, String>>;
    /// The next flow that has reached the ground, with its number.
    fn accept(&self) -> BoxFuture<'_, Option<(u16, Box<dyn Stream>)>>;
    /// Code that the peer receives when a flow is reset with `code`.
    fn heard_as(&self, code: ResetCode) -> ResetCode;
    /// Current fault of the ends, such as memory beyond its bound.
    fn fault(&self) -> Option<String>;
}
