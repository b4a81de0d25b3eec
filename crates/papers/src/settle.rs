//! Pause between two runs in a testbed, until the first run's traffic is gone.

use std::thread;
use std::time::{Duration, Instant};

use bentpipe_lab::emu::{EmuError, LinkCounters, Testbed, WireCounters};

/// Time for the last acknowledgements and close messages of a run, in addition to two round trips.
pub const PAUSE: Duration = Duration::from_millis(200);
/// Time limit for the remaining traffic of a run: a proxy with a buffer of 4 MB can empty it over 1
/// Mbit/s.
pub const DRAIN: Duration = Duration::from_secs(40);
/// Rate in each direction below which a system counts as idle; at least two full packets are
/// allowed.
const IDLE_BPS: f64 = 32_000.0;
const IDLE_BYTES: f64 = 3000.0;

/// Counters of all radio links.
pub fn radio_counters(testbed: &Testbed) -> Result<Vec<LinkCounters>, EmuError> {
    (0..testbed.radios()).map(|path| testbed.counters_of(path)).collect()
}

/// Waits until only other users send over the radio links, at most for [`DRAIN`]. Returns whether
/// that is the case.
pub fn settle(testbed: &Testbed, rtt: Duration) -> Result<bool, EmuError> {
    let look = PAUSE.max(rtt);
    let bytes = || -> Result<[u64; 2], EmuError> {
        let radios = radio_counters(testbed)?;
        let of = |way: fn(&LinkCounters) -> &WireCounters| {
            radios.iter().map(|radio| way(radio).own().offered.bytes).sum()
        };
        Ok([of(|radio| &radio.forward), of(|radio| &radio.return_)])
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

/// Returns `true` if this number of bytes in this time does not count as a transfer.
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
