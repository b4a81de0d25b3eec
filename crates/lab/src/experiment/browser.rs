//! Common part of experiments with pages in real Chromium.

use std::path::Path;

use super::report::row;
use crate::browser::Browser;
use crate::emu::{SERVER, Testbed};
use crate::profile::Profile;
use crate::result::{Row, Sample};

/// Default number of loads of each case.
pub const DEFAULT_RUNS: u16 = 3;

/// Selection of runs.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Profile of the link.
    pub profile: Profile,
    /// Loads of each case, each in a new browser.
    pub runs: u16,
    /// Seed of the first case's link.
    pub seed: u64,
}

impl Choice {
    /// Minimum time of `bytes` over the link, in seconds.
    pub(super) fn limit(&self, bytes: u64) -> Option<f64> {
        self.profile.forward_limit(bytes).map(|limit| limit.as_secs_f64())
    }

    /// A row of `experiment`, without results.
    pub(super) fn row(&self, experiment: &str, workload: String, metric: &str) -> Row {
        let row = row(experiment, &self.profile, workload, metric, self.seed);
        Row { engine: "emu".into(), ..row }
    }
}

/// A measured link with hosts on both sides, one of which runs browsers.
pub(super) struct Cabin {
    pub testbed: Testbed,
}

impl Cabin {
    /// Makes a cabin on the link of `choice`.
    pub fn new(choice: &Choice, seed: u64) -> anyhow::Result<Self> {
        let profile = &choice.profile;
        let testbed = Testbed::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
        testbed.measure()?;
        Ok(Self { testbed })
    }

    /// Load time of the page at `url` in a new browser, with its files in `folder`.
    pub fn load(&self, flags: &[String], url: &str, folder: &Path) -> anyhow::Result<Sample> {
        let client = &self.testbed.client;
        let took = client.block_on(async || {
            Browser::load_time(client.command("sh"), flags, folder, url).await
        })??;
        Ok(Sample::Finished(took.as_secs_f64()))
    }

    /// Checks that the emulator lost no packet that its model delivered.
    pub fn check(&self) -> anyhow::Result<()> {
        self.testbed.sound_counters()?;
        Ok(())
    }
}

/// Flags that make Chromium resolve `name` (`*` for any) to the lab's server, and trust this key.
pub(super) fn flags(name: &str, key_hash: &str) -> Vec<String> {
    vec![
        format!("--host-resolver-rules=MAP {name} {}", SERVER.v4),
        format!("--ignore-certificate-errors-spki-list={key_hash}"),
    ]
}
