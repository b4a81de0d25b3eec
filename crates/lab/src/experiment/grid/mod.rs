//! Loss × burst × link × workload: the distance of the radio transport from the limit in every
//! case.
//!
//! A *cell* is a link with a loss. A *work* is the traffic on it. An outcome is the result of one
//! work in one cell. The limit is RTT + 8·bytes/((1−p)·rate) of the radio link; next to another
//! passenger's bulk it assumes half the rate.
//!
//! In `sim`, a work is divided among several sessions with different seeds, which are warmed up
//! before the measurement ([`sim`]). The complete grid is committed in `docs/grids` ([`golden`]).
//! [`targets`] lists its targets.

mod cell;
pub mod emu;
mod experiment;
pub mod golden;
pub mod outcome;
pub mod sim;
pub mod table;
pub mod targets;
pub mod traffic;

use bentpipe_units::Ratio;

use cell::percent;
pub use cell::{BURSTS, Cell, CellError, LOSSES, PROFILES, WORKS, Work, WorkError};
pub use experiment::Grid;
pub use outcome::Outcome;

/// Selection of runs. An empty list means the grid's own.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Links by name.
    pub profiles: Vec<String>,
    /// Losses.
    pub losses: Vec<Ratio>,
    /// Bursts.
    pub bursts: Vec<f64>,
    /// Works.
    pub works: Vec<Work>,
}

impl Choice {
    /// The chosen cells and works: all combinations, and those of the targets that the selection
    /// does not exclude. Without loss, bursts have no meaning.
    pub fn all(&self) -> Vec<(Cell, Work)> {
        let or = |chosen: &[String], all: &[&str]| match chosen {
            [] => all.iter().map(|name| (*name).to_owned()).collect(),
            chosen => chosen.to_vec(),
        };
        let losses = match &self.losses[..] {
            [] => LOSSES.iter().map(|loss| percent(*loss)).collect(),
            losses => losses.to_vec(),
        };
        let bursts = if self.bursts.is_empty() { BURSTS.to_vec() } else { self.bursts.clone() };
        let works = if self.works.is_empty() { works() } else { self.works.clone() };
        let mut all = Vec::new();
        for profile in or(&self.profiles, &PROFILES) {
            for loss in &losses {
                let clean = *loss == Ratio::ZERO;
                for burst in if clean { &[1.0][..] } else { &bursts[..] } {
                    let cell = Cell { profile: profile.clone(), loss: *loss, burst: *burst };
                    all.extend(works.iter().map(|work| (cell.clone(), work.clone())));
                }
            }
        }
        for (cell, work) in targets::all().into_iter().map(|target| (target.cell, target.work)) {
            let one = (cell, work);
            if self.allows(&one) && !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    fn allows(&self, (cell, work): &(Cell, Work)) -> bool {
        (self.profiles.is_empty() || self.profiles.contains(&cell.profile))
            && (self.losses.is_empty() || self.losses.contains(&cell.loss))
            && (self.bursts.is_empty() || self.bursts.contains(&cell.burst))
            && (self.works.is_empty() || self.works.contains(work))
    }
}

/// Works of every cell.
fn works() -> Vec<Work> {
    WORKS.iter().map(|name| name.parse().expect("the grid's names parse")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_grid_has_every_combination_and_every_target() {
        let all = Choice::default().all();
        let targets = targets::all();
        assert!(targets.iter().all(|t| all.contains(&(t.cell.clone(), t.work.clone()))));
        let product = |name: &str| all.iter().filter(|(_, work)| work.to_string() == name).count();
        // Four links, each with one cell without loss, and six losses with three bursts. A target
        // adds one more.
        assert_eq!([product("bulk"), product("object-1m")], [4 * (1 + 6 * 3), 4 * (1 + 6 * 3) + 1]);
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "no cell twice");
        assert!(all.iter().all(|(cell, _)| cell.link().is_ok()));
    }

    #[test]
    fn a_choice_leaves_out_what_it_does_not_name() {
        let choice = Choice {
            profiles: vec!["mss".into()],
            losses: vec![percent(6.0)],
            bursts: vec![1.0],
            ..Choice::default()
        };
        let names: Vec<_> = choice.all().iter().map(|(_, work)| work.to_string()).collect();
        let beside = ["object-10k-beside-bulk", "object-100k-beside-bulk"];
        assert_eq!(names, [&WORKS[..], &beside[..]].concat());
        let one = Choice { works: vec!["bulk".parse().unwrap()], ..choice };
        assert_eq!(one.all().len(), 1);
    }

    #[test]
    fn works_read_back() {
        for name in ["bulk", "object-10k", "file-10mib", "object-100k-beside-bulk"] {
            assert_eq!(name.parse::<Work>().unwrap().to_string(), name);
        }
        for name in ["page-25", "bulk-beside-bulk", "object-10k-beside", "video"] {
            let error = name.parse::<Work>().unwrap_err().to_string();
            assert!(error.contains(name.split("-beside").next().unwrap()), "{error}");
        }
    }
}
