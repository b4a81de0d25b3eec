//! Progress of a run and its remaining time: a live line on a terminal, otherwise a line at
//! intervals.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Mutex, MutexGuard};

use bentpipe_lab::experiment::engine::Kind;

/// Interval between lines without a terminal.
const LINES: Duration = Duration::from_secs(30);
/// Share of a kind's work after which the measured pace replaces the estimate.
const SHOWN: f64 = 0.05;

/// Work of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Estimated sequential cost: seconds of emulated links, or of virtual time.
    pub cost: Duration,
    /// Estimated duration before any of the work is done.
    pub takes: Duration,
}

/// Progress display on standard error.
pub struct Progress {
    bar: ProgressBar,
    state: Mutex<State>,
}

struct State {
    began: Instant,
    said: Instant,
    cells: u64,
    all_cells: u64,
    pace: Pace,
    terminal: bool,
}

/// Progress by kind of work. Emulated links run in real time, and virtual time takes processor
/// time, so the pace of one says nothing about the other.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    work: [Work; 2],
    done: [Duration; 2],
    /// Kind in progress, and its start.
    now: Option<(usize, Duration)>,
}

impl Progress {
    /// Starts the display for this number of cells and the work of each [`Kind`]; prints the
    /// estimated time.
    pub fn new(all_cells: usize, work: [Work; 2]) -> Self {
        let takes: Duration = work.iter().map(|work| work.takes).sum();
        if all_cells > 0 {
            eprintln!("{all_cells} cells, about {}", minutes(takes));
        }
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
        let state = State {
            began: now,
            said: now,
            cells: 0,
            all_cells: all_cells as u64,
            pace: Pace { work, ..Pace::default() },
            terminal: std::io::stderr().is_terminal(),
        };
        Self { bar, state: Mutex::new(state) }
    }

    /// Starts work of this kind, after the other kind has ended.
    pub fn begin(&self, kind: Kind) {
        let mut state = self.lock();
        state.pace.now = Some((kind as usize, state.began.elapsed()));
    }

    /// Records a completed run with this estimated cost.
    pub fn ran(&self, kind: Kind, cost: Duration, what: &str) {
        self.spent(kind, cost);
        let mut state = self.lock();
        let left = match state.pace.left(state.began.elapsed()) {
            Some(left) => format!("about {} left", minutes(left)),
            None => String::new(),
        };
        self.bar.set_message(format!("{left}  {what}"));
        if !state.terminal && state.said.elapsed() >= LINES {
            state.said = Instant::now();
            let took = minutes(state.began.elapsed());
            eprintln!("{took}: {}/{} cells, {left}", state.cells, state.all_cells);
        }
    }

    /// Records that this part of a kind's work is no longer needed.
    pub fn spent(&self, kind: Kind, cost: Duration) {
        self.lock().pace.done[kind as usize] += cost;
    }

    /// Records a completed cell.
    pub fn cell(&self) {
        self.lock().cells += 1;
        self.bar.inc(1);
    }

    /// Prints a line that the user must see.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Pace {
    /// Remaining time, this long after the start: the current kind at its measured pace, the others
    /// as estimated.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let (now, since) = self.now?;
        let (work, done) = (self.work[now], self.done[now]);
        let to_go = work.cost.saturating_sub(done).as_secs_f64();
        let took = elapsed.saturating_sub(since).as_secs_f64();
        let share = done.as_secs_f64() / work.cost.as_secs_f64().max(1e-9);
        // Parallel testbeds end at about the same time, so at first nothing is done.
        let pace = if share < SHOWN {
            work.takes.as_secs_f64() / work.cost.as_secs_f64().max(1e-9)
        } else {
            took / done.as_secs_f64()
        };
        let behind: f64 = self.work[now + 1..].iter().map(|work| work.takes.as_secs_f64()).sum();
        Duration::try_from_secs_f64(to_go * pace + behind).ok()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Formats a duration as `1 h 02 min` or `12 min 30 s`.
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
    fn the_remaining_time_follows_the_present_kind_of_work() {
        let seconds = Duration::from_secs;
        let work = [
            Work { cost: seconds(1000), takes: seconds(10) },
            Work { cost: seconds(5000), takes: seconds(500) },
        ];
        let mut pace = Pace { work, ..Pace::default() };
        assert_eq!(pace.left(seconds(0)), None);
        pace.now = Some((Kind::Sim as usize, seconds(0)));
        assert_eq!(pace.left(seconds(1)), Some(seconds(510)), "as it was estimated");
        pace.done[Kind::Sim as usize] = seconds(500);
        assert_eq!(pace.left(seconds(20)), Some(seconds(520)), "at its own pace");
        pace.done[Kind::Sim as usize] = seconds(1000);
        pace.now = Some((Kind::Emu as usize, seconds(40)));
        assert_eq!(pace.left(seconds(50)), Some(seconds(500)), "that of the other says nothing");
        pace.done[Kind::Emu as usize] = seconds(1000);
        assert_eq!(pace.left(seconds(240)), Some(seconds(800)));
        pace.done[Kind::Emu as usize] = seconds(6000);
        assert_eq!(pace.left(seconds(900)), Some(Duration::ZERO));
    }

    #[test]
    fn times_are_written_as_people_say_them() {
        let of = |seconds| minutes(Duration::from_secs(seconds));
        assert_eq!(
            (of(5), of(750), of(3725)),
            ("5 s".into(), "12 min 30 s".into(), "1 h 02 min".into())
        );
    }
}
