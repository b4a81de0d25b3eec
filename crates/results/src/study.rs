//! A published study as data: `experiments/PAPER.toml`, whose schema is `experiments/README.md`.

mod check;
mod grid;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub(crate) use check::once;
pub use grid::{Grid, Planned, Shard, ShardError};

use crate::measured::{Cell, Measured, Pattern};
use crate::statistics::Statistic;

/// The contenders that a cell may name; what they are stands in `experiments/README.md`.
pub const CONTENDERS: [&str; 15] = [
    "e2e-reno",
    "e2e-cubic",
    "e2e-bbr",
    "e2e-cubic-64k",
    "split-reno",
    "split-cubic",
    "split-bbr",
    "pep-fixed",
    "pep-http",
    "kcptun",
    "bentpipe",
    "bentpipe-plain",
    "bentpipe-aerotcp",
    "bentpipe-masque",
    "bentpipe-services",
];

/// The protocols that a cell may name.
pub const PROTOCOLS: [&str; 8] = [
    "http/1.1",
    "http/1.1-close",
    "http/1.1-tls",
    "http/1.1-tls-resumed",
    "http/2",
    "http/2-proxied",
    "http/3",
    "http/3-0rtt",
];

/// The files built in, by their name.
const BUILT_IN: [(&str, &str); 5] = [
    ("mile-high", include_str!("../../../experiments/mile-high.toml")),
    ("aerotcp", include_str!("../../../experiments/aerotcp.toml")),
    ("rural-paws", include_str!("../../../experiments/rural-paws.toml")),
    ("spdy", include_str!("../../../experiments/spdy.toml")),
    ("netforecast", include_str!("../../../experiments/netforecast.toml")),
];

/// One published study and how it is repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// As its file is called.
    pub name: String,
    /// The paper's title.
    pub paper: String,
    /// Who wrote it.
    pub authors: String,
    /// When, where the text has it.
    pub year: Option<u16>,
    /// Where it appeared, where the text has it.
    pub venue: Option<String>,
    /// What it is about.
    pub about: String,
    /// What else should be known of it.
    pub note: Option<String>,
    /// What is loaded.
    pub pages: Vec<Page>,
    /// Changes of path or hosts.
    pub conditions: Vec<Condition>,
    /// What is measured.
    pub grids: Vec<Grid>,
    /// What the report shows.
    pub sections: Vec<Section>,
    /// Claims that no run here can judge.
    pub unchecked: Vec<Unchecked>,
    /// The text of its file, for whoever makes a digest of it.
    pub text: String,
}

/// What is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its name.
    pub id: String,
    /// What it is made of.
    pub content: Content,
    /// What it stands for.
    pub about: Option<String>,
}

/// What a page is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Objects of one size.
    Objects {
        /// How many.
        count: u32,
        /// Of each.
        bytes: u64,
    },
    /// A site as the averages of its visits describe it.
    Site {
        /// Opened by the paper's browser.
        connections: u32,
        /// Of all objects together, in units of 1000 bytes.
        kilobytes: f64,
        /// For objects.
        requests: f64,
        /// They are on.
        domains: f64,
    },
    /// What the grid's settings say: a mix of readers.
    Mix,
}

/// A named change of path or hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Its name.
    pub id: String,
    /// What it stands for.
    pub about: String,
    /// What is changed.
    pub set: Changes,
}

/// What a condition changes; what is absent stays as the link's profile and the workload have it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Changes {
    /// Of the link, in each direction, as a share of its packets.
    pub loss: Option<f64>,
    /// Of the link, in each direction, as a share of its bits.
    pub ber: Option<f64>,
    /// Mean length of a burst of losses in packet times.
    pub burst: Option<f64>,
    /// Between ground gateway and server.
    pub terrestrial_rtt_ms: Option<f64>,
    /// Between ground gateway and server, in each direction, as a share.
    pub terrestrial_loss: Option<f64>,
    /// Endless CUBIC transfers of others through the link's queue, in the same direction.
    pub cross_flows: Option<u32>,
    /// What they leave of the rate to one connection.
    pub fair_share: Option<f64>,
    /// Of TCP, in segments.
    pub initial_window: Option<u32>,
    /// TCP Fast Open.
    pub fast_open: Option<bool>,
    /// Whether TCP starts over after a pause.
    pub slow_start_after_idle: Option<bool>,
    /// Of TCP at client and server.
    pub congestion: Option<Congestion>,
    /// Of TCP's send and receive buffers, at most.
    pub buffer_bytes: Option<u64>,
    /// Of TCP's receive window, at most.
    pub receive_window_bytes: Option<u64>,
    /// Which TLS.
    pub tls: Option<TlsVersion>,
    /// Of an HTTP/2 connection, at once.
    pub max_streams: Option<u32>,
    /// Another connection is tried when one is not up in this time.
    pub connect_retry_ms: Option<u64>,
    /// Who saturate the lowest class.
    pub lower_effort_passengers: Option<u32>,
    /// Of each of them.
    pub connections_each: Option<u32>,
}

