//! The same work through real gateways and kernels, to validate the simulator.
//!
//! Requests go through SOCKS5 and HTTP, so they have about a hundred bytes more in each direction
//! than in the simulator. The link has the same round trip, and the limit is the same.

use std::path::Path;
use std::time::Duration;

use super::outcome::{Outcome, limit};
use super::{Cell, Choice, Work, percent};
use crate::contender::BENTPIPE;
use crate::experiment::progress::Live;
use crate::experiment::transfers::{Cell as Found, Plan};
use crate::scratch::no_folder;
use anyhow::{anyhow, bail};

/// Measured length of a long download.
const BULK_LENGTH: Duration = Duration::from_secs(60);

/// Settings of the emulator.
#[derive(Debug, Clone, Copy)]
pub struct Emulator<'a> {
    /// Runs of each work in each cell. `None` for as many as give a stable figure.
    pub runs: Option<usize>,
    /// Seed of all losses.
    pub seed: u64,
    /// Maximum time of all runs in one testbed. Unfinished runs then count as cut off.
    pub deadline: Duration,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Folder for keys and configuration files.
    pub folder: &'a Path,
}

/// Links on which both engines are compared, with their losses in per cent.
const COMPARED: [(&str, f64); 2] = [("mss", 6.0), ("geo-satl", 1.0)];

/// Works of `choice` for the emulator. If it names no link, the links of the comparison; if it
/// names no loss, their own; if it names no burst, independent losses.
pub fn works(choice: &Choice) -> anyhow::Result<Vec<(Cell, Work)>> {
    if let Some(work) = choice.works.iter().find(|work| work.beside_bulk) {
        bail!("the emulator does not carry {work}: choose --engine sim for it");
    }
    let mut all = Vec::new();
    let links = match &choice.profiles[..] {
        [] => COMPARED.iter().map(|(link, _)| (*link).to_owned()).collect(),
        links => links.to_vec(),
    };
    for link in links {
        let mut of_link = Choice { profiles: vec![link.clone()], ..choice.clone() };
        let own = COMPARED.iter().find(|(name, _)| *name == link);
        if let (true, Some((_, loss))) = (choice.losses.is_empty(), own) {
            of_link.losses = vec![percent(*loss)];
        }
        if choice.bursts.is_empty() {
            of_link.bursts = vec![1.0];
        }
        if choice.works.is_empty() {
            of_link.works = super::works();
        }
        all.extend(of_link.all());
    }
    Ok(all)
}

impl Emulator<'_> {
    /// Runs all of `works`, in the order of the function [`works`]. The works of a cell run
    /// together.
    pub fn run(&self, works: &[(Cell, Work)]) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (number, of_cell) in works.chunk_by(|a, b| a.0 == b.0).enumerate() {
            outcomes.extend(self.cell(number, of_cell)?);
        }
        Ok(outcomes)
    }

    fn cell(&self, number: usize, works: &[(Cell, Work)]) -> anyhow::Result<Vec<Outcome>> {
        let cell = &works[0].0;
        let failed = |error: anyhow::Error| anyhow!("{cell}: {error}");
        let link = cell.link()?;
        let workloads: Vec<_> = works.iter().map(|(_, work)| work.workload.clone()).collect();
        let folder = self.folder.join(number.to_string());
        std::fs::create_dir(&folder).map_err(no_folder)?;
        let plan = Plan {
            experiment: "grid",
            profile: &link,
            contenders: &[&BENTPIPE],
            workloads: &workloads,
            runs: self.runs,
            seed: self.seed,
            deadline: self.deadline,
            bulk_length: BULK_LENGTH,
            program: self.program,
            folder: &folder,
        };
        let live = Live::new(&plan);
        let found = plan.run(&|progress| live.tell(progress)).map_err(failed)?;
        drop(live);
        let outcome = |found: Found| {
            let work = Work { workload: found.workload, beside_bulk: false };
            let limit = limit(&link, &work)?;
            Ok(Outcome::of_samples(cell.clone(), work, limit, found.found.samples, None))
        };
        found.into_iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn the_compared_cells_are_the_links_as_they_are() {
        let all = works(&Choice::default()).unwrap();
        assert_eq!(all.len(), COMPARED.len() * super::super::WORKS.len());
        for (cell, _) in all {
            assert_eq!(cell.link().unwrap(), Profile::named(&cell.profile).unwrap());
        }
        let beside = vec!["object-10k-beside-bulk".parse().unwrap()];
        let error = works(&Choice { works: beside, ..Choice::default() }).unwrap_err();
        assert!(error.to_string().contains("--engine sim"), "{error}");
    }
}
