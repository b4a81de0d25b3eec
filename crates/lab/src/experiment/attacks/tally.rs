//! Progress of an attack, its thread and its rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::emu::{EmuError, Host, Service, give_way};

/// Interval between checks for due attempts.
const TICK: Duration = Duration::from_millis(1);

/// Progress of an attack.
#[derive(Default)]
pub struct Tally {
    /// Connections, streams or datagrams so far.
    pub made: AtomicU64,
    /// Attempts that were due so far, if the attack has a rate.
    pub due: AtomicU64,
    /// Connections, flows or downloads tried so far, if the attack holds a number of them.
    pub tried: AtomicU64,
    /// Bytes received so far, if the attack is a download.
    pub bytes: AtomicU64,
    /// Attempts that the attacker saw refused or reset.
    pub refused: AtomicU64,
    /// `true` once the attack is established: it holds its connections, or has reached its rate.
    pub stands: AtomicBool,
}

impl Tally {
    /// Fraction of the demanded attempts that the attacker has made: attempts that were due at its
    /// rate, or `demanded` connections, flows or downloads. Refused attempts count.
    pub fn strength(&self, demanded: u64) -> f64 {
        let [made, due, tried] =
            [&self.made, &self.due, &self.tried].map(|count| count.load(Relaxed));
        let (attempts, demanded) = if due > 0 { (made, due) } else { (tried, demanded) };
        attempts as f64 / demanded as f64
    }
}

/// Starts an attacker's thread inside `host`. A real attacker has a separate computer, so this
/// thread only uses processor time that the gateways leave.
pub fn start<F: Future<Output = ()>>(
    host: &Host,
    attack: impl FnOnce() -> F + Send + 'static,
) -> Result<Service, EmuError> {
    Service::start(host, move || {
        give_way();
        attack()
    })
}

/// Calls `act` `rate` times per second forever, with the number of each call. `act` returns `false`
/// if this machine had nothing left for the attempt, such as sockets.
pub async fn paced(rate: u64, tally: &Tally, mut act: impl FnMut(u64) -> bool) {
    let began = Instant::now();
    let mut done = 0;
    loop {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        // Calls that this machine had no time for are not made up for later.
        let first = done.max(due.saturating_sub(rate.div_ceil(10)));
        let made = (first..due).filter(|number| act(*number)).count();
        tally.made.fetch_add(made as u64, Relaxed);
        tally.due.fetch_add(due - done, Relaxed);
        done = due;
        if due >= rate {
            tally.stands.store(true, Relaxed);
        }
        sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_of_a_third_of_what_is_demanded_is_a_third_strong() {
        let tally = Tally::default();
        assert_eq!(tally.strength(20_480), 0.0);
        for count in [&tally.made, &tally.tried] {
            count.store(7_373, Relaxed);
        }
        assert!((tally.strength(20_480) - 0.36).abs() < 1e-3);
        tally.stands.store(true, Relaxed);
        assert!((tally.strength(20_480) - 0.36).abs() < 1e-3, "no matter whether it stands");
        tally.due.store(14_746, Relaxed);
        assert_eq!(tally.strength(20_480), 0.5, "a rate counts what was due");
    }
}
