//! Compares Bentpipe's own transport with HTTP/3 CONNECT over `mss`, in virtual time: the table of
//! the decision record. `cargo run --release -p bentpipe-lab --example transports [PROFILE]
//! [COUNT]`

use std::time::Duration;

use bentpipe_lab::profile::Profile;
use bentpipe_lab::sim::suite::compare::{SystemUnderTest, bulk, objects};

const SESSIONS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(120);
const BULK: Duration = Duration::from_secs(120);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let profile = Profile::find(&args.next().unwrap_or("mss".into()))?;
    let count: usize = args.next().map_or(Ok(60), |count| count.parse())?;
    let (loss, rtt) = (profile.forward_loss(), profile.link.rtt().as_secs_f64());
    let rate = profile.link.forward.rate().ok_or("the profile has no rate")?.bps() as f64;
    println!(
        "{}: {count} objects over {SESSIONS} sessions; seconds, x = times the limit",
        profile.name
    );
    for system in SystemUnderTest::ALL {
        for bytes in [10_000, 100_000, 1_000_000] {
            let limit = rtt + 8.0 * bytes as f64 / ((1.0 - loss) * rate);
            let mut took = Vec::new();
            for seed in 0..SESSIONS {
                let share = count.div_ceil(SESSIONS as usize);
                took.extend(objects(system, &profile, bytes, share, PATIENCE, seed)?);
            }
            took.sort();
            let [p50, p95] =
                [50, 95].map(|p| took[(took.len() * p / 100).min(took.len() - 1)].as_secs_f64());
            println!(
                "{:26} {bytes:>9} B  n {:>3}  p50 {p50:7.3} ({:5.2}x)  p95 {p95:7.3} ({:5.2}x)  limit {limit:.3}",
                system.name(),
                took.len(),
                p50 / limit,
                p95 / limit,
            );
        }
        let runs = (0..SESSIONS)
            .map(|seed| bulk(system, &profile, BULK, seed))
            .collect::<Result<Vec<_>, _>>()?;
        let mean = runs.iter().sum::<f64>() / runs.len() as f64;
        println!(
            "{:26}      bulk    n {:>3}  {:.0} kbit/s, {:.3} of (1-p) x rate",
            system.name(),
            runs.len(),
            mean / 1e3,
            mean / ((1.0 - loss) * rate)
        );
    }
    Ok(())
}
