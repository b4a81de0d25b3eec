//! One session of one work in one cell, in virtual time, and all sessions of many works in
//! parallel.

use std::time::Duration;

use bentpipe_channel as channel;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::outcome::{Outcome, Part};
use super::traffic::Traffic;
use super::{Cell, CellError, Work};
use crate::experiment::runner::sessions;
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::parallel;
use crate::sim::trace::Digest;
use crate::sim::tunnel::{Seen, Tunnel};
use crate::workload::Workload;

/// Objects that warm up a session: about 290 full packets, enough for an estimate of its loss.
const WARM_OBJECTS: usize = 4;
/// Size of a warm-up object.
const WARM_BYTES: u64 = 100_000;
/// Round trips between two objects, so that nothing of the first is in flight during the second.
const QUIET_ROUND_TRIPS: u32 = 3;
/// Mean bursts between two objects, so that the link's state has changed.
const QUIET_BURSTS: f64 = 3.0;
/// Maximum additional random time between two objects.
const QUIET_RANDOM: Duration = Duration::from_secs(2);
/// Round trips until bulk is steady, but at least [`MIN_WARM`].
const BULK_ROUND_TRIPS: u32 = 30;
/// Minimum time until bulk is steady.
const MIN_WARM: Duration = Duration::from_secs(20);
/// Measured time of bulk, in full packets, within the bounds below.
const BULK_PACKETS: u32 = 20_000;
/// Minimum measured time of bulk.
const MIN_BULK: Duration = Duration::from_secs(60);
/// Maximum measured time of bulk.
const MAX_BULK: Duration = Duration::from_secs(300);
/// Time after which an object counts as lost, as a multiple of its limit, but at least
/// [`MIN_PATIENCE`].
const PATIENCE: u32 = 20;
/// Minimum time after which an object counts as lost.
const MIN_PATIENCE: Duration = Duration::from_secs(60);

/// Division of a work among sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Sessions, each with its own seed.
    pub sessions: usize,
    /// Number measured in each session: objects, or one period of bulk.
    pub objects: usize,
}

impl Shape {
    /// Division of `work`, with `runs` in all if given.
    pub fn of(work: &Work, runs: Option<usize>) -> Self {
        let (sessions, objects) = match (work.workload.bytes(), work.beside_bulk) {
            (None, _) => (3, 1),
            (Some(_), true) => (10, 20),
            (Some(..50_000), _) => (20, 20),
            (Some(..500_000), _) => (20, 10),
            (Some(..5_000_000), _) => (10, 10),
            (Some(_), _) => (10, 2),
        };
        let Some(runs) = runs else { return Self { sessions, objects } };
        let sessions =
            if work.workload == Workload::Bulk { runs } else { sessions.min(runs) }.max(1);
        Self { sessions, objects: runs.div_ceil(sessions) }
    }
}

/// Runs all of `works`, on as many threads as there are processors. The result depends only on the
/// works and the seed.
pub fn run(
    works: &[(Cell, Work)],
    runs: Option<usize>,
    seed: u64,
) -> Result<Vec<Outcome>, CellError> {
    let shapes: Vec<_> = works.iter().map(|(_, work)| Shape::of(work, runs)).collect();
    let counts: Vec<_> = shapes.iter().map(|shape| shape.sessions).collect();
    let found = sessions(parallel::processors(), &counts, |index, session| {
        let (cell, work) = &works[index];
        one(cell, work, shapes[index].objects, seed_of(seed, cell, work, session))
    });
    let outcomes = works.iter().zip(found).map(|((cell, work), parts)| {
        let parts = parts.into_iter().collect::<Result<_, _>>()?;
        Outcome::of_parts(cell.clone(), work.clone(), &cell.link()?, parts)
    });
    outcomes.collect()
}

/// Result of one session. A broken session is not an error: its objects count as lost.
pub fn one(cell: &Cell, work: &Work, objects: usize, seed: u64) -> Result<Part, CellError> {
    let link = cell.link()?;
    let found = match Tunnel::new(&link, Digest::of_sizes(), seed) {
        Err(error) => Err(error.to_string()),
        Ok(tunnel) => {
            let random = ChaCha8Rng::seed_from_u64(seed);
            let mut session = Session { cell, work, link, tunnel, random };
            let part = match work.workload.bytes() {
                None => session.bulk(),
                Some(bytes) => session.objects(bytes, objects),
            };
            part.ok_or_else(|| "the session did not live to the end".to_owned())
        }
    };
    Ok(found.unwrap_or_else(|why| Part {
        samples: vec![Sample::Cut(0.0); objects],
        broken: Some(format!("{cell}: {work}, seed {seed}: {why}")),
        ..Part::default()
    }))
}

struct Session<'a> {
    cell: &'a Cell,
    work: &'a Work,
    link: Profile,
    tunnel: Tunnel,
    random: ChaCha8Rng,
}

