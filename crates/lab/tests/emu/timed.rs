//! Tests whose result depends on time. A machine that is too busy for the emulator, or for the senders
//! beside it, says nothing about the code.

use std::fs;
use std::time::{Duration, Instant};

use bentpipe_lab::emu::Lateness;

/// Attempts at a test on a busy machine.
const ATTEMPTS: u32 = 3;

/// Maximum time for which the threads of this process together may wait for a processor, as a share of
/// the test's duration.
const MAX_WAIT: f64 = 0.25;

/// Result of an attempt: the emulator's lateness, and the failure if there was one.
pub type Attempt = (Lateness, Result<(), String>);

/// Plays `test`, and plays it again if it failed while the machine was busy. If the machine stays busy, the
/// test is skipped, and says so.
pub fn timed(test: impl Fn() -> Attempt) {
    for _ in 0..ATTEMPTS {
        let (began, before) = (Instant::now(), waited());
        let (lateness, Err(failure)) = test() else { return };
        let wait = waited().saturating_sub(before).div_duration_f64(began.elapsed());
        match lateness.judge() {
            Err(late) => println!("  no result: {failure}; {late}"),
            Ok(()) if wait > MAX_WAIT => {
                println!(
                    "  no result: {failure}; the senders waited {wait:.2} of the time for a processor"
                );
            }
            Ok(()) => {
                panic!("{failure} (the senders waited {wait:.2} of the time for a processor)")
            }
        }
    }
    println!("SKIPPED: this machine is too busy: in {ATTEMPTS} attempts nothing could be measured");
}

/// Time for which the present threads of this process have waited for a processor.
fn waited() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}
