//! Everything that a run needs.

use std::path::Path;

use bentpipe_lab::emu::{Congestion, EmuError, LinkMeasured, Share, Testbed};
use bentpipe_lab::system::Running;
use bentpipe_lab::workload::origin::Origin;

use super::sites::Sites;
use crate::job::Job;
use crate::link::Scene;
use crate::raw::{self, RawError};

/// Everything that a run needs.
pub struct Scope<'a> {
    /// The hosts and the link between them.
    pub testbed: &'a Testbed,
    /// Measured properties of that link.
    pub measured: &'a LinkMeasured,
    /// Link of the cell, and settings of the hosts.
    pub scene: &'a Scene,
    /// The cell.
    pub job: &'a Job<'a>,
    /// The running system under test.
    pub running: &'a dyn Running,
    /// Server of transfers.
    pub origin: &'a Origin,
    /// Sites to load, and their servers.
    pub sites: &'a mut Sites,
    /// Congestion control of client and server.
    pub ends: Congestion,
    /// Folder of this testbed.
    pub folder: &'a Path,
    /// Folder of the raw data of single runs, if any.
    pub raw: Option<&'a Path>,
    /// Number of the run among those of its cell, from 0.
    pub run: u32,
    /// Number of the run among all runs of the testbed, from 1.
    pub number: u64,
    /// Reason why the run counts as failed, if it is not visible in the values; for the log.
    pub failed: Option<String>,
}

impl Scope<'_> {
    /// Counters of packets offered to the link in this direction so far, without other users, and
    /// of those lost.
    pub(super) fn look(&self, up: bool) -> Result<Share, EmuError> {
        let counters = self.testbed.radio_counters()?;
        Ok(if up { counters.return_ } else { counters.forward }.own())
    }
}

/// Writes a HAR file of the run's `which` view to the raw data.
pub(super) fn keep(raw: &Path, scope: &Scope<'_>, which: &str, har: &str) -> Result<(), RawError> {
    let what = format!("{which}.har");
    raw::make(raw, scope.job, scope.run, &what, |path| std::fs::write(path, har))
}
