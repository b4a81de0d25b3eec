//! Description of the run whose results a folder holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::links::LinkRange;

/// A machine that produced results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Number of processors.
    pub cores: usize,
    /// Third-party programs under measurement, such as browsers and tunnels, with their versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
}

/// Description of a run, the same for all its shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// Version of this program.
    pub version: String,
    /// Studies, each with a digest of its file.
    pub studies: Vec<(String, String)>,
    /// Seed of all losses.
    pub seed: u64,
    /// `true` if only the quick part of each grid is run.
    pub quick: bool,
    /// Every build of the program that produced results, each identified by a digest of its
    /// executable.
    #[serde(default)]
    pub builds: Vec<String>,
    /// Every machine that produced results.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Measured properties of the links of all its cells, written with the tables.
    #[serde(default)]
    pub links: Vec<LinkRange>,
}

impl Manifest {
    /// Returns `true` if both describe the same run, regardless of builds.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.version.clone(), one.studies.clone(), one.seed, one.quick);
        of(self) == of(other)
    }

    /// Adds the builds and machines of `other` that are new. Returns `true` if there were any.
    pub(super) fn add_sources(&mut self, other: &Self) -> bool {
        let had = (self.builds.len(), self.hosts.len());
        for build in &other.builds {
            if !self.builds.contains(build) {
                self.builds.push(build.clone());
            }
        }
        for host in &other.hosts {
            if !self.hosts.contains(host) {
                self.hosts.push(host.clone());
            }
        }
        had != (self.builds.len(), self.hosts.len())
    }

    pub(super) fn describe(&self) -> String {
        let studies: Vec<_> =
            self.studies.iter().map(|(name, digest)| format!("{name} {digest:.8}")).collect();
        let quick = if self.quick { ", quick" } else { "" };
        format!("version {}, seed {}{quick}, {}", self.version, self.seed, studies.join(" "))
    }
}
