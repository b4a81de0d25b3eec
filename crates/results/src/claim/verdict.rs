//! Verdict on a claim, and the number of cells behind it.

use crate::measured::Cell;

/// Number of runs up to which a bootstrap knows too little: three runs show the extremes of many by
/// chance.
pub(super) const FEW_RUNS: usize = 3;

/// Maximum number of runs of a cell that a pilot asks for. The full plan has 13 on average, and a
/// hundred narrow an interval to a third. A claim that needs more gets these.
pub const MAX_RUNS: u32 = 100;

/// Verdict of the measured cells on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Outcome.
    pub outcome: Outcome,
    /// Value over all combinations, if they are decided. For `all` it is the value nearest to
    /// breaking the bound or farthest beyond it. For `fraction` it is the fraction that satisfies
    /// the bound. If cells are missing, it covers only the measured ones.
    pub found: Option<f64>,
    /// Bootstrap interval of `found`, of 95 %. `None` if there is no spread: each cell has one run,
    /// and no cell of the same metric has several. Then only an exact bound decides.
    pub interval: Option<(f64, f64)>,
    /// Number of runs of each cell that would probably decide an undecided claim. `None` if it is
    /// decided, if cells are missing, or if no number would decide it.
    pub runs_to_decide: Option<u32>,
    /// Figure of every planned combination. Empty if nothing was measured.
    pub figures: Vec<Figure>,
    /// Number of cells behind the verdict.
    pub cover: Cover,
}

/// Outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Reproduced: all planned cells were measured, and 97.5 % of the resamples support the claim.
    Reproduced,
    /// Not reproduced in 97.5 % of the resamples, whatever the missing cells may give.
    NotReproduced,
    /// Undecided, for one of these reasons: cells are missing; the interval contains the bound; few
    /// runs are near the bound; no cell has a spread; a value beyond the observed extremes matters; a quotient of two infinite or two zero values leaves it open.
    Undecided,
    /// No cell of the claim was measured.
    NotMeasured,
}

/// Judged value of one combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Columns of the combination, with their values.
    pub combination: Vec<(String, String)>,
    /// The value. It is infinite if something did not finish that should. `None` if it is
    /// undecided, or if missing cells leave no value. For pooled cells it covers only the measured
    /// ones.
    pub value: Option<f64>,
    /// `true` if it satisfies the bound. `None` if it is undecided or cells are missing.
    pub keeps: Option<bool>,
    /// Cells from which it was computed.
    pub cells: Vec<Cell>,
    /// Planned cells without a result.
    pub missing: Vec<Cell>,
}

/// Cells, runs and values behind a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover {
    /// Number of cells with a value for the claim.
    pub measured: usize,
    /// Number of cells planned for it, in the quick or the full run.
    pub planned: usize,
    /// Number of cells of the full run for it.
    pub full: usize,
    /// Smallest and largest number of runs of a measured cell.
    pub runs: (usize, usize),
    /// Smallest and largest number of values of a measured cell. There are more values than runs if
    /// a run gives one for each object or connection.
    pub values: (usize, usize),
    /// Number of planned cells with impossible values, which are left out.
    pub faulty: usize,
}

impl Verdict {
    /// Wording of its basis in reports: the cells and runs behind it, and the number of runs that
    /// would decide it.
    pub fn basis(&self) -> String {
        match self.runs_to_decide {
            Some(runs) if runs <= MAX_RUNS => {
                format!("{}; about {runs} runs each would decide", self.cover.words())
            }
            Some(_) => format!("{}; {MAX_RUNS} runs each would not decide", self.cover.words()),
            None => self.cover.words(),
        }
    }
}

impl Outcome {
    /// Wording in reports, for a claim of a paper.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        }
    }

    /// Wording in reports, for a goal of Bentpipe.
    pub fn goal_words(self) -> &'static str {
        match self {
            Self::Reproduced => "met",
            Self::NotReproduced => "missed",
            other => other.words(),
        }
    }
}

impl Cover {
    /// Wording in reports, such as `3 of 4 cells, 2 to 5 runs each; 16 cells in the full run`.
    pub fn words(&self) -> String {
        let cells =
            |count: usize| if count == 1 { "1 cell".into() } else { format!("{count} cells") };
        if self.planned == 0 {
            return format!("in the full run only, {}", cells(self.full));
        }
        let mut words = format!("{} of {}", self.measured, cells(self.planned));
        words += &match self.runs {
            (_, 0) => String::new(),
            (1, 1) => ", 1 run each".into(),
            (least, most) if least == most => format!(", {most} runs each"),
            (least, most) => format!(", {least} to {most} runs each"),
        };
        if self.faulty > 0 {
            words += &format!(", values of {} set aside", self.faulty);
        }
        if self.full > self.planned {
            words += &format!("; {} in the full run", cells(self.full));
        }
        words
    }
}
