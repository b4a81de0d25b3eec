//! A live progress line on a terminal. There is no output elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::result::Sample;
use crate::system::SystemUnderTest;

/// Progress of the runs.
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    /// Number of testbeds whose links were measured to be as declared.
    Measured(usize),
    /// A run has ended.
    Run(&'static dyn SystemUnderTest, Sample),
    /// Runs that are skipped because the time of their testbed is over.
    Skipped(&'static dyn SystemUnderTest, usize),
}

/// Live display of running transfers.
pub struct Live {
    bar: ProgressBar,
    testbeds: usize,
    to_go: Mutex<RunsBySystem>,
}

/// Number of runs of each system under test.
pub type RunsBySystem = BTreeMap<&'static dyn SystemUnderTest, usize>;

impl Live {
    /// Display for this number of runs in all, of testbeds, and of runs of each system under test, on
    /// standard error if that is a terminal.
    pub fn new(runs: usize, testbeds: usize, to_go: RunsBySystem) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(4);
        let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
        let style =
            ProgressStyle::with_template("{elapsed_precise} {bar:28} {pos}/{len} runs  {wide_msg}");
        bar.set_style(style.expect("a constant template").progress_chars("━╸ "));
        bar.set_message("bringing up the links");
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, testbeds, to_go: Mutex::new(to_go) }
    }

    /// Updates the display.
    pub fn tell(&self, progress: Progress) {
        match progress {
            Progress::Measured(number) if number < self.testbeds => {
                self.bar.set_message(format!("{number}/{} links are as declared", self.testbeds));
            }
            Progress::Measured(_) => self.count(None, 0),
            Progress::Run(system, _) => self.count(Some(system), 1),
            Progress::Skipped(system, runs) => self.count(Some(system), runs),
        }
    }

    /// Counts runs that are over, and updates the number of remaining runs of each system under
    /// test once all links are measured.
    fn count(&self, system: Option<&'static dyn SystemUnderTest>, runs: usize) {
        self.bar.inc(runs as u64);
        let mut to_go = self.to_go.lock();
        if let Some(left) = system.and_then(|system| to_go.get_mut(&system)) {
            *left = left.saturating_sub(runs);
        }
        let left = to_go.iter().filter(|(_, left)| **left > 0);
        let left: Vec<_> = left.map(|(system, left)| format!("{system} {left}")).collect();
        self.bar.set_message(format!("to go: {}", left.join(", ")));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of simulated sessions.
pub struct Sessions(ProgressBar);

impl Sessions {
    /// Display on standard error if that is a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
        let style = ProgressStyle::with_template("{elapsed_precise} {bar:28} {pos}/{len} sessions");
        bar.set_style(style.expect("a constant template").progress_chars("━╸ "));
        Self(bar)
    }

    /// Shows the number of finished sessions, and their total number.
    pub fn tell(&self, over: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(over as u64);
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
