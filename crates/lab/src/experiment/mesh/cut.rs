//! The leg loses half of its rate in the middle of a transfer.

use std::time::Duration;

use anyhow::Context;

use super::cells::{NEAR, PROFILE, terrestrial};
use super::chain::{Arrivals, Chain, Links, Request};
use super::leg;
use super::seeds::Seeds;
use crate::experiment::findings::Findings;
use crate::experiment::virtual_link::virtually;
use crate::profile::Profile;
use crate::sim::parallel;
use crate::sim::share::symmetric;

/// Round trip of the leg.
const RTT: Duration = Duration::from_millis(100);
/// Rates of the leg before and after the cut.
const MBPS: [u64; 2] = [10, 5];
/// Time of the cut after the opening.
const CUT_AT: Duration = Duration::from_secs(15);
/// Bytes of the transfer.
const BYTES: u64 = 30_000_000;
/// Maximum time of the transfer.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum pause of the passenger's arrivals.
const MAX_GAP: Duration = Duration::from_millis(300);

/// Transfers, each with a cut.
pub fn play(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let runs: Vec<u64> = seeds.all().collect();
    let found = parallel::map(&runs, |seed| transfer(*seed));
    let gaps = found.iter().map(|it| it.as_ref().ok().and_then(longest_gap));
    // A transfer that ends early has no longest gap.
    let longest = gaps.collect::<Option<Vec<_>>>().and_then(|gaps| gaps.into_iter().max());
    findings.time("10 Mbit/s become 5, longest gap", longest, MAX_GAP);
    let resets = found.iter().filter(|it| it.is_err()).count();
    findings.at_most("resets", resets as f64, 0.0);
    found.iter().filter_map(|it| it.as_ref().err()).for_each(|it| findings.say(&it.to_string()));
    Ok(())
}

fn transfer(seed: u64) -> anyhow::Result<Arrivals> {
    let radio = Profile::named(PROFILE)?.link;
    let rates = radio.return_.rate().zip(radio.forward.rate());
    let (up, down) = rates.context("the radio has no rate")?;
    let [before, after] =
        MBPS.map(|mbps| symmetric(&leg::path(&format!("{mbps} Mbit/s"), "1 BDP", RTT / 2, mbps)));
    let links = Links {
        radio,
        granted: [up, down],
        leg: Some(before),
        dial: terrestrial(NEAR),
        others: None,
    };
    virtually(async {
        let chain = Chain::start(&links, seed).await?;
        let cut = async {
            tokio::time::sleep(CUT_AT).await;
            chain.replace_leg(&after);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            arrivals = chain.perform(Request { up: 0, down: BYTES }, LIMIT) => arrivals,
            () = cut => unreachable!("it never ends"),
        }
    })
}

/// Longest time without an arrival after the cut; `None` if some bytes did not arrive.
fn longest_gap(arrivals: &Arrivals) -> Option<Duration> {
    if arrivals.iter().map(|(_, bytes)| bytes).sum::<u64>() < BYTES {
        return None;
    }
    let after = arrivals.iter().map(|(at, _)| *at).filter(|at| *at >= CUT_AT);
    let times: Vec<Duration> = after.collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max()
}
