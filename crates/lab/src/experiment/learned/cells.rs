//! The cells with their bounds. This is their only list.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::figure::{Figure, Target};
use super::links;
use super::traffic::{Other, Play, Warmth};
use crate::experiment::report::Bound::{self, AtLeast, AtMost};
use crate::profile::Profile;
use crate::record::Span;

/// Numbers of the cases.
pub const CASES: std::ops::RangeInclusive<u8> = 1..=20;
/// Cases whose links do not change: steady downloads, objects, starts, queues, and other senders.
const EMULATED_CASES: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12];
/// Bound of [`Figure::Excess`], in every cell with a download.
const EXCESS: Bound = AtMost(1.03);
/// Round trips of A and B, in seconds.
const RTT_A: f64 = 0.761;
const RTT_B: f64 = 0.6;
/// Beginning of the measurement and end of a steady download, in seconds.
const STEADY: (f64, f64) = (30.0, 90.0);
/// Beginning of a download before something changes, and time of the change.
const CHANGE_START: f64 = 5.0;
const CHANGE_AT: u32 = 40;
/// Beginning of rivals, and the measurement beside them.
const RIVAL_AT: f64 = 5.0;
const BESIDE: (f64, f64) = (60.0, 180.0);

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Number of the case that it belongs to.
    pub case: u8,
    /// Name, unique among all cells.
    pub name: String,
    /// The link.
    pub link: Profile,
    /// Traffic of the cell.
    pub play: Play,
    /// Bounds of its figures.
    pub bounds: Vec<Target>,
    /// Default number of runs, if not that of its kind.
    pub runs: Option<usize>,
    /// Rate of the link at the beginning, which was typed before it changed.
    pub first_rate: Option<BitRate>,
}

impl Cell {
    fn new(case: u8, name: &str, link: Profile, play: Play, bounds: &[(Figure, Bound)]) -> Self {
        let target = |(figure, bound): &(Figure, Bound)| Target { figure: *figure, bound: *bound };
        let mut bounds: Vec<Target> = bounds.iter().map(target).collect();
        if matches!(play, Play::Bulk { .. } | Play::Hub { .. }) {
            bounds.push(Target { figure: Figure::Excess, bound: EXCESS });
        }
        Self { case, name: name.into(), link, play, bounds, runs: None, first_rate: None }
    }
}

impl Cell {
    /// Returns `true` if the cell also runs between real kernels: its link does not change, so that
    /// it can be measured first, and all its senders are downloads.
    pub fn is_emulated(&self) -> bool {
        let are_kernels = |rivals: &[(Other, Duration)]| {
            rivals.iter().all(|(other, _)| matches!(other, Other::Cubic | Other::Bbr))
        };
        let traffic = match &self.play {
            Play::Bulk { rivals, .. } => are_kernels(rivals),
            Play::Objects { .. } => true,
            Play::Hub { .. } | Play::Idle { .. } => false,
        };
        traffic && EMULATED_CASES.contains(&self.case)
    }

    /// A typed rate is that of the beginning.
    fn typed_at_first(self) -> Self {
        Self { first_rate: self.link.link.forward.rate_at(Duration::ZERO), ..self }
    }
}

/// All cells, in the order of the cases.
pub fn all() -> Vec<Cell> {
    [
        steady(),
        objects(),
        start(),
        queues(),
        changes(),
        beside_others(),
        sessions(),
        call(),
        policers(),
        low_orbit(),
        demand(),
        interruptions(),
        idle(),
    ]
    .concat()
}

