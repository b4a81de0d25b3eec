//! Time until the first byte of a new flow arrives.

use std::time::Duration;

use anyhow::Context;
use bentpipe_results::statistics::percentile;

use super::cells::{NEAR, PROFILE, terrestrial};
use super::chain::{Chain, Links, Request};
use super::seeds::Seeds;
use crate::experiment::findings::Findings;
use crate::experiment::virtual_link::virtually;
use crate::profile::Profile;
use crate::sim::parallel;

/// Round trip between hub and egress.
const LEG: Duration = Duration::from_millis(100);
/// Round trips between egress and server.
const DIALS: [Duration; 2] = [NEAR, Duration::from_millis(20)];
/// Flows of a run, one after another.
const FLOWS: usize = 100;
/// Maximum time of a flow.
const LIMIT: Duration = Duration::from_secs(10);
/// Tolerance of the bound.
const TOLERANCE: Duration = Duration::from_millis(10);

/// Flows to servers at each distance.
pub fn play(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let radio = Profile::named(PROFILE)?.link;
    let rates = radio.return_.rate().zip(radio.forward.rate());
    let (up, down) = rates.context("the radio has no rate")?;
    for dial in DIALS {
        let links = Links {
            radio: radio.clone(),
            granted: [up, down],
            leg: Some(terrestrial(LEG)),
            dial: terrestrial(dial),
            others: None,
        };
        let runs: Vec<u64> = seeds.all().collect();
        let found = parallel::map(&runs, |seed| times(&links, *seed));
        let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
        let of = |q| percentile(&found, q).map(Duration::from_secs_f64);
        let bound = radio.rtt() + LEG + dial + TOLERANCE;
        findings.time(
            &format!("server {} ms behind the egress, p95", dial.as_millis()),
            of(0.95),
            bound,
        );
        let millis = |q| of(q).map_or("–".into(), |it| format!("{} ms", it.as_millis()));
        findings.say(&format!(
            "{} flows, dials of {} ms: median {}, p95 {}, most {}.",
            found.len(),
            dial.as_millis(),
            millis(0.5),
            millis(0.95),
            millis(1.0)
        ));
    }
    Ok(())
}

/// Times in seconds. A flow without an answer has the whole limit.
fn times(links: &Links, seed: u64) -> anyhow::Result<Vec<f64>> {
    virtually(async {
        let chain = Chain::start(links, seed).await?;
        let mut times = Vec::new();
        for _ in 0..FLOWS {
            let arrivals = chain.perform(Request { up: 0, down: 1 }, LIMIT).await?;
            times.push(arrivals.first().map_or(LIMIT, |(at, _)| *at).as_secs_f64());
        }
        Ok(times)
    })
}
