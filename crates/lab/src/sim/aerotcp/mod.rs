//! The sweep of AeroTCP's paper (section VI, Figures 5 and 6) in virtual time: ten files of 1.6 MB
//! at once over 4 Mbit/s, at bit-error rates from 1e-8 to 1e-5, with its errors apart and in
//! bursts, over AeroTCP and over Bentpipe's own radio transport.
//!
//! Utilization is the payload that reached the aircraft, over what the link could have carried from
//! the first byte's arrival to the last one's. Headers and encryption count against it: nothing
//! comes above about 0.95.
//!
//! The paper gives its two-state burst model no parameters. Here bursts take the place of the bit
//! errors: as many full packets are lost as those would take, in runs of
//! [`BURST_PACKETS`] on average, clocked by time and in both directions.

pub mod pair;

use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_link::{Read, Settings};
use bentpipe_units::Ratio;

use super::pair::{FlowKey, Pair};
use super::parallel;
use crate::contender::aerotcp::AeroTcp;
use crate::contender::{BENTPIPE, BENTPIPE_AEROTCP, Contender, roomy};
use crate::profile::{FULL_PACKET_BYTES, Profile};
use crate::result::{Row, Sample, Samples};
use pair::{AeroPair, Ends};

/// The link.
pub const PROFILE: &str = "aero";
/// Files downloaded at once.
pub const FILES: usize = 10;
/// Bytes in each.
pub const FILE_BYTES: usize = 1_600_000;
/// Packets in a burst of losses, on average.
pub const BURST_PACKETS: u32 = 4;
/// Runs of each cell unless told otherwise.
pub const DEFAULT_RUNS: usize = 3;

/// Bit-error rates: 10^(-8 + k/2).
const STEPS: i32 = 7;
/// The session must be up, and the requests heard, within this.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// A run is cut off after so much virtual time: twenty times what an ideal link takes.
const RUN_LIMIT: Duration = Duration::from_secs(640);
const CHUNK_BYTES: usize = 16 << 10;

/// One cell of the sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// System under test.
    pub contender: &'static dyn Contender,
    /// The bit-error rate.
    pub ber: f64,
    /// `true` if its losses come in bursts.
    pub bursts: bool,
}

/// Result of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The configuration.
    pub cell: Cell,
    /// Share of full packets lost on the way to the aircraft, as declared.
    pub loss: f64,
    /// Utilization of every run.
    pub utilization: Samples,
    /// Completion time of every file of every run, in seconds from its request.
    pub completion: Samples,
    /// Lower bound of physics for the last file.
    pub completion_limit: f64,
}

/// Nothing was carried at all.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The profile is not there.
    #[error(transparent)]
    Profile(#[from] crate::profile::ProfileError),
    /// The requests did not get through.
    #[error("{contender} at a BER of {ber:.0e}: no {FILES} flows within {CONNECT_LIMIT:?}")]
    NoFlows {
        /// System under test.
        contender: &'static dyn Contender,
        /// Bit-error rate.
        ber: f64,
    },
}

/// The bit-error rates of the sweep: half a decade from one to the next.
pub fn bers() -> Vec<f64> {
    (0..STEPS).map(|step| 10f64.powf(-8.0 + f64::from(step) / 2.0)).collect()
}

/// Every cell at these bit-error rates, in the order of the table.
pub fn cells(bers: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for bursts in [false, true] {
        for &ber in bers {
            for contender in [&BENTPIPE_AEROTCP, &BENTPIPE] {
                cells.push(Cell { contender, ber, bursts });
            }
        }
    }
    cells
}

/// Runs `cells`, each `runs` times with seeds from `seed` on, on as many cores as there are.
pub fn run(cells: &[Cell], runs: usize, seed: u64) -> Result<Vec<Found>, SweepError> {
    let profile = Profile::named(PROFILE)?;
    parallel::map(cells, |cell| run_cell(&profile, *cell, runs, seed)).into_iter().collect()
}

fn run_cell(profile: &Profile, cell: Cell, runs: usize, seed: u64) -> Result<Found, SweepError> {
    let profile = link(profile, cell);
    let loss = profile.forward_loss();
    let (mut utilization, mut completion) = (Vec::new(), Vec::new());
    for run in 0..runs as u64 {
        let is_aerotcp = cell.contender.name() == BENTPIPE_AEROTCP.name();
        let aerotcp = is_aerotcp.then(|| AeroTcp::shared(&profile, FILES as u32));
        let one = download(&profile, aerotcp.as_ref(), &Files::PAPERS, seed + run);
        let refused = SweepError::NoFlows { contender: cell.contender, ber: cell.ber };
        let one = one.ok_or(refused)?;
        let rate = profile.link.forward.rate().map_or(f64::INFINITY, |rate| rate.bps() as f64);
        utilization.push(Sample::Finished(8.0 * one.bytes as f64 / one.took.as_secs_f64() / rate));
        completion.extend(one.files);
    }
    let all = (FILES * FILE_BYTES) as u64;
    let limit = profile.link.rtt() + profile.forward_limit(all).unwrap_or_default() - profile.rtt();
    Ok(Found {
        cell,
        loss,
        utilization: Samples(utilization),
        completion: Samples(completion),
        completion_limit: limit.as_secs_f64(),
    })
}

