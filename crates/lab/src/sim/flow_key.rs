//! Identification of a flow.

use bentpipe_link::SessionId;

/// Identifier of a flow at one end.
pub type FlowKey = (SessionId, u64);
