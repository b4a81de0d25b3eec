//! Verdict of measured cells on a claim, and how many of the planned cells there are.

use crate::measured::Cell;

/// Verdict of measured cells on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Outcome.
    pub held: Held,
    /// Value taken over all combinations, if they are decided. For `all` it is the value nearest to
    /// breaking the bound or farthest beyond it; for `fraction` it is the share that keeps the
    /// bound. If cells are missing it covers those that are there.
    pub found: Option<f64>,
    /// Every combination that was planned; none where nothing was measured.
    pub figures: Vec<Figure>,
    /// Number of cells behind it.
    pub cover: Cover,
}

/// Outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// It does, by all cells that were planned.
    Held,
    /// It does not, whatever the cells that are missing may give.
    NotHeld,
    /// Cells are missing, or quotients of two infinite or of two zero values leave it open.
    Undecided,
    /// No cells that judge it were measured.
    NotMeasured,
}

/// Judged value of one combination.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The columns of the combination, with their values.
    pub combination: Vec<(String, String)>,
    /// The value, infinite where what should end did not; `None` where it is undecided, or where
    /// what is missing leaves none. Of pooled cells it is that of those that are there.
    pub value: Option<f64>,
    /// `true` if it keeps the bound; `None` if it is undecided or cells are missing.
    pub keeps: Option<bool>,
    /// The cells that it was made of.
    pub cells: Vec<Cell>,
    /// The cells that were planned for it and gave nothing.
    pub missing: Vec<Cell>,
}

/// Coverage of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover {
    /// The cells that gave what is judged.
    pub measured: usize,
    /// The cells that were planned for it, in the quick run or the full one.
    pub planned: usize,
    /// The cells that the full run has for it.
    pub full: usize,
    /// The least and the most runs of a measured cell.
    pub runs: (usize, usize),
    /// The same of values: more than runs where a run gives one for each object or connection.
    pub values: (usize, usize),
    /// The planned cells that gave values which cannot be: those are left out.
    pub faulty: usize,
}

impl Held {
    /// As reports write it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotHeld => "not held",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        }
    }
}

impl Cover {
    /// `3 of 4 cells, 2 to 5 runs each; 16 cells in the full run`, as reports write it.
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
