//! The same work through real gateways and kernels, to validate the simulator.
//!
//! Requests go through SOCKS5 and HTTP, so they have about a hundred bytes more in each direction
//! than in the simulator. The link has the same round trip, and the limit is the same.

use std::time::Duration;

use super::outcome::{Outcome, limit};
use super::{Cell, Choice, Work, percent};
use crate::experiment::engine::Emulator;
use crate::experiment::transfers::Plan;
use crate::scratch::no_folder;
use crate::system::BENTPIPE;
use anyhow::{anyhow, bail};

/// Measured length of a long download.
const BULK_LENGTH: Duration = Duration::from_secs(60);

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

/// Runs of each work in the emulator.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// Number of runs. `None` for as many as give a stable figure.
    pub count: Option<usize>,
    /// Seed of all losses.
    pub seed: u64,
    /// Maximum time of all runs in one testbed. Runs that are not finished then count as cut off.
    pub deadline: Duration,
}

/// Runs all of `works`, in the order of the function [`works`]. The works of a cell run together.
pub fn run(
    works: &[(Cell, Work)],
    emulator: &Emulator<'_>,
    runs: Runs,
) -> anyhow::Result<Vec<Outcome>> {
    let program = (emulator.program)()?;
    let mut outcomes = Vec::new();
    for (number, works) in works.chunk_by(|a, b| a.0 == b.0).enumerate() {
        let cell = &works[0].0;
        let failed = |error: anyhow::Error| anyhow!("{cell}: {error}");
        let link = cell.link()?;
        let workloads: Vec<_> = works.iter().map(|(_, work)| work.workload.clone()).collect();
        let folder = emulator.folder.join(number.to_string());
        std::fs::create_dir(&folder).map_err(no_folder)?;
        let plan = Plan {
            experiment: "grid",
            profile: &link,
            systems: &[&BENTPIPE],
            workloads: &workloads,
            runs: runs.count,
            seed: runs.seed,
            deadline: runs.deadline,
            bulk_length: BULK_LENGTH,
            program: &program,
            folder: &folder,
        };
        for found in plan.show().map_err(failed)? {
            let work = Work { workload: found.workload, beside_bulk: false };
            let limit = limit(&link, &work)?;
            let samples = found.found.samples;
            outcomes.push(Outcome::of_samples(cell.clone(), work, limit, samples, None));
        }
    }
    Ok(outcomes)
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
