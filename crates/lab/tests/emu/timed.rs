//! Tests whose result depends on time. A machine that is too busy for the emulator says nothing
//! about the code.

use bentpipe_lab::emu::Lateness;

/// Attempts at a test while the emulator is late.
const ATTEMPTS: u32 = 3;

/// Result of an attempt: the emulator's lateness, and the failure if there was one.
pub type Attempt = (Lateness, Result<(), String>);

/// Plays `test`, and plays it again if it failed while the emulator was late.
pub fn timed(test: impl Fn() -> Attempt) {
    for attempt in 1.. {
        let (lateness, Err(failure)) = test() else { return };
        match lateness.judge() {
            Err(late) if attempt < ATTEMPTS => println!("  played again: {failure}; {late}"),
            _ => panic!("{failure}"),
        }
    }
}
