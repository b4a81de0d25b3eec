//! The link layer's processor time for each packet, compared with that of its AEAD alone.

mod aead;
mod rig;

use std::fmt;

use aead::Aead;
use bentpipe_link::secure::DATA_OVERHEAD_BYTES;
use bentpipe_units::Ratio;
use rig::{Cost, Costs, Load, Rig, Traffic};

use super::{BenchError, failed};
use crate::experiment::table;
use crate::result::{Row, Samples};

/// Measured rounds for each load. The loads take turns, so that other work of this machine affects
/// all alike. One more round before them is not counted; in it the sessions learn their path.
const ROUNDS: usize = 15;
/// Ticks in a round, each a millisecond of virtual time: 33,000 packets of bulk.
const ROUND_TICKS: usize = 1000;
/// Loss on the impaired wire.
const LOSS: f64 = 0.06;
const SEED: u64 = 1;
/// Maximum processor time for each data packet over two paths, compared with one path of the same rate.
const MAX_OF_PATHS: f64 = 1.05;

/// Results.
pub struct Found {
    cells: Vec<Cell>,
    /// The whole work for each data packet over two paths, compared with one path, round by round.
    paths: Vec<(Load, Samples)>,
}

/// One part of the work under one load.
struct Cell {
    load: Load,
    part: Part,
    packets: usize,
    /// Processor time of a packet, in seconds.
    times: Samples,
    /// Time of sealing or opening the packet alone, in seconds.
    bare: Samples,
    /// Ratio of the two times, round by round.
    ratios: Samples,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Send,
    Receive,
    Report,
    TakeReport,
}

/// Runs all loads. Takes about 40 seconds.
pub fn run() -> Result<Found, BenchError> {
    run_for(ROUNDS, ROUND_TICKS)
}

fn run_for(rounds: usize, ticks: usize) -> Result<Found, BenchError> {
    let doing = "measure the link layer";
    let mut aead = Aead::new().ok_or_else(|| failed(doing)("ring lacks its AEAD"))?;
    let mut cells = Vec::new();
    let mut rigs = Vec::new();
    for load in loads() {
        rigs.push(Rig::new(load, SEED).ok_or_else(|| failed(doing)("there was no session"))?);
        cells.extend(Part::ALL.map(|part| Cell::new(load, part)));
    }
    let mut paths: Vec<(Load, Samples)> = loads()
        .into_iter()
        .filter(|load| load.paths > 1)
        .map(|load| (load, Samples::default()))
        .collect();
    for round in 0..=rounds {
        let mut whole = Vec::new();
        for (rig, cells) in rigs.iter_mut().zip(cells.chunks_mut(Part::ALL.len())) {
            let mut costs = Costs::default();
            (0..ticks).for_each(|_| rig.tick(true, &mut costs));
            for cell in cells.iter_mut().filter(|_| round > 0) {
                let took = cell.add(&costs, &mut aead);
                took.ok_or_else(|| failed(doing)("a packet could not be sealed and opened"))?;
            }
            whole.push((rig.load(), costs.of_data_packet()));
        }
        for (load, ratios) in paths.iter_mut().filter(|_| round > 0) {
            let of = |load: Load| whole.iter().find(|(other, _)| *other == load).map(|it| it.1);
            let one = of(Load { paths: 1, ..*load });
            if let Some((more, one)) = of(*load).zip(one) {
                ratios.push(more / one);
            }
        }
    }
    for rig in &mut rigs {
        if !rig.finish(&mut Costs::default()) {
            let (given, got) = rig.moved;
            return Err(failed(doing)(format!("of {given} bytes {got} arrived")));
        }
    }
    Ok(Found { cells, paths })
}

fn loads() -> Vec<Load> {
    let lossy = Ratio::new(LOSS).expect("it is between 0 and 1");
    let both = |traffic, paths| [Ratio::ZERO, lossy].map(|loss| Load { traffic, loss, paths });
    let with = |paths| [both(Traffic::Bulk, paths), both(Traffic::Objects, paths)].concat();
    [with(1), with(2)].concat()
}

impl Part {
    const ALL: [Self; 4] = [Self::Send, Self::Receive, Self::Report, Self::TakeReport];

    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Report => "report",
            Self::TakeReport => "take-report",
        }
    }

    fn of(self, costs: &Costs) -> &Cost {
        match self {
            Self::Send => &costs.send,
            Self::Receive => &costs.receive,
            Self::Report => &costs.report,
            Self::TakeReport => &costs.take_report,
        }
    }
}

impl Cell {
    fn new(load: Load, part: Part) -> Self {
        let (times, bare, ratios) = Default::default();
        Self { load, part, packets: 0, times, bare, ratios }
    }

