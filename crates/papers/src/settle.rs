//! Between two runs in a world: what the first left behind has to be gone before the second.

use std::thread;
use std::time::{Duration, Instant};

use bentpipe_lab::emu::{EmuError, World};

/// Acknowledgements and farewells of a run take so long, and two round trips.
pub const PAUSE: Duration = Duration::from_millis(200);
/// Time within which the remains of a run must be gone: a proxy with a buffer of 4 MB empties it
/// over 1 Mbit/s meanwhile.
pub const DRAIN: Duration = Duration::from_secs(40);
/// Rate, each way, below which a contender counts as idle; at least two full packets.
const IDLE_BPS: f64 = 32_000.0;
const IDLE_BYTES: f64 = 3000.0;

/// Waits until nobody but other users sends anything over the radio link to speak of, at most for
/// [`DRAIN`]; whether that is so.
pub fn settle(world: &World, rtt: Duration) -> Result<bool, EmuError> {
    let look = PAUSE.max(rtt);
    let bytes = || -> Result<[u64; 2], EmuError> {
        let counters = world.radio_counters()?;
        Ok([&counters.forward, &counters.return_].map(|way| way.own().offered.bytes))
    };
    let began = Instant::now();
    thread::sleep(rtt);
    let mut before = bytes()?;
    while began.elapsed() < DRAIN {
        thread::sleep(look);
        let after = bytes()?;
        if [0, 1].iter().all(|&way| is_idle(after[way] - before[way], look)) {
            return Ok(true);
        }
        before = after;
    }
    Ok(false)
}

/// Returns `true` if so many bytes in a time are not a transfer.
fn is_idle(bytes: u64, time: Duration) -> bool {
    bytes as f64 <= IDLE_BYTES.max(IDLE_BPS / 8.0 * time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_no_transfer() {
        let time = Duration::from_millis(500);
        assert!(is_idle(0, time) && is_idle(3000, time));
        assert!(!is_idle(3001, time) && is_idle(4000, Duration::from_secs(1)));
    }
}
