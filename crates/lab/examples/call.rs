//! What a call comes to over mss, seed by seed: `cargo run --example call -- [seconds] [seeds]`.

use std::time::Duration;

use bentpipe_lab::sim::call::{Heard, call, link};
use bentpipe_link::Class;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (seconds, seeds) = (numbers.next().unwrap_or(120), numbers.next().unwrap_or(8));
    for (loss, burst) in [(6.0, 1.0), (6.0, 4.0), (2.0, 1.0), (15.0, 1.0), (0.0, 1.0)] {
        let length = Duration::from_secs(seconds);
        let heard: Vec<Heard> = (0..seeds)
            .flat_map(|seed| call(&link(loss, burst), Class::Network, length, seed))
            .collect();
        let mean =
            |of: &dyn Fn(&Heard) -> f64| heard.iter().map(of).sum::<f64>() / heard.len() as f64;
        let most = |of: &dyn Fn(&Heard) -> f64| heard.iter().map(of).fold(0.0, f64::max);
        let residual = |one: &Heard| 100.0 * one.residual();
        let redundancy = |one: &Heard| 100.0 * one.redundancy();
        let p95 = |one: &Heard| 1000.0 * one.added_delay(0.95).as_secs_f64();
        println!(
            "{loss} % in bursts of {burst}: left {:.2} % (worst {:.2}), repairs {:.1} % (most {:.1}), \
             added at p95 {:.0} ms (most {:.0}); lost {:.1} %",
            mean(&residual),
            most(&residual),
            mean(&redundancy),
            most(&redundancy),
            mean(&p95),
            most(&p95),
            mean(&|one| 100.0 * one.counters.packets_lost as f64
                / one.counters.packets_judged as f64),
        );
    }
}