/// The profile's link with the cell's losses.
fn link(profile: &Profile, cell: Cell) -> Profile {
    let ber = |ber| Ratio::new(ber).expect("a bit-error rate is a share");
    let errors = profile.clone().with_ber(ber(cell.ber));
    if !cell.bursts {
        return errors;
    }
    let mut bursts = profile.clone();
    let loss = errors.link.forward.mean_loss(FULL_PACKET_BYTES);
    bursts.link.forward = in_bursts(&profile.link.forward, loss);
    let loss = errors.link.return_.mean_loss(FULL_PACKET_BYTES);
    bursts.link.return_ = in_bursts(&profile.link.return_, loss);
    bursts
}

/// A direction like `spec` whose only losses are bursts, with `loss` as their mean.
fn in_bursts(spec: &DirectionSpec, loss: f64) -> DirectionSpec {
    let (Some(rate), Some(queue)) = (spec.rate(), spec.queue()) else { return spec.clone() };
    let text = format!(
        "rate = \"{} bit/s\"\ndelay = \"{} ms\"\nqueue = \"{} B\"\n\
         loss = {{ gilbert-elliott = {{ mean = {loss:.12}, burst = {BURST_PACKETS} }} }}",
        rate.bps(),
        spec.mean_delay().as_secs_f64() * 1e3,
        queue.bytes(),
    );
    toml::from_str(&text).expect("a direction made of checked values is one")
}

/// Files downloaded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// Number of files.
    pub count: usize,
    /// Bytes in each.
    pub bytes: usize,
    /// A run is cut off after so much virtual time from the requests on.
    pub limit: Duration,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Downloaded {
    /// Payload bytes that arrived.
    pub bytes: u64,
    /// From the first of them to the last one, or to the limit.
    pub took: Duration,
    /// Time of each file from its request to its last byte, in seconds.
    pub files: Vec<Sample>,
    /// Bytes of each file when the first one was complete, or at the limit.
    pub abreast: Vec<u64>,
    /// IP bytes offered to the link towards the aircraft from the requests on.
    pub offered_bytes: u64,
}

impl Files {
    /// Those of the paper.
    pub const PAPERS: Self = Self { count: FILES, bytes: FILE_BYTES, limit: RUN_LIMIT };
}

/// Downloads files at once over the radio link of `profile`, by AeroTCP where it is told of, else by
/// the radio transport; `None` when the requests did not get through.
pub fn download(
    profile: &Profile,
    aerotcp: Option<&AeroTcp>,
    files: &Files,
    seed: u64,
) -> Option<Downloaded> {
    match aerotcp {
        Some(told) => fetch(&mut AeroPair::new(profile, &told.settings(), seed), files),
        None => fetch(&mut Pair::between(profile, &Settings::default(), &roomy(), seed), files),
    }
}

/// Flows at once on a session that is there already.
fn fetch(ends: &mut impl Ends, files: &Files) -> Option<Downloaded> {
    let mut flows = Vec::new();
    while flows.len() < files.count && ends.now() < CONNECT_LIMIT {
        match ends.open(b"GET") {
            Some(flow) => flows.push(flow),
            None => ends.step(),
        }
    }
    let (asked_at, offered) = (ends.now(), ends.counters().0.offered.bytes);
    let (mut served, mut got) = (Vec::new(), vec![0; files.count]);
    let (mut done, mut first_at, mut abreast) = (vec![None; flows.len()], None, None);
    let mut last_at = asked_at;
    let chunk = [0x5a; CHUNK_BYTES];
    let mut buffer = [0; CHUNK_BYTES];
    while done.iter().any(Option::is_none) && ends.now() < asked_at + files.limit {
        ends.step();
        while let Some(flow) = ends.accept() {
            served.push((flow, files.bytes));
        }
        for (flow, left) in &mut served {
            serve(ends, *flow, left, &chunk);
        }
        for (flow, (got, done)) in flows.iter().zip(got.iter_mut().zip(&mut done)) {
            while let Some(Read::Taken(taken)) = ends.fetch(*flow, &mut buffer) {
                first_at.get_or_insert(ends.now());
                last_at = ends.now();
                *got += taken;
            }
            if *got == files.bytes {
                done.get_or_insert((ends.now() - asked_at).as_secs_f64());
            }
        }
        if done.iter().any(Option::is_some) {
            abreast.get_or_insert_with(|| got.clone());
        }
    }
    let cut = (ends.now() - asked_at).as_secs_f64();
    if done.iter().any(Option::is_none) {
        last_at = ends.now();
    }
    let first_at = first_at.filter(|_| served.len() == files.count)?;
    let sample = |file: Option<f64>| file.map_or(Sample::Cut(cut), Sample::Finished);
    let abreast = abreast.unwrap_or_else(|| got.clone());
    Some(Downloaded {
        bytes: got.iter().sum::<usize>() as u64,
        took: last_at - first_at,
        files: done.into_iter().map(sample).collect(),
        abreast: abreast.into_iter().map(|bytes| bytes as u64).collect(),
        offered_bytes: ends.counters().0.offered.bytes - offered,
    })
}