    /// Adds a round, and runs the AEAD over packets of the same sizes. Returns `None` if that
    /// failed.
    fn add(&mut self, costs: &Costs, aead: &mut Aead) -> Option<()> {
        let cost = self.part.of(costs);
        let inside = |bytes: &usize| bytes.saturating_sub(DATA_OVERHEAD_BYTES);
        let bare = aead.run(&cost.datagrams.iter().map(inside).collect::<Vec<_>>())?;
        let bare = match self.part {
            Part::Send | Part::Report => bare.seal,
            Part::Receive | Part::TakeReport => bare.open,
        };
        let packets = cost.datagrams.len();
        self.packets += packets;
        let each = |time: std::time::Duration| time.as_secs_f64() / packets.max(1) as f64;
        let (time, bare) = (each(cost.time), each(bare));
        self.times.push(time);
        self.bare.push(bare);
        self.ratios.push(time / bare);
        Some(())
    }
}

impl Found {
    /// Results as rows: for each part the processor time of a packet, with the AEAD's time as the
    /// limit, and their ratio.
    pub fn rows(&self) -> Vec<Row> {
        let rows = |cell: &Cell| {
            let row = |metric: &str, unit: &str, limit| Row {
                experiment: "link".into(),
                system: Some("bentpipe".into()),
                workload: Some(cell.load.to_string()),
                metric: metric.into(),
                unit: unit.into(),
                limit,
                seed: Some(SEED),
                loss: Some(cell.load.loss.get()),
                ..Row::default()
            };
            let name = cell.part.name();
            let time = cell.times.fill(row(name, "s", known(&cell.bare, 0.5)));
            [time, cell.ratios.fill(row(&format!("{name}-ratio"), "ratio", Some(1.0)))]
        };
        let of_paths = |(load, ratios): &(Load, Samples)| {
            ratios.fill(Row {
                experiment: "link".into(),
                system: Some("bentpipe".into()),
                workload: Some(load.to_string()),
                metric: "against-one-path".into(),
                unit: "ratio".into(),
                limit: Some(MAX_OF_PATHS),
                seed: Some(SEED),
                loss: Some(load.loss.get()),
                ..Row::default()
            })
        };
        self.cells.iter().flat_map(rows).chain(self.paths.iter().map(of_paths)).collect()
    }

    /// Descriptions of missed bounds.
    pub fn missed(&self) -> Vec<String> {
        let is_missed = |(_, ratios): &&(Load, Samples)| {
            known(ratios, 0.5).is_none_or(|ratio| ratio > MAX_OF_PATHS)
        };
        let text = |(load, ratios): &(Load, Samples)| {
            let ratio = known(ratios, 0.5).unwrap_or(f64::NAN);
            let loss = 100.0 * load.loss.get();
            format!(
                "{load}, {loss:.0} %: {ratio:.2} × the processor time of one path, not {MAX_OF_PATHS}"
            )
        };
        self.paths.iter().filter(is_missed).map(text).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |samples: &Samples, q| match known(samples, q) {
            Some(seconds) => format!("{:.2}", seconds * 1e6),
            None => "–".into(),
        };
        let line = |cell: &Cell| {
            let load = format!("{}, {:.0} %", cell.load, 100.0 * cell.load.loss.get());
            let [median, least, most] = [0.5, 0.0, 1.0].map(|q| micros(&cell.times, q));
            let ratio =
                known(&cell.ratios, 0.5).map_or("–".into(), |ratio| format!("{ratio:.2}×"));
            let (part, packets) = (cell.part.name().to_owned(), cell.packets.to_string());
            [load, part, packets, median, least, most, micros(&cell.bare, 0.5), ratio]
        };
        let lines: Vec<_> = self.cells.iter().map(line).collect();
        let header = ["", "part", "packets", "median", "least", "most", "AEAD", ""];
        f.write_str(&table::groups(header, &lines))?;
        f.write_str(
            "µs of one thread's processor time for each packet; AEAD: what its AEAD alone takes\n\
             for packets as long, and how many times that the whole is\n\
             send, receive  of the data: its owners' writing and reading, coding and timers included\n\
             report  the packets that go back, made and taken: reports, and credit now and then\n",
        )?;
        for (load, ratios) in &self.paths {
            let ratio = |q| known(ratios, q).unwrap_or(f64::NAN);
            let [median, least, most] = [0.5, 0.0, 1.0].map(ratio);
            let loss = 100.0 * load.loss.get();
            writeln!(
                f,
                "{load}, {loss:.0} %: {median:.3} × the time of one path for each data packet \
                 ({least:.3} to {most:.3})"
            )?;
        }
        Ok(())
    }
}

fn known(samples: &Samples, q: f64) -> Option<f64> {
    samples.known(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_every_load_has_its_figures() {
        let found = run_for(2, 50).unwrap();
        let rows = found.rows();
        assert_eq!((found.cells.len(), rows.len()), (32, 64 + 4));
        for cell in &found.cells {
            assert!(cell.packets > 0, "{} {:?}", cell.load, cell.part);
        }
        for row in &rows {
            assert!(row.n == 2 && row.p50.is_some_and(|value| value > 0.0), "{row:?}");
        }
        let table = found.to_string();
        assert!(
            table.contains("object-10k, 6 %")
                && table.contains("bulk, 2 paths, 0 %")
                && table.contains("take-report"),
            "{table}"
        );
    }
}
