//! Events in the tab.

use serde_json::Value;

/// An event in the tab.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name in the DevTools protocol: `Domain.name`.
    pub method: String,
    /// Parameters of the event.
    pub params: Value,
}
