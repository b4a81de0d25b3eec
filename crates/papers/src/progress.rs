//! How far a run is, and how long it still takes: a live line on a terminal, a line from time to
//! time elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(30);

/// What is shown on standard error.
pub struct Progress {
    bar: ProgressBar,
    state: Mutex<State>,
}

struct State {
    began: Instant,
    said: Instant,
    cells: u64,
    all_cells: u64,
    /// Of everything, as it was estimated.
    cost: Duration,
    done: Duration,
    terminal: bool,
}

impl Progress {
    /// Of so many cells, that are estimated to cost so much one after another.
    pub fn new(all_cells: usize, cost: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(
            Some(all_cells as u64),
            ProgressDrawTarget::stderr_with_hz(4),
        );
        let style = ProgressStyle::with_template(
            "{elapsed_precise} {bar:24} {pos}/{len} cells  {wide_msg}",
        );
        bar.set_style(style.expect("a constant template").progress_chars("━╸ "));
        bar.enable_steady_tick(Duration::from_millis(500));
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        let state = State {
            began: now,
            said: now,
            cells: 0,
            all_cells: all_cells as u64,
            cost,
            done: Duration::ZERO,
            terminal,
        };
        Self { bar, state: Mutex::new(state) }
    }

    /// A run that was estimated so is over.
    pub fn ran(&self, cost: Duration, what: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += cost;
        let left = state.left();
        self.bar.set_message(format!("{left}  {what}"));
        if !state.terminal && state.said.elapsed() >= LINES {
            state.said = Instant::now();
            let took = minutes(state.began.elapsed());
            eprintln!("{took}: {}/{} cells, {left}", state.cells, state.all_cells);
        }
    }

    /// A cell is complete.
    pub fn cell(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).cells += 1;
        self.bar.inc(1);
    }

    /// Something that has to be read.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl State {
    /// By how long what is done took, against what it was estimated.
    fn left(&self) -> String {
        if self.done.is_zero() {
            return String::new();
        }
        let to_go = self.cost.saturating_sub(self.done).as_secs_f64();
        let pace = self.began.elapsed().as_secs_f64() / self.done.as_secs_f64();
        format!("about {} left", minutes(Duration::from_secs_f64(to_go * pace)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// As `1 h 02 min`, `12 min 30 s`.
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        3600.. => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        60.. => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_say_them() {
        let of = |seconds| minutes(Duration::from_secs(seconds));
        assert_eq!(
            (of(5), of(750), of(3725)),
            ("5 s".into(), "12 min 30 s".into(), "1 h 02 min".into())
        );
    }
}
