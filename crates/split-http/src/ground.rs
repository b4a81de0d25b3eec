//! State of Split HTTP in the ground gateway, shared by all pages.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_prefetch::plan::{Limits, Rules};

use super::pool::{Pool, pool};
use super::quota::{Share, SlotQuota};
use crate::counters::Counters;

/// Settings of Split HTTP in the ground gateway.
#[derive(Debug, Clone)]
pub struct GroundSettings {
    /// Limits of each page.
    pub limits: Limits,
    /// Names whose pages and objects may be fetched.
    pub rules: Rules,
    /// Concurrent pages, and as many downloads. Further pages are refused and cross the link object
    /// by object.
    pub pages: usize,
    /// Concurrent pages of one aircraft, and as many downloads.
    pub per_aircraft: usize,
    /// Maximum duration of a page's stream; unsent bytes are then discarded.
    pub longest: Duration,
    /// Maximum silence of a download: the idle timeout of a flow.
    pub idle: Duration,
}

/// State of Split HTTP in the ground gateway.
pub struct GroundPages {
    pub(super) settings: GroundSettings,
    pub(super) pool: Pool,
    pub(super) slots: Arc<SlotQuota>,
    pub(super) counters: Arc<Counters>,
}

impl GroundPages {
    /// Creates the state without pages in progress.
    pub fn new(settings: GroundSettings, counters: Arc<Counters>) -> Self {
        let share = Share { all: settings.pages, each: settings.per_aircraft };
        // Downloads may take hours, so they have their own slots.
        let slots = SlotQuota::new(share, share);
        Self { settings, pool: pool(), slots, counters }
    }
}