/// Hands over what there is room for, and ends the flow behind its last byte.
fn serve(ends: &mut impl Ends, flow: FlowKey, left: &mut usize, chunk: &[u8]) {
    while *left > 0 {
        let taken = ends.serve(flow, &chunk[..chunk.len().min(*left)]);
        *left -= taken;
        if *left == 0 {
            ends.finish(flow);
        }
        if taken == 0 {
            break;
        }
    }
}

impl Found {
    /// As rows for another program.
    pub fn rows(&self, seed: u64) -> [Row; 2] {
        let bursts =
            if self.cell.bursts { format!(", bursts of {BURST_PACKETS}") } else { "".into() };
        let row = |metric: &str, unit: &str, limit| Row {
            experiment: "aerotcp".into(),
            engine: "sim".into(),
            contender: Some(self.cell.contender.name().into()),
            profile: Some(format!("{PROFILE}{bursts}")),
            workload: Some(format!("{FILES} × file-{}k", FILE_BYTES / 1000)),
            metric: metric.into(),
            unit: unit.into(),
            limit: Some(limit),
            seed: Some(seed),
            ber: Some(self.cell.ber),
            ..Row::default()
        };
        [
            self.utilization.fill(row("utilization", "ratio", 1.0 - self.loss)),
            self.completion.fill(row("completion", "s", self.completion_limit)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(contender: &'static dyn Contender, ber: f64, bursts: bool) -> Found {
        let cell = Cell { contender, ber, bursts };
        run(&[cell], 1, 1).unwrap().remove(0)
    }

    fn median(samples: &Samples) -> f64 {
        samples.percentile(0.5).and_then(crate::result::Percentile::known).unwrap()
    }

    #[test]
    fn aerotcp_fills_a_clean_link_and_falls_where_its_paper_says() {
        let utilization = |ber| median(&found(&BENTPIPE_AEROTCP, ber, false).utilization);
        let (clean, worst) = (utilization(1e-8), utilization(1e-5));
        assert!(clean > 0.9, "{clean:.3}");
        assert!(worst < clean - 0.1, "{worst:.3} at 1e-5, {clean:.3} at 1e-8");
    }

    #[test]
    fn a_run_repeats_exactly_and_its_rows_carry_the_error_rate() {
        let again = || found(&BENTPIPE_AEROTCP, 1e-6, true);
        let one = again();
        assert_eq!(one, again());
        let [utilization, completion] = one.rows(1);
        assert_eq!((utilization.ber, utilization.n, completion.n), (Some(1e-6), 1, FILES));
        assert_eq!(utilization.contender.as_deref(), Some("bentpipe-aerotcp"));
        let limit = utilization.limit.unwrap();
        assert!((limit - (1.0 - 1e-6f64).powi(8 * 1500)).abs() < 1e-9, "{limit}");
        assert!(completion.p50.unwrap() > 30.0 && completion.limit.unwrap() > 32.0);
    }

    #[test]
    fn any_files_are_downloaded_and_a_limit_cuts_them_off() {
        let profile = Profile::named(PROFILE).unwrap().with_ber(Ratio::new(3e-8).unwrap());
        let files = Files { count: 2, bytes: 1_000_000, limit: Duration::from_secs(60) };
        let whole = download(&profile, None, &files, 1).unwrap();
        assert_eq!((whole.bytes, whole.files.len()), (2_000_000, 2));
        assert!(whole.offered_bytes > whole.bytes && whole.offered_bytes < whole.bytes * 11 / 10);
        let least = whole.abreast.iter().min().unwrap();
        assert!(*least > 900_000, "{:?}", whole.abreast);
        let cut = Files { limit: Duration::from_secs(2), ..files };
        let told = AeroTcp::adaptive(&profile);
        let cut = download(&profile, Some(&told), &cut, 1).unwrap();
        assert!(cut.files.iter().all(|file| matches!(file, Sample::Cut(_))), "{:?}", cut.files);
        assert!(cut.bytes > 0 && cut.took < Duration::from_secs(2));
    }

    #[test]
    fn bursts_lose_as_much_as_the_bit_errors_they_stand_for() {
        let profile = Profile::named(PROFILE).unwrap();
        let of = |bursts| Cell { contender: &BENTPIPE, ber: 1e-5, bursts };
        let [apart, bursts] = [false, true].map(|bursts| link(&profile, of(bursts)));
        assert!((apart.forward_loss() - bursts.forward_loss()).abs() < 1e-9);
        assert_eq!(apart.link.rtt(), bursts.link.rtt());
        assert_eq!(apart.link.forward.queue(), bursts.link.forward.queue());
    }
}
