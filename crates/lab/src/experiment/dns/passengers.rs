//! Passengers who query popular names, each twice in a row.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::time::{Instant, sleep};

use super::Choice;
use super::testbed::{self, Testbed};

/// Number of popular names, as in the paper.
pub const NAMES: usize = 100;
/// Mean time between two names of one passenger.
pub const PAUSE: Duration = Duration::from_secs(30);

/// Two consecutive questions for one name.
pub struct Asked {
    /// Time of the first question since the beginning.
    pub at: Duration,
    /// Duration of each question.
    pub took: [Duration; 2],
}

/// Lets passengers query popular names for `length`.
pub async fn popular(
    choice: &Choice,
    length: Duration,
    seed: u64,
    testbed: &Arc<Testbed>,
) -> anyhow::Result<Vec<Asked>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let passengers = (0..choice.passengers).map(|number| {
        let (testbed, asked) = (testbed.clone(), asked.clone());
        let rng = ChaCha20Rng::seed_from_u64(seed ^ u64::from(number) << 32);
        tokio::spawn(async move { passenger(number, rng, began, length, &testbed, &asked).await })
    });
    for passenger in passengers.collect::<Vec<_>>() {
        passenger.await??;
    }
    let mut asked = asked.lock();
    Ok(std::mem::take(&mut *asked))
}

async fn passenger(
    number: u8,
    mut rng: ChaCha20Rng,
    began: Instant,
    length: Duration,
    testbed: &Testbed,
    asked: &Mutex<Vec<Asked>>,
) -> anyhow::Result<()> {
    let from = IpAddr::from([10, 1, 0, number]);
    loop {
        // A Poisson process.
        let pause = -(1.0 - rng.random::<f64>()).ln();
        sleep(PAUSE.mul_f64(pause)).await;
        let at = began.elapsed();
        if at >= length {
            return Ok(());
        }
        let name = format!("n{}.example", zipf(rng.random()));
        let mut took = [Duration::ZERO; 2];
        for took in &mut took {
            let (ip, time) = testbed.ask(from, &name).await?;
            is_right(&name, ip)?;
            *took = time;
        }
        asked.lock().push(Asked { at, took });
    }
}

/// Returns `Ok` if `ip` is the ground's answer for `name`.
pub fn is_right(name: &str, ip: Ipv4Addr) -> anyhow::Result<()> {
    let expected = testbed::address(name);
    if ip == expected { Ok(()) } else { Err(anyhow!("{name}: {ip}, not {expected}")) }
}

/// Rank for a draw from 0 to 1, if rank n has a weight of 1/n.
fn zipf(draw: f64) -> usize {
    let all: f64 = (1..=NAMES).map(|rank| 1.0 / rank as f64).sum();
    let mut left = draw * all;
    for rank in 1..NAMES {
        left -= 1.0 / rank as f64;
        if left < 0.0 {
            return rank;
        }
    }
    NAMES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_by_their_weight() {
        assert_eq!((zipf(0.0), zipf(0.999_999)), (1, NAMES));
        let draws = 100_000;
        let first = (0..draws).filter(|n| zipf(f64::from(*n) / f64::from(draws)) == 1).count();
        assert!((0.19..0.20).contains(&(first as f64 / f64::from(draws))), "{first}");
    }
}
