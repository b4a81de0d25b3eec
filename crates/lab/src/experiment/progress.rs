//! A live line on a terminal; silence elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::transfers::{Plan, Progress};

/// What a running experiment shows.
pub struct Live {
    bar: ProgressBar,
    worlds: usize,
}

impl Live {
    /// For `plan`, drawn on standard error if that is a terminal.
    pub fn new(plan: &Plan<'_>) -> Self {
        let bar = ProgressBar::with_draw_target(
            Some(plan.run_count() as u64),
            ProgressDrawTarget::stderr_with_hz(4),
        );
        let style = ProgressStyle::with_template("{elapsed:>4} {bar:28} {pos}/{len} runs  {msg}");
        bar.set_style(style.expect("a constant template").progress_chars("━╸ "));
        bar.set_message("bringing up the links");
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, worlds: plan.world_count() }
    }

    /// Takes in what has happened.
    pub fn tell(&self, progress: Progress) {
        match progress {
            Progress::Measured(number) if number < self.worlds => {
                self.bar.set_message(format!("{number}/{} links are as declared", self.worlds));
            }
            Progress::Measured(number) => {
                self.bar.set_message(format!("all {number} links are as declared"));
            }
            Progress::Run(contender, _) => {
                self.bar.inc(1);
                if self.bar.position() * 4 > self.bar.length().unwrap_or(0) * 3 {
                    self.bar.set_message(format!("last: {contender}"));
                }
            }
            Progress::Skipped(runs) => self.bar.inc(runs as u64),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