/// A kernel's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum Congestion {
    Reno,
    Cubic,
    Bbr,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

/// What one run of a cell does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The emulator's measurement of its link.
    MeasureLink,
    /// A document and its objects.
    Page,
    /// A site of several domains, replayed.
    Archive,
    /// A file on each of several connections, all begun at once.
    Files,
    /// Readers of pages and of files for a fixed time.
    Mixed,
    /// The page's objects one after another on one connection.
    Sequence,
    /// Endless transfers, measured in steady state.
    Bulk,
    /// A reader of public services, with and without saturated lower effort.
    RuralPolicy,
}

/// What the report shows of a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name.
    pub id: String,
    /// Its place in the paper.
    pub at: String,
    /// Its heading.
    pub title: String,
    /// Whose cells.
    pub grid: String,
    /// Which of them.
    pub cells: Pattern,
    /// The contender that plays the paper's part with today's software.
    pub today: Option<String>,
    /// The contender beside it.
    pub with: Option<String>,
    /// What the paper did.
    pub method: String,
    /// What we do.
    pub ours: String,
    /// Each difference.
    pub deviations: Vec<String>,
    /// What is drawn.
    pub figure: Figure,
    /// Metrics that the tables show besides the figure's.
    pub also: Vec<String>,
    /// Where the paper contradicts itself, and the like.
    pub note: Option<String>,
    /// What the paper found.
    pub paper: Vec<Stated>,
}

/// What is drawn: the names of columns or metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// How.
    pub kind: FigureKind,
    /// Along.
    pub x: String,
    /// Upwards.
    pub y: String,
    /// By colours.
    pub colour: Option<String>,
    /// Side by side.
    pub facet: Option<String>,
}

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum FigureKind {
    Lines,
    Bars,
    Cdf,
    Box,
    Scatter,
    Waterfall,
    Table,
}

/// A value that the paper gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    /// The cells that it speaks of.
    pub cells: Pattern,
    /// For a quotient, in what the cells divided by differ.
    pub against: Option<Pattern>,
    /// Of what.
    pub metric: String,
    /// In what unit, the metric's or `ratio` for a quotient.
    pub unit: String,
    /// How cells become one number.
    pub kind: Kind,
    /// The number.
    pub value: StatedValue,
    /// The paper's words, paraphrased, and their place.
    pub text: String,
}

/// A number as a paper gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatedValue {
    /// One.
    Number(f64),
    /// A range, open where it has one bound only.
    Range(Option<f64>, Option<f64>),
    /// The text that we have does not hold it.
    Lost,
}

/// How the runs of cells, or the quotients of cells, become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their own names")]
pub enum Kind {
    #[default]
    Median,
    Mean,
    Max,
    Min,
    P95,
    /// The least of times.
    Best,
}

/// A claim of the paper that no run here can judge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    /// Its place in the paper.
    pub at: String,
    /// What it says.
    pub claim: String,
    /// Why nobody here can tell.
    pub why: String,
}

/// Why there is no study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// No study of that name is built in.
    #[error("there is no experiment {name:?}: there are {}", names())]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file could not be read.
    #[error("cannot read the experiment {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a study.
    #[error("{place}: {why}")]
    Wrong {
        /// The file, with the line if one can be named.
        place: String,
        /// What is wrong and what to write instead.
        why: String,
    },
}

fn names() -> String {
    Study::names().collect::<Vec<_>>().join(", ")
}

impl Study {
    /// The names of those built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// All that are built in.
    pub fn all() -> Result<Vec<Self>, StudyError> {
        BUILT_IN
            .iter()
            .map(|(name, text)| Self::parse(name, &format!("experiments/{name}.toml"), text))
            .collect()
    }

    /// The one built in under `name`.
    pub fn named(name: &str) -> Result<Self, StudyError> {
        let unknown = || StudyError::Unknown { name: name.into() };
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        Self::parse(name, &format!("experiments/{name}.toml"), text)
    }

    /// Reads one file, whose name is the study's.
    pub fn load(path: &Path) -> Result<Self, StudyError> {
        let read = |source| StudyError::Read { path: path.into(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &path.display().to_string(), &text)
    }

    /// Reads every experiment of a folder, in the order of their names: every file that ends in
    /// `.toml`, but for `claims.toml`.
    pub fn load_folder(folder: &Path) -> Result<Vec<Self>, StudyError> {
        let read = |source| StudyError::Read { path: folder.into(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let claims = path.file_name().is_some_and(|name| name == "claims.toml");
            if path.extension().is_some_and(|extension| extension == "toml") && !claims {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::load(path)).collect()
    }

    /// Reads the text of a study's file; `place` is how errors call it.
    pub fn parse(name: &str, place: &str, text: &str) -> Result<Self, StudyError> {
        let study = parse::parse(name, place, text)?;
        let wrong = |why| StudyError::Wrong { place: place.into(), why };
        check::check(&study).map_err(wrong)?;
        Ok(study)
    }

    /// The grid with this `id`.
    pub fn grid(&self, id: &str) -> Option<&Grid> {
        self.grids.iter().find(|grid| grid.id == id)
    }

    /// The section with this `id`.
    pub fn section(&self, id: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.id == id)
    }

    /// The page with this `id`.
    pub fn page(&self, id: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.id == id)
    }

    /// The condition with this `id`.
    pub fn condition(&self, id: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.id == id)
    }

