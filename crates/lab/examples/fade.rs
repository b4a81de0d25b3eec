//! A rain fade, 4 → 1 Mbit/s for 60 s and back, over 600 ms: how soon it is followed by who tells.
//! And how often the breaker trips where nothing is wrong.
//! `cargo run --release -p bentpipe-lab --example fade [SEEDS] [HOURS]`

use std::time::Duration;

use bentpipe_lab::sim::fade::{self, RTT, Teller};
use bentpipe_lab::sim::steady;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seeds: u64 = args.next().map_or(Ok(10), |count| count.parse())?;
    let hours: u64 = args.next().map_or(Ok(10), |count| count.parse())?;
    let in_rtt = |time: Duration| time.as_secs_f64() / RTT.as_secs_f64();
    println!(
        "worst of {seeds} seeds, in round trips from the change; queue back within, used again after"
    );
    let one = Teller::Grant { aircraft: 1 };
    let tellers = [Teller::Nobody, Teller::Modem, one, Teller::Grant { aircraft: 3 }];
    for teller in tellers {
        for loss in ["0 %", "6 %"] {
            let runs: Vec<_> = (0..seeds).map(|seed| fade::run(teller, loss, seed)).collect();
            let worst = |of: &dyn Fn(&fade::Faded) -> f64| runs.iter().map(of).fold(0.0, f64::max);
            let least = |of: &dyn Fn(&fade::Faded) -> f64| runs.iter().map(of).fold(9.9, f64::min);
            let trips = [0, 1, 2].map(|at| runs.iter().map(|run| run.trips[at]).sum::<u64>());
            println!(
                "{:22} {loss:>4}: followed {:5.2}  queue gone {:5.2}  then at most {:4.2}  \
                 used in rain {:.3}  used again {:5.2}  later {:.3}  trips {trips:?}",
                format!("{teller:?}"),
                worst(&|run| in_rtt(run.followed)),
                worst(&|run| in_rtt(run.queue_gone)),
                worst(&|run| in_rtt(run.most_queue_later)),
                least(&|run| run.used_in_rain),
                worst(&|run| run.used_again.map_or(f64::INFINITY, in_rtt)),
                least(&|run| run.used_later),
            );
        }
    }
    for (profile, burst) in steady::CELLS {
        let trips: u64 = (0..hours).map(|seed| steady::hour(profile, burst, seed).trips).sum();
        println!("{profile} in bursts of {burst}: {trips} trips of the breaker in {hours} hours");
    }
    Ok(())
}
