//! The ground mesh: hubs near the satellite's ground stations, egresses near the content.
//!
//! NetForecast (`experiments/netforecast.toml`) found that one connection gets less than half of the
//! rate when the content is more than about 30 ms behind the first proxy. Each part of this experiment
//! shows one condition under which an egress near the content changes that.
//!
//! | module | contents |
//! |---|---|
//! | [`leg`] | transports between hub and egress |
//! | `globe`, [`worlds`] | places and paths, worlds of egresses and sites |
//! | `choice` | the choice of the egress in these worlds |
//! | `transit` | detours of the path to an egress |
//! | `chain` | hosts from the passenger to the server |
//! | `first_byte`, [`cells`], `cut`, `flights` | its figures |
//! | `seeds` | seeds of runs |

pub mod cells;
mod chain;
mod choice;
mod cut;
mod first_byte;
mod flights;
mod globe;
pub mod leg;
mod seeds;
mod transit;
pub mod worlds;

use super::engine::{Engine, Kind};
use super::findings::Findings;
use super::report::Report;
use super::runner::Experiment;
pub use seeds::Seeds;

/// Name of the experiment in its rows.
const NAME: &str = "mesh";

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Transports between hub and egress.
    Leg,
    /// Choice of the egress.
    Choice,
    /// Detours of the path to an egress.
    Transit,
    /// First byte of a new flow.
    FirstByte,
    /// NetForecast's eight cells.
    Cells,
    /// A leg that loses half of its rate.
    Cut,
    /// NetForecast's flight and hubs.
    Flights,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 7] = [
        Self::Leg,
        Self::Choice,
        Self::Transit,
        Self::FirstByte,
        Self::Cells,
        Self::Cut,
        Self::Flights,
    ];

    /// Name of the part.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leg => "leg",
            Self::Choice => "choice",
            Self::Transit => "transit",
            Self::FirstByte => "first-byte",
            Self::Cells => "cells",
            Self::Cut => "cut",
            Self::Flights => "flights",
        }
    }

    fn play(self, seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
        match self {
            Self::Leg => leg::play(seeds, findings)?,
            Self::Choice => choice::play(seeds.first, findings),
            Self::Transit => transit::play(seeds.first, findings),
            Self::FirstByte => first_byte::play(seeds, findings)?,
            Self::Cells => cells::play(seeds, findings)?,
            Self::Cut => cut::play(seeds, findings)?,
            Self::Flights => flights::play(seeds, findings)?,
        }
        Ok(())
    }
}

/// Selected parts.
#[derive(Debug, Clone)]
pub struct Mesh {
    /// The parts.
    pub parts: Vec<Part>,
    /// Seeds of their runs.
    pub seeds: Seeds,
}

impl Experiment for Mesh {
    fn engines(&self) -> Vec<Kind> {
        vec![Kind::Sim]
    }

    fn run(&self, engine: &Engine<'_>) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for part in &self.parts {
            let mut findings = Findings::new(NAME, part.name());
            part.play(self.seeds, &mut findings)?;
            report.append(findings.report(engine.name(), None, self.seeds.first));
        }
        Ok(report)
    }
}