/// Cells that run in a few seconds each, and show most of what a controller can do wrong.
pub fn fast() -> Vec<Cell> {
    let names = [
        "bulk A",
        "bulk B",
        "time to 90 %, B",
        "time to 90 %, B, 3 ms of jitter",
        "rate halves, B",
        "rate doubles",
        "policer of 2 Mbit/s, bucket of 60 kB",
        "delay step of 40 ms both ways",
    ];
    all().into_iter().filter(|cell| names.contains(&&*cell.name)).collect()
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn span((from, to): (f64, f64)) -> Span {
    Span::of_seconds(from, to)
}

fn bulk(start: f64, end: f64) -> Play {
    Play::Bulk { start: seconds(start), end: seconds(end), rivals: Vec::new() }
}

fn steady() -> Vec<Cell> {
    let cell = |name: &str, link, least| {
        let bounds = [(Figure::Utilisation(span(STEADY)), AtLeast(least))];
        Cell::new(1, name, link, bulk(0.0, STEADY.1), &bounds)
    };
    let clean = "[forward]\nrate = '8 Mbit/s'\ndelay = '325 ms'\n\
                 [return]\nrate = '4 Mbit/s'\ndelay = '325 ms'";
    vec![
        cell("bulk A", links::a(), 0.93),
        cell("bulk B", links::b(), 0.93),
        cell("bulk 50 Mbit/s, 50 ms", links::both("rate = '50 Mbit/s'\ndelay = '25 ms'"), 0.94),
        cell("bulk 8/4 Mbit/s, 650 ms", links::of(clean), 0.94),
    ]
}

fn objects() -> Vec<Cell> {
    let sizes = [("10 KB", 10_000), ("100 KB", 100_000), ("1 MB", 1_000_000)];
    let mut cells = Vec::new();
    let mut add = |case, name: String, link: &Profile, bytes, warmth, most| {
        let play = Play::Objects { bytes, warmth, idle: Duration::ZERO };
        cells.push(Cell::new(
            case,
            &name,
            link.clone(),
            play,
            &[(Figure::ObjectP95, AtMost(most))],
        ));
    };
    let both = [
        (2, "A", links::a(), [1.06, 1.08, 1.10], [None, Some(2.0), Some(1.25)]),
        (3, "B", links::b(), [1.03, 1.05, 1.08], [None, Some(2.0), Some(1.75)]),
    ];
    for (case, link_name, link, warm, cold) in &both {
        for (((size, bytes), warm), cold) in sizes.iter().zip(warm).zip(cold) {
            let name = |how: &str| format!("{how} {link_name} {size}");
            add(*case, name("warm"), link, *bytes, Warmth::Warm(100_000), *warm);
            if let Some(cold) = cold {
                add(4, name("very first"), link, *bytes, Warmth::Cold, *cold);
            }
            add(5, name("first after attach"), link, *bytes, Warmth::Attached, warm + 0.03);
        }
    }
    cells.sort_by_key(|cell| cell.case);
    cells
}

fn start() -> Vec<Cell> {
    let jitter = "jitter = { shape = 'uniform', mean = '3 ms' }";
    let cell = |name: &str, link, most: f64| {
        let bounds = [(Figure::TimeTo90(span((0.0, 20.0))), AtMost(most))];
        Cell { runs: Some(10), ..Cell::new(6, name, link, bulk(0.0, 20.0), &bounds) }
    };
    vec![
        cell("time to 90 %, A", links::a(), 3.0 * RTT_A),
        cell("time to 90 %, B", links::b(), 3.0 * RTT_B),
        cell("time to 90 %, B, 3 ms of jitter", links::b_with(jitter, "'20 Mbit/s'"), 4.0 * RTT_B),
    ]
}

fn queues() -> Vec<Cell> {
    let jitter = "jitter = { shape = 'uniform', mean = '10 ms' }";
    let cell = |name: &str, link, most: f64| {
        let bounds = [(Figure::QueueP95(span(STEADY)), AtMost(most))];
        Cell::new(7, name, link, bulk(0.0, STEADY.1), &bounds)
    };
    vec![
        cell("queue, A", links::a(), 0.030),
        cell("queue, B", links::b(), 0.015),
        cell("queue, B, 10 ms of jitter", links::b_with(jitter, "'20 Mbit/s'"), 0.040),
    ]
}

/// The queue stays that of the first rate, as that of a modem does.
fn changes() -> Vec<Cell> {
    let at = f64::from(CHANGE_AT);
    let cell = |case, name: &str, before: &str, after: &str, bounds: &[(Figure, Bound)]| {
        let rate = links::step(before, CHANGE_AT, after);
        let link = links::b_with("queue = '1500 kB'", &rate);
        Cell::new(case, name, link, bulk(CHANGE_START, at + 30.0), bounds).typed_at_first()
    };
    let halves = [
        (Figure::QueuePeak(span((at, at + 5.0))), AtMost(0.45)),
        (Figure::Drained(span((at, at + 10.0))), AtMost(1.5)),
        (Figure::Delivered(span((at + 1.5, at + 11.5))), AtLeast(0.95)),
    ];
    let back = |most| [(Figure::Back(span((at, at + 25.0))), AtMost(most))];
    vec![
        cell(8, "rate halves, B", "20 Mbit/s", "10 Mbit/s", &halves),
        cell(9, "rate doubles", "10 Mbit/s", "20 Mbit/s", &back(3.0)),
        cell(9, "rate × 10", "2 Mbit/s", "20 Mbit/s", &back(5.0)),
    ]
}

fn beside_others() -> Vec<Cell> {
    let mut cells = Vec::new();
    let span = span(BESIDE);
    let play = |other| {
        let (start, end) = (Duration::from_secs(1), seconds(BESIDE.1));
        Play::Bulk { start, end, rivals: vec![(other, seconds(RIVAL_AT))] }
    };
    for (path, keys) in [
        ("10 Mbit/s, 100 ms", "rate = '10 Mbit/s'\ndelay = '50 ms'"),
        ("20 Mbit/s, 600 ms", "rate = '20 Mbit/s'\ndelay = '300 ms'"),
    ] {
        for buffer in ["0.25", "1", "3"] {
            let link =
                |loss| links::both(&format!("{keys}\nqueue = '{buffer} BDP'\nloss = '{loss}'"));
            let name = |other: &str| format!("beside {other}, {path}, {buffer} BDP");
            let cubic = [
                (Figure::Share(span), AtLeast(0.7)),
                (Figure::Share(span), AtMost(1.25)),
                (Figure::RivalKept(span), AtLeast(0.75)),
            ];
            cells.push(Cell::new(10, &name("CUBIC"), link("0 %"), play(Other::Cubic), &cubic));
            let lossy = [(Figure::RivalKept(span), AtLeast(0.9))];
            let lossy_name = format!("{}, 1 % lost", name("CUBIC"));
            cells.push(Cell::new(11, &lossy_name, link("1 %"), play(Other::Cubic), &lossy));
            if buffer != "0.25" {
                let bbr =
                    [(Figure::Share(span), AtLeast(0.5)), (Figure::RivalShare(span), AtLeast(0.6))];
                cells.push(Cell::new(12, &name("BBR"), link("0 %"), play(Other::Bbr), &bbr));
            }
        }
    }
    cells.sort_by_key(|cell| cell.case);
    cells
}

/// Sessions that begin 5 s after one another, from 15 s after the last.
fn sessions() -> Vec<Cell> {
    let cell = |count: u32| {
        let last = 1.0 + 5.0 * f64::from(count - 1);
        let measured = Span::of_seconds(last + 15.0, last + 75.0);
        let rivals =
            (1..count).map(|number| (Other::Session, seconds(1.0 + 5.0 * f64::from(number))));
        let play = Play::Bulk {
            start: Duration::from_secs(1),
            end: measured.to,
            rivals: rivals.collect(),
        };
        let bounds = [
            (Figure::LowestOfAll(measured), AtLeast(0.8)),
            (Figure::HighestOfAll(measured), AtMost(1.25)),
            (Figure::QueueP95(measured), AtMost(0.030)),
        ];
        Cell::new(13, &format!("{count} sessions"), links::b(), play, &bounds)
    };
    let hub = |aircraft: usize| {
        let (start, end) = (Duration::from_secs(5), Duration::from_secs(70));
        let measured = Span { from: start + Duration::from_secs(5), to: end };
        let bounds = [
            (Figure::LowestOfAll(measured), AtLeast(0.95)),
            (Figure::HighestOfAll(measured), AtMost(1.05)),
            (Figure::QueueP95(measured), AtMost(0.030)),
        ];
        let name = format!("{aircraft} sessions through one hub");
        Cell::new(13, &name, links::b(), Play::Hub { aircraft, start, end }, &bounds)
    };
    let both = [2, 4, 8].map(cell).into_iter().chain([2, 4, 8].map(hub));
    both.collect()
}

fn call() -> Vec<Cell> {
    let measured = Span::of_seconds(30.0, 90.0);
    let play = Play::Bulk {
        start: Duration::from_secs(1),
        end: measured.to,
        rivals: vec![(Other::Call, Duration::from_secs(20))],
    };
    let bounds = [
        (Figure::CallP95(measured), AtMost(0.020)),
        (Figure::CallP99(measured), AtMost(0.060)),
        (Figure::CallDropped(measured), AtMost(0.001)),
    ];
    vec![Cell::new(14, "a stranger's call, B", links::b(), play, &bounds)]
}

fn policers() -> Vec<Cell> {
    let cell = |bucket: &str| {
        let policer = format!("policer = {{ rate = '2 Mbit/s', bucket = '{bucket}' }}");
        let link = links::b_with(&policer, "'20 Mbit/s'");
        let measured = Span::of_seconds(30.0, 90.0);
        let bounds = [
            (Figure::Utilisation(measured), AtLeast(0.93)),
            (Figure::Dropped(Span::of_seconds(20.0, 90.0)), AtMost(0.02)),
        ];
        let name = format!("policer of 2 Mbit/s, bucket of {bucket}");
        Cell::new(15, &name, link, bulk(0.0, measured.to.as_secs_f64()), &bounds)
    };
    ["20 kB", "60 kB", "1 MB", "10 MB"].map(cell).into()
}

fn low_orbit() -> Vec<Cell> {
    let measured = Span::of_seconds(20.0, 140.0);
    let bounds = [
        (Figure::Utilisation(measured), AtLeast(0.92)),
        (Figure::QueueP95(measured), AtMost(0.040)),
    ];
    vec![Cell::new(
        16,
        "low orbit",
        links::low_orbit(),
        bulk(0.0, measured.to.as_secs_f64()),
        &bounds,
    )]
}

/// Slots on request, in the direction of the bulk, and in that of the requests.
fn demand() -> Vec<Cell> {
    let slots = |free: u32, more: &str| {
        format!(
            "rate = '2 Mbit/s'\ndelay = '300 ms'\n{more}demand = {{ frame = '26.5 ms', slots = 16, \
             free-slots = {free}, request-delay = '600 ms' }}"
        )
    };
    let plain = "rate = '20 Mbit/s'\ndelay = '300 ms'";
    let bulk_cell = |name: &str, slots: &str| {
        let link = links::of(&format!("[forward]\n{slots}\n[return]\n{plain}"));
        let bounds = [(Figure::Utilisation(span(STEADY)), AtLeast(0.85))];
        Cell::new(17, name, link, bulk(0.0, STEADY.1), &bounds)
    };
    let request_link = links::of(&format!("[forward]\n{plain}\n[return]\n{}", slots(1, "")));
    let play =
        Play::Objects { bytes: 500, warmth: Warmth::Warm(100_000), idle: Duration::from_secs(30) };
    let request = [(Figure::ObjectOfTyped, AtMost(1.05))];
    vec![
        bulk_cell("bulk in granted slots", &slots(1, "")),
        bulk_cell("bulk in granted slots, 1 % lost", &slots(1, "loss = '1 %'\n")),
        bulk_cell("bulk in granted slots, half of them free", &slots(8, "")),
        Cell {
            runs: Some(20),
            ..Cell::new(17, "request in granted slots after idle", request_link, play, &request)
        },
    ]
}

fn interruptions() -> Vec<Cell> {
    let at = f64::from(CHANGE_AT);
    let outage = "rate = '20 Mbit/s'\ndelay = '300 ms'\nloss = '1 %'\n\
                  outages = { packets = 'lost', scheduled = [['40 s', '5 s']] }";
    let after = [(Figure::Back(span((at + 5.0, at + 30.0))), AtMost(2.0 * RTT_B))];
    let step = |name: &str, forward: &str, back: &str| {
        let direction = |rate: &str, to: &str| {
            let delay = links::step("300 ms", CHANGE_AT, to);
            format!("rate = '{rate}'\ndelay = {delay}\nloss = '1 %'\nqueue = '1 BDP'")
        };
        let (forward, back) = (direction("20 Mbit/s", forward), direction("2 Mbit/s", back));
        let link = links::of(&format!("[forward]\n{forward}\n[return]\n{back}"));
        let bounds = [(Figure::Lowest(span((at - 5.0, at + 20.0))), AtLeast(0.9))];
        Cell::new(18, name, link, bulk(CHANGE_START, at + 25.0), &bounds)
    };
    vec![
        Cell::new(18, "outage of 5 s", links::both(outage), bulk(CHANGE_START, at + 35.0), &after),
        step("delay step of 40 ms both ways", "340 ms", "340 ms"),
        step("delay step of −40 ms both ways", "260 ms", "260 ms"),
        step("delay step of 40 ms one way", "340 ms", "300 ms"),
    ]
}

fn idle() -> Vec<Cell> {
    let rate = links::step("20 Mbit/s", 300, "5 Mbit/s");
    let link = links::b_with("queue = '1500 kB'", &rate);
    let play = Play::Objects {
        bytes: 1_000_000,
        warmth: Warmth::Warm(5_000_000),
        idle: Duration::from_secs(600),
    };
    let after = Span::of_seconds(600.0, 10_000.0);
    let bounds =
        [(Figure::ObjectP95, AtMost(1.3)), (Figure::QueuePeak(after), AtMost(0.5 * RTT_B))];
    let cost = [
        (Figure::Bytes(Span::of_seconds(0.0, 30.0)), AtMost(65_536.0)),
        // Keep-alives of 15 s and the reports about them.
        (Figure::Bytes(Span::of_seconds(30.0, 330.0)), AtMost(10_000.0)),
    ];
    vec![
        Cell {
            runs: Some(20),
            ..Cell::new(19, "10 min idle, capacity quartered", link, play, &bounds)
        },
        Cell::new(
            20,
            "cost of an idle session",
            links::b(),
            Play::Idle { end: seconds(331.0) },
            &cost,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_cells_and_every_name_is_unique() {
        let all = all();
        for case in CASES {
            assert!(all.iter().any(|cell| cell.case == case), "case {case}");
        }
        let mut names: Vec<_> = all.iter().map(|cell| &cell.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert_eq!(fast().len(), 8);
        assert!(all.iter().all(|cell| !cell.bounds.is_empty()));
    }
}