    /// Everything to run, always in the same order: the grids as they stand in the file, each with
    /// its cells in the order of [`Grid::cells`].
    pub fn plan(&self, quick: bool) -> impl Iterator<Item = (&Grid, &Planned)> {
        self.grids.iter().flat_map(move |grid| {
            let cells = if quick { &grid.quick } else { &grid.cells };
            cells.iter().map(move |planned| (grid, planned))
        })
    }
}

impl Stated {
    /// The cells that it speaks of, of those `shown`, with `contender` in place of the one it names.
    fn asked(&self, shown: &Pattern, contender: Option<&str>) -> Pattern {
        let asked = self.cells.or(shown);
        match contender {
            Some(contender) => Pattern::of([("contender", &[contender][..])]).or(&asked),
            None => asked,
        }
    }

    /// Whether some of `cells` would show what it speaks of, as [`Stated::found`] looks for it.
    pub fn is_in(&self, cells: &[Planned], shown: &Pattern, contender: Option<&str>) -> bool {
        let asked = self.asked(shown, contender);
        let there = |cell: &Cell| cells.iter().any(|planned| planned.cell == *cell);
        let mut mine = cells.iter().filter(|planned| asked.matches(&planned.cell));
        mine.any(|one| self.against.as_ref().is_none_or(|other| there(&other.moved(&one.cell))))
    }

    /// What was measured where the paper gives this value: in the cells that it speaks of, of those
    /// `shown` by its section, and with `contender` in place of the one that it names, if one is
    /// given. `among` are all measured cells of the grid. `None` where nothing was measured.
    pub fn found<'a>(
        &self,
        among: &BTreeMap<&Cell, &'a Measured>,
        shown: &Pattern,
        contender: Option<&str>,
    ) -> Option<Found<'a>> {
        let mut used = Vec::new();
        let mut values = Vec::new();
        let statistic = if self.kind == Kind::P95 { Statistic::P95 } else { Statistic::Median };
        let asked = self.asked(shown, contender);
        for (cell, measured) in among.iter().filter(|(cell, _)| asked.matches(cell)) {
            let Some(against) = &self.against else {
                values.extend(measured.values(&self.metric));
                used.push(*measured);
                continue;
            };
            let Some(other) = among.get(&against.moved(cell)) else { continue };
            let of = |one: &Measured| statistic.of(&one.values(&self.metric));
            if let (Some(one), Some(two)) = (of(measured), of(other)) {
                values.push(one / two);
                used.extend([*measured, *other]);
            }
        }
        values.retain(|value| !value.is_nan());
        let value = self.kind.of(&values, self.against.is_some())?;
        Some(Found { value, values, cells: used })
    }
}

/// What the measured cells say where a paper gives a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<'a> {
    /// The one number.
    pub value: f64,
    /// What it was made of: the runs of all the cells, or the quotients of pairs of cells.
    pub values: Vec<f64>,
    /// The cells.
    pub cells: Vec<&'a Measured>,
}

impl Kind {
    /// Of the values of all runs; or of quotients, which are of the cells' 95th percentiles where
    /// that is the kind, and are then averaged.
    fn of(self, values: &[f64], quotients: bool) -> Option<f64> {
        self.statistic(quotients).of(values)
    }

    /// What is made of the values of all runs, or of quotients.
    pub fn statistic(self, quotients: bool) -> Statistic {
        match self {
            Self::P95 if quotients => Statistic::Mean,
            Self::P95 => Statistic::P95,
            Self::Median => Statistic::Median,
            Self::Mean => Statistic::Mean,
            Self::Max => Statistic::Max,
            Self::Min | Self::Best => Statistic::Min,
        }
    }
}

impl Section {
    /// The columns in which the cells of `grid` that the section shows differ.
    pub fn varying(&self, grid: &Grid) -> Vec<&'static str> {
        let cells: Vec<&Cell> = grid
            .cells
            .iter()
            .map(|planned| &planned.cell)
            .filter(|cell| self.cells.matches(cell))
            .collect();
        let varies = |column: &&str| {
            cells.iter().any(|cell| cell.on(column) != cells.first().and_then(|one| one.on(column)))
        };
        crate::measured::COLUMNS.into_iter().filter(varies).collect()
    }
}
