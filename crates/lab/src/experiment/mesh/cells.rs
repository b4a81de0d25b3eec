//! The eight cells of NetForecast, over the hub alone and over the mesh.
//!
//! EPB is the part of the provisioned rate that one connection gets: bytes over elapsed time over the
//! rate (NetForecast, "Test Results").

use std::time::Duration;

use anyhow::Context;
use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_results::outcome::table;
use bentpipe_units::{BitRate, Ratio};

use super::chain::{Arrivals, Chain, Links, Others, Request};
use super::leg;
use super::seeds::Seeds;
use crate::experiment::findings::Findings;
use crate::experiment::virtual_link::virtually;
use crate::profile::Profile;
use crate::sim::parallel;
use crate::sim::share::symmetric;

/// The radio: 10 Mbit/s, 540 ms.
pub const PROFILE: &str = "netforecast";
/// Bytes of a transfer down and up, as in the report.
const DOWN_BYTES: u64 = 20_000_000;
const UP_BYTES: u64 = 5_000_000;
/// Maximum time of a transfer.
const LIMIT: Duration = Duration::from_secs(400);
/// Round trip between a server and the gateway near it.
pub const NEAR: Duration = Duration::from_millis(2);
/// Distance of the server in the far cells, as a round trip.
const FAR: Duration = Duration::from_millis(100);
/// Distances of the server at which EPB should be the same.
const DISTANCES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(100),
    Duration::from_millis(150),
];
/// Rate and queue of all terrestrial paths. A flow on them has the rate of the radio.
const TERRESTRIAL_MBPS: u64 = 200;
const TERRESTRIAL_QUEUE: &str = "1 MB";
const FLOW_MBPS: u64 = 10;
/// Transfers of others in the congested cells, and the share of the rate that they leave.
const OTHERS: u16 = 3;
const FAIR_SHARE: f64 = 0.25;
/// Least EPB over the mesh.
pub const MIN_EPB: f64 = 0.9;
/// Maximum difference between EPB at two distances.
const MAX_SPREAD: f64 = 0.06;

/// A cell: conditions of one transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Distance between hub and server, or hub and egress, as a round trip.
    pub distance: Duration,
    /// Distance between server and egress, as a round trip beyond [`NEAR`].
    pub beyond: Duration,
    /// Others fill the radio.
    pub congested: bool,
    /// From the aircraft to the server.
    pub up: bool,
    /// An egress near the server dials. Otherwise the hub does.
    pub mesh: bool,
}

/// Figures of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epb {
    /// EPB by elapsed time.
    pub elapsed: f64,
    /// The same between the first byte's arrival and the last one's.
    pub receiving: f64,
}

/// A terrestrial path with half of this round trip in each direction. It loses and reorders beyond
/// [`NEAR`].
pub fn terrestrial(rtt: Duration) -> LinkSpec {
    let direction = match rtt > NEAR {
        true => {
            let rate = format!("{TERRESTRIAL_MBPS} Mbit/s");
            leg::path(&rate, TERRESTRIAL_QUEUE, rtt / 2, FLOW_MBPS)
        }
        false => {
            let rate = BitRate::from_bps(TERRESTRIAL_MBPS * 1_000_000);
            DirectionSpec::fixed(Some(rate), rtt / 2, Ratio::ZERO)
        }
    };
    symmetric(&direction)
}

impl Cell {
    /// A cell without others whose egress is near the server.
    pub fn quiet(distance: Duration, up: bool, mesh: bool) -> Self {
        Self { distance, beyond: Duration::ZERO, congested: false, up, mesh }
    }

    /// Part of the radio's rate that the others leave.
    fn fair_share(self) -> f64 {
        if self.congested { FAIR_SHARE } else { 1.0 }
    }

    fn request(self) -> Request {
        match self.up {
            true => Request { up: UP_BYTES, down: 1 },
            false => Request { up: 0, down: DOWN_BYTES },
        }
    }

    fn links(self, radio: &LinkSpec) -> anyhow::Result<Links> {
        let rates = radio.return_.rate().zip(radio.forward.rate());
        let (up, down) = rates.context("the radio has no rate")?;
        let share = |rate: BitRate, of_transfer: bool| match of_transfer {
            true => BitRate::from_bps((rate.bps() as f64 * self.fair_share()) as u64),
            false => rate,
        };
        let dial = NEAR + if self.mesh { self.beyond } else { self.distance };
        Ok(Links {
            radio: radio.clone(),
            granted: [share(up, self.up), share(down, !self.up)],
            leg: self.mesh.then(|| terrestrial(self.distance)),
            dial: terrestrial(dial),
            others: self.congested.then_some(Others { count: OTHERS, up: self.up }),
        })
    }

    /// Makes one transfer.
    pub fn play(self, seed: u64) -> anyhow::Result<Epb> {
        let radio = Profile::named(PROFILE)?.link;
        let links = self.links(&radio)?;
        let arrivals = virtually(async {
            let chain = Chain::start(&links, seed).await?;
            chain.perform(self.request(), LIMIT).await
        })?;
        let direction = if self.up { &radio.return_ } else { &radio.forward };
        let provisioned_bps = direction.rate().context("the radio has no rate")?.bps() as f64;
        Ok(self.epb(&arrivals, provisioned_bps))
    }

