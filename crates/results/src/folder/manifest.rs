//! What a folder holds the results of.

use serde::{Deserialize, Serialize};

/// What is run, whoever runs which part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// Of this program.
    pub version: String,
    /// The studies, each with a digest of its file.
    pub studies: Vec<(String, String)>,
    /// Of all losses.
    pub seed: u64,
    /// Whether only the quick part of each grid is run.
    pub quick: bool,
    /// Every build of the program that gave results, each by a digest of its executable.
    #[serde(default)]
    pub builds: Vec<String>,
}

impl Manifest {
    /// Whether it is of the same run, by whatever builds.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        let of = |one: &Self| Self { builds: Vec::new(), ..one.clone() };
        of(self) == of(other)
    }

    pub(super) fn describe(&self) -> String {
        let studies: Vec<_> =
            self.studies.iter().map(|(name, digest)| format!("{name} {digest:.8}")).collect();
        let quick = if self.quick { ", quick" } else { "" };
        format!("version {}, seed {}{quick}, {}", self.version, self.seed, studies.join(" "))
    }
}