impl Session<'_> {
    fn bulk(&mut self) -> Option<Part> {
        let flow = self.tunnel.start_bulk()?;
        self.tunnel.pass((self.link.link.rtt() * BULK_ROUND_TRIPS).max(MIN_WARM));
        let (before, from) = (self.tunnel.seen()?, self.tunnel.bytes_read(flow));
        let rate = self.link.link.forward.rate()?;
        let length = rate.time_for(u64::from(BULK_PACKETS) * 1500);
        self.tunnel.pass(length.clamp(MIN_BULK, MAX_BULK));
        let after = self.tunnel.seen()?;
        let bytes = self.tunnel.bytes_read(flow).checked_sub(from)?;
        let goodput_bps = 8.0 * bytes as f64 / (after.at - before.at).as_secs_f64();
        let part = self.part(&before, &after, bytes, 0)?;
        let samples = vec![Sample::Finished(goodput_bps)];
        let loss = loss_between(&before.forward, &after.forward);
        Some(Part { samples, drawn_loss: Some(loss), ..part })
    }

    fn objects(&mut self, bytes: u64, objects: usize) -> Option<Part> {
        let flow = if self.work.beside_bulk { Some(self.tunnel.start_bulk()?) } else { None };
        if flow.is_some() {
            self.tunnel.pass((self.link.link.rtt() * BULK_ROUND_TRIPS).max(MIN_WARM));
        }
        for _ in 0..WARM_OBJECTS {
            self.fetch(WARM_BYTES)?;
        }
        let before = self.tunnel.seen()?;
        let bulk = |tunnel: &Tunnel| flow.map_or(0, |flow| tunnel.bytes_read(flow));
        let from = bulk(&self.tunnel);
        let samples = (0..objects).map(|_| self.fetch(bytes)).collect::<Option<Vec<_>>>()?;
        let after = self.tunnel.seen()?;
        let finished = samples.iter().filter(|s| matches!(s, Sample::Finished(_))).count();
        let payload = bytes * finished as u64 + bulk(&self.tunnel).checked_sub(from)?;
        let part = self.part(&before, &after, payload, objects as u64)?;
        Some(Part { samples, ..part })
    }

    /// Fetches an object, and waits until it no longer affects the next one.
    fn fetch(&mut self, bytes: u64) -> Option<Sample> {
        let patience = (self.link.forward_limit(bytes)? * PATIENCE).max(MIN_PATIENCE);
        let sample = self.tunnel.fetch(bytes, patience);
        let packet = self.link.link.forward.rate()?.time_for(1500);
        let settled = self.link.link.rtt() * QUIET_ROUND_TRIPS
            + packet.mul_f64(self.cell.burst * QUIET_BURSTS);
        self.tunnel.pass(settled + QUIET_RANDOM.mul_f64(self.random.random()));
        Some(sample)
    }

    fn part(&self, before: &Seen, after: &Seen, payload: u64, requests: u64) -> Option<Part> {
        let possible = |direction: &channel::DirectionSpec| {
            Some(direction.rate()?.bytes_in(after.at - before.at) as f64)
        };
        let (forward, back) = (&self.link.link.forward, &self.link.link.return_);
        let asked = requests * crate::traffic::REQUEST_BYTES;
        Some(Part {
            forward: Traffic::between(&before.hub, &after.hub, payload, possible(forward)?),
            back: Traffic::between(&before.air, &after.air, asked, possible(back)?),
            ..Part::default()
        })
    }
}

/// Fraction of the sent bytes that the link lost.
fn loss_between(before: &channel::Counters, after: &channel::Counters) -> f64 {
    let lost = after.lost.bytes - before.lost.bytes;
    let dropped = after.queue_dropped.bytes - before.queue_dropped.bytes;
    let sent = after.offered.bytes - before.offered.bytes - dropped;
    lost as f64 / sent.max(1) as f64
}

/// Seed of a session, different for every session of every work in every cell, whatever else is run
/// (64-bit FNV-1a over their names).
fn seed_of(seed: u64, cell: &Cell, work: &Work, session: usize) -> u64 {
    let Cell { profile, loss, burst } = cell;
    let name = format!("{profile} {loss} {burst} {work} {session} {seed}");
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works(names: &[&str]) -> Vec<(Cell, Work)> {
        let loss = bentpipe_units::Ratio::new(0.06).unwrap();
        let cell = Cell { profile: "mss".into(), loss, burst: 4.0 };
        names.iter().map(|name| (cell.clone(), name.parse().unwrap())).collect()
    }

    #[test]
    fn a_cell_repeats_to_the_byte_whatever_runs_beside_it() {
        let run = |names: &[&str], seed| run(&works(names), Some(4), seed).unwrap();
        let bytes =
            |outcome: &Outcome, seed| serde_json::to_vec(&outcome.rows("sim", seed)).unwrap();
        let both = run(&["object-100k-beside-bulk", "object-10k"], 1);
        let alone = run(&["object-10k"], 1);
        assert_eq!(bytes(&both[1], 1), bytes(&alone[0], 1));
        assert_eq!(both, run(&["object-100k-beside-bulk", "object-10k"], 1));
        assert_ne!(alone, run(&["object-10k"], 2));
    }

    #[test]
    fn short_transfers_have_a_hundred_runs_in_the_grid() {
        for name in ["object-10k", "object-100k", "object-1m", "object-10k-beside-bulk"] {
            let Shape { sessions, objects } = Shape::of(&name.parse().unwrap(), None);
            assert!(sessions * objects >= 100, "{name}");
        }
        let few = Shape::of(&"object-10k".parse().unwrap(), Some(7));
        assert_eq!(few, Shape { sessions: 7, objects: 1 });
    }
}