    fn epb(self, arrivals: &Arrivals, provisioned_bps: f64) -> Epb {
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
            return Epb { elapsed: 0.0, receiving: 0.0 };
        };
        let bytes: u64 = arrivals.iter().map(|(_, bytes)| bytes).sum();
        let request = self.request();
        let is_over = bytes >= request.up.max(request.down);
        let elapsed = if is_over { last.0 } else { LIMIT };
        let part =
            |bytes: u64, took: Duration| 8.0 * bytes as f64 / took.as_secs_f64() / provisioned_bps;
        Epb { elapsed: part(bytes, elapsed), receiving: part(bytes - first.1, elapsed - first.0) }
    }
}

/// Means of cells over all seeds.
pub fn measure(cells: &[Cell], seeds: Seeds) -> anyhow::Result<Vec<Epb>> {
    let jobs: Vec<(Cell, u64)> =
        cells.iter().flat_map(|cell| seeds.all().map(|seed| (*cell, seed))).collect();
    let found = parallel::map(&jobs, |(cell, seed)| cell.play(*seed));
    let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mean =
        |of: &[Epb], read: fn(&Epb) -> f64| of.iter().map(read).sum::<f64>() / of.len() as f64;
    let chunks = found.chunks(seeds.runs as usize);
    Ok(chunks
        .map(|of| Epb {
            elapsed: mean(of, |it| it.elapsed),
            receiving: mean(of, |it| it.receiving),
        })
        .collect())
}

/// The eight cells: name, distance, congestion and direction, and EPB in the report.
const CELLS: [(&str, Duration, bool, bool, Option<f64>); 8] = [
    ("A down", Duration::ZERO, false, false, None),
    ("A up", Duration::ZERO, false, true, Some(0.57)),
    ("B down", Duration::ZERO, true, false, None),
    ("B up", Duration::ZERO, true, true, Some(0.40)),
    ("C down", FAR, false, false, Some(0.12)),
    ("C up", FAR, false, true, None),
    ("D down", FAR, true, false, Some(0.02)),
    ("D up", FAR, true, true, None),
];

/// The cells, and then the distances.
pub fn play(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let cells = CELLS.iter().flat_map(|(_, distance, congested, up, _)| {
        [false, true]
            .map(|mesh| Cell { congested: *congested, ..Cell::quiet(*distance, *up, mesh) })
    });
    let cells: Vec<Cell> = cells.collect();
    let found = measure(&cells, seeds)?;
    let mut lines =
        table::table(&["cell", "paper", "hub", "mesh", "hub ÷ fair", "mesh ÷ fair", "receiving"]);
    for ((name, _, _, _, paper), (pair, cells)) in
        CELLS.iter().zip(found.chunks(2).zip(cells.chunks(2)))
    {
        let share = cells[0].fair_share();
        let (hub, mesh) = (pair[0], pair[1]);
        lines.add_row([
            (*name).to_owned(),
            paper.map_or("–".into(), |paper| format!("{paper:.2}")),
            format!("{:.3}", hub.elapsed),
            format!("{:.3}", mesh.elapsed),
            format!("{:.3}", hub.elapsed / share),
            format!("{:.3}", mesh.elapsed / share),
            format!("{:.3}", mesh.receiving / share),
        ]);
        findings.at_least(
            &format!("{name}, mesh, of the fair rate"),
            mesh.elapsed / share,
            MIN_EPB,
        );
    }
    table::align(&mut lines, &[1, 2, 3, 4, 5, 6]);
    findings.say("EPB of the cells; in B and D the fair rate is a quarter:");
    findings.say(&format!("{}\n", lines.trim_fmt()));
    distances(seeds, findings)
}

/// EPB over distances, without others.
fn distances(seeds: Seeds, findings: &mut Findings) -> anyhow::Result<()> {
    let mut lines = table::table(&["distance", "hub down", "mesh down", "hub up", "mesh up"]);
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let cells: Vec<Cell> = DISTANCES
        .iter()
        .flat_map(|distance| kinds.map(|(up, mesh)| Cell::quiet(*distance, up, mesh)))
        .collect();
    let found = measure(&cells, seeds)?;
    for (distance, epb) in DISTANCES.iter().zip(found.chunks(kinds.len())) {
        let named = [format!("{} ms", distance.as_millis())];
        let figures = epb.iter().map(|it| format!("{:.3}", it.elapsed));
        lines.add_row(named.into_iter().chain(figures));
    }
    table::align(&mut lines, &[0, 1, 2, 3, 4]);
    findings.say("EPB over the distance between server and hub:");
    findings.say(&format!("{}\n", lines.trim_fmt()));
    for (name, kind) in [("down", 1), ("up", 3)] {
        let at = |extreme: fn(f64, f64) -> f64, from| {
            found.iter().skip(kind).step_by(kinds.len()).map(|it| it.elapsed).fold(from, extreme)
        };
        let spread = at(f64::max, 0.0) - at(f64::min, f64::INFINITY);
        findings.at_most(
            &format!("mesh {name}, most − least over 0 to 150 ms"),
            spread,
            MAX_SPREAD,
        );
    }
    Ok(())
}
