//! Sites of a testbed's cells.

use std::net::IpAddr;

use bentpipe_lab::site::{Authority, Shape, Site, SiteServer};
use bentpipe_results::{self as results, Content};

use super::error::SiteError;
use crate::job::Job;

/// Seed of all site models, so that the sites are the same in every run of every version.
const MODELS: u64 = 1;

/// Sites of a testbed's cells, and the server of the current one.
pub struct Sites {
    /// Names and addresses of the sites.
    pub hosts: Vec<(String, IpAddr)>,
    pub(super) authority: Authority,
    pub(super) serving: Option<(results::Cell, SiteServer)>,
}

impl Sites {
    /// Collects the sites of these cells.
    pub fn new<'a>(jobs: impl Iterator<Item = &'a Job<'a>>) -> Result<Self, SiteError> {
        let mut hosts = Vec::new();
        for job in jobs.filter(|job| loads(job)) {
            hosts.extend(site(job, 0)?.hosts());
        }
        hosts.sort();
        hosts.dedup();
        Ok(Self { hosts, authority: Authority::new()?, serving: None })
    }

    /// Key hash of the certificate authority, for a browser.
    pub fn key_hash(&self) -> String {
        self.authority.key_hash()
    }
}

fn loads(job: &Job<'_>) -> bool {
    matches!(job.grid.workload, results::Workload::Page | results::Workload::Archive)
}

/// Site that the cell loads, as seen by visit `visit`.
pub(super) fn site(job: &Job<'_>, visit: u64) -> Result<Site, SiteError> {
    let page = job.page();
    match page.map(|page| (&page.id, page.content)) {
        Some((_, Content::Objects { count, bytes })) => Ok(Site::page(count, bytes, visit)),
        Some((name, Content::Site { connections, kilobytes, requests, domains })) => {
            let shape = Shape { connections, kilobytes, requests, domains };
            Ok(Site::model(name, &shape, MODELS, visit)?)
        }
        _ => Err(SiteError::NoPage(page.map_or_else(String::new, |page| page.id.clone()))),
    }
}
