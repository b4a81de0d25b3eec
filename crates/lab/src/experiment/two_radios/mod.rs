//! A session over two radios at once, compared with the limit of both together.
//!
//! Each [`Cell`] is a bundle of links with something that happens on it, and the bound of its figure.

pub mod bundle;
mod call;
mod death;
mod experiment;
mod figures;
pub mod flight;
pub mod golden;
mod play;
mod stage;

use bentpipe_channel::SpecError;
use bentpipe_link::Class;

use super::report::{Bound, Goal};
use crate::experiment::pages::Page;
use crate::profile::Profile;
use crate::result::Row;
use bundle::{Bundle, Death, Fault};
pub use experiment::TwoRadios;
pub use play::{Choice, run};

/// Transfer or event of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Play {
    /// Single objects of this size, each after a pause. The figure is p95 over the limit.
    Object(u64),
    /// The same beside another passenger's endless download, over the limit of half of each path.
    ObjectBesideBulk(u64),
    /// One endless download. The figure is its goodput over the capacity.
    Bulk,
    /// The same. The figure is the bytes back on all paths per byte towards the aircraft.
    Reports,
    /// The same. The figure is the share of the rate back of the path at this index that is used.
    ReportsOn(usize),
    /// The first path dies 0.2 s after the request of 10 KB in this class. The figure is p95 in
    /// seconds.
    DiesAfterRequest(Class),
    /// The path at this index dies in a call of the operator's class. The figure is the share of
    /// packets that came too late or never.
    CallLost(usize),
    /// The same. The figure is p95 of the delay of packets sent after the death, beyond the one-way
    /// delay of the other path.
    CallDelay(usize),
    /// The path at this index dies under an endless download. The figure is the longest gap that
    /// begins within 2 s, in seconds.
    DiesUnderBulk(usize, Death),
    /// As [`Self::Bulk`], after the path at this index has died.
    BulkAfter(usize, Death),
    /// An endless download over a path with two edges between cells. The figure is the longest gap that
    /// begins within 2 s of one, in seconds.
    Edges,
    /// As [`Self::Bulk`], over two such edges.
    BulkThroughEdges,
    /// An endless download of a flight, with the ground's rates learned. The figure is the longest gap, in
    /// seconds.
    Flight,
    /// As [`Self::Bulk`], in such a flight.
    BulkInFlight,
    /// A page of 2,500 KB in 175 objects with Split HTTP, loaded once in each session. The figure is
    /// p95 over the limit.
    Page,
    /// The same, relative to the first path alone.
    PageAgainstOne,
    /// The same. The figure is the share of sessions in which the first path alone is faster with the
    /// same seed.
    PageSlower,
    /// One endless download. The figure is the maximum memory of an end, in sums of the rates times the
    /// longest round trip.
    Memory,
    /// As [`Self::Object`], relative to the first path alone.
    UselessForObject(u64),
    /// As [`Self::Bulk`], relative to the first path alone.
    UselessForBulk,
    /// The path at this index is dead under an endless download for 20 s. The figure is the longest
    /// time in seconds from its return until it carries data again.
    Returns(usize, Death),
    /// The same, until it carries data at its full rate. The figure is in round trips of the path and
    /// counts from when it carries data again.
    Recovers(usize),
    /// The same, and the figure is the longest gap of the download in the 10 s after the return.
    ReturnsUnnoticed(usize),
}

impl Play {
    /// Returns `true` if the figure should be at least the bound, `false` if at most.
    fn is_goodput(self) -> bool {
        matches!(
            self,
            Self::Bulk
                | Self::UselessForBulk
                | Self::BulkAfter(..)
                | Self::BulkThroughEdges
                | Self::BulkInFlight
        )
    }

    /// Returns `true` if the radios' values follow the position of an aircraft.
    fn is_in_flight(self) -> bool {
        matches!(self, Self::Flight | Self::BulkInFlight)
    }

    /// Returns `true` if the figure is relative to that of the first path alone.
    fn is_relative(self) -> bool {
        matches!(
            self,
            Self::UselessForObject(_)
                | Self::UselessForBulk
                | Self::PageAgainstOne
                | Self::PageSlower
        )
    }

    /// Returns `true` if only the simulator has it.
    fn is_simulated(self) -> bool {
        matches!(self, Self::Page | Self::PageAgainstOne | Self::PageSlower | Self::Memory)
    }
}

/// A cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Name, unique among all cells.
    pub name: String,
    /// The links.
    pub bundle: Bundle,
    /// Transfer or event.
    pub play: Play,
    /// Bound of the figure: at least this for a goodput, at most for all others.
    pub bound: f64,
    /// Maximum of sent bytes per delivered byte, if that has a bound.
    pub max_overhead: Option<f64>,
}

/// Figures of a cell.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The cell.
    pub cell: Cell,
    /// The figure; `None` if a transfer did not end.
    pub figure: Option<f64>,
    /// The same of the median sample.
    pub median: Option<f64>,
    /// Bytes sent towards the aircraft on all paths per byte delivered.
    pub overhead: f64,
    /// Number of samples.
    pub samples: usize,
}

impl Outcome {
    /// Goals of the figure, and of the overhead if that has a bound.
    pub fn goals(&self) -> Vec<Goal> {
        let Cell { name, play, bound, max_overhead, bundle } = &self.cell;
        let bound = if play.is_goodput() { Bound::AtLeast(*bound) } else { Bound::AtMost(*bound) };
        let limit = match *play {
            Play::Object(bytes) => format!("limit {:.3} s, ", bundle.limit_s(bytes)),
            Play::ObjectBesideBulk(bytes) => {
                format!("limit {:.3} s, ", bundle.limit_of_share_s(bytes, 0.5))
            }
            Play::Page => format!("limit {:.3} s, ", bundle.limit_of_page_s(Page::LARGE)),
            Play::Bulk | Play::BulkThroughEdges | Play::BulkInFlight => {
                format!("limit {:.3} Mbit/s, ", bundle.capacity_bps() / 1e6)
            }
            _ => String::new(),
        };
        let note = if self.overhead > 0.0 {
            format!("{limit}{:.2} sent per byte", self.overhead)
        } else {
            limit.trim_end_matches(", ").to_owned()
        };
        let figure = Goal { note, ..Goal::new(name, self.figure, bound, self.unit()) };
        let overhead = max_overhead.map(|most| {
            Goal::ratio_at_most(format!("{name}: sent per byte"), Some(self.overhead), most)
        });
        [figure].into_iter().chain(overhead).collect()
    }

    /// The figure as a row of results. `contender` is a baseline instead of the gateways.
    pub fn row(&self, engine: &str, system: Option<&str>, seed: u64) -> Row {
        Row {
            experiment: "two-radios".into(),
            engine: engine.into(),
            system: system.map(Into::into),
            workload: Some(self.cell.name.clone()),
            metric: self.metric().into(),
            unit: self.unit().into(),
            n: self.samples,
            p50: self.median,
            p95: self.figure,
            limit: Some(self.cell.bound),
            seed: Some(seed),
            ..Row::default()
        }
    }

    fn metric(&self) -> &'static str {
        match self.cell.play {
            Play::Object(_)
            | Play::ObjectBesideBulk(_)
            | Play::UselessForObject(_)
            | Play::DiesAfterRequest(_) => "completion",
            Play::Page | Play::PageAgainstOne => "plt",
            Play::PageSlower => "slower",
            Play::Memory => "memory",
            Play::CallLost(_) => "residual-loss",
            Play::CallDelay(_) => "delay",
            Play::Reports | Play::ReportsOn(_) => "reports",
            Play::Bulk | Play::UselessForBulk | Play::BulkAfter(..) => "goodput",
            Play::BulkThroughEdges | Play::BulkInFlight => "goodput",
            Play::DiesUnderBulk(..) | Play::Edges | Play::Flight | Play::ReturnsUnnoticed(_) => {
                "gap"
            }
            Play::Returns(..) | Play::Recovers(_) => "recovery",
        }
    }

    fn unit(&self) -> &'static str {
        match self.cell.play {
            Play::DiesAfterRequest(_)
            | Play::CallDelay(_)
            | Play::DiesUnderBulk(..)
            | Play::Edges
            | Play::Flight
            | Play::Returns(..)
            | Play::ReturnsUnnoticed(_) => "s",
            _ => "ratio",
        }
    }
}

/// Interval of probes when a path has been dead for 20 s: a tenth of that.
const PROBE_INTERVAL_S: f64 = 2.0;
/// Longest gap of a download over da2gc and mss alone.
const GAP_S: [f64; 2] = [1.0, 2.3];

/// Names of the paper's links, in the order of their paths.
const NAMES: [&str; 2] = ["da2gc", "mss"];
/// Slack of a bound in round trips.
const SLACK_S: f64 = 0.050;

/// Loss of a redundant call besides the packets that both paths lose.
const CALL_LOSS: f64 = 0.001;
/// Delay of a redundant call beyond the one-way delay of the surviving path.
const CALL_DELAY_S: f64 = 0.020;

fn cell(name: &str, bundle: &Bundle, play: Play, bound: f64, max_overhead: Option<f64>) -> Cell {
    Cell { name: name.into(), bundle: bundle.clone(), play, bound, max_overhead }
}

/// Cells in which a silent radio returns.
fn cells_of_returns(both: &Bundle) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (path, name) in NAMES.into_iter().enumerate() {
        let rtt = both.0[path].rtt().as_secs_f64();
        let used = 2.0 * rtt + rtt.max(PROBE_INTERVAL_S);
        cells.push(cell(
            &format!("{name} returns: used"),
            both,
            Play::Returns(path, Death::Silent),
            used,
            None,
        ));
        let full = Play::Recovers(path);
        cells.push(cell(&format!("{name} returns: full rate"), both, full, 4.0, None));
        // What the losses of the other path alone cause.
        let gap = Play::ReturnsUnnoticed(path);
        cells.push(cell(&format!("{name} returns: gap"), both, gap, GAP_S[1 - path], None));
    }
    cells
}

/// Cells in which the aircraft has news of the carrier.
fn cells_of_news(both: &Bundle) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (path, name) in NAMES.into_iter().enumerate() {
        let [rtt, other] = [path, 1 - path].map(|at| both.0[at].rtt().as_secs_f64());
        let death = Death::Carrier;
        let dies = Play::DiesUnderBulk(path, death);
        cells.push(cell(&format!("{name}'s carrier goes"), both, dies, other + SLACK_S, None));
        let back = Play::Returns(path, death);
        cells.push(cell(
            &format!("{name}'s carrier returns: used"),
            both,
            back,
            2.0 * rtt + SLACK_S,
            None,
        ));
    }
    cells
}

/// Cells in which one direction dies, and those of a radio whose cells have edges.
fn cells_of_edges(both: &Bundle) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (path, name) in NAMES.into_iter().enumerate() {
        let [rtt, other] = [path, 1 - path].map(|at| both.0[at].rtt().as_secs_f64());
        let named = |what: &str| format!("{name}'s uplink dies: {what}");
        let death = Death::Uplink;
        let gap = 2.0 * rtt + other + SLACK_S;
        cells.push(cell(&named("gap"), both, Play::DiesUnderBulk(path, death), gap, None));
        cells.push(cell(&named("bulk"), both, Play::BulkAfter(path, death), 0.95, None));
    }
    let edges = both.with_cells();
    let [rtt, other] = [0, 1].map(|at| edges.0[at].rtt().as_secs_f64());
    cells.push(cell("cell edges: gap", &edges, Play::Edges, 2.0 * rtt + other + SLACK_S, None));
    cells.push(cell("cell edges: bulk", &edges, Play::BulkThroughEdges, 0.95, None));
    let flight = both.in_flight();
    let [other, rtt] = [0, 1].map(|at| flight.0[at].rtt().as_secs_f64());
    let longest = other.max(rtt);
    let gap = longest + other + rtt + SLACK_S;
    cells.push(cell("flight: gap", &flight, Play::Flight, gap, None));
    cells.push(cell("flight: bulk", &flight, Play::BulkInFlight, 0.95, None));
    cells
}

/// All cells.
///
/// # Errors
///
/// Returns an error if a link cannot have the losses of a cell.
pub fn cells() -> Result<Vec<Cell>, SpecError> {
    let (both, fours, twenties) =
        (Bundle::of_paper(1.0)?, Bundle::of_paper(4.0)?, Bundle::of_paper(20.0)?);
    let object = |kilobytes: u64| Play::Object(1000 * kilobytes);
    let mut cells = vec![
        cell("10 KB", &both, object(10), 1.10, None),
        cell("30 KB", &both, object(30), 1.09, None),
        cell("100 KB", &both, object(100), 1.09, None),
        cell("1 MB", &both, object(1000), 1.09, None),
        cell("10 KB in bursts of 4", &fours, object(10), 1.27, Some(2.5)),
        cell("10 KB in bursts of 20", &twenties, object(10), 1.32, Some(2.5)),
        cell("100 KB in bursts of 4", &fours, object(100), 1.20, Some(1.6)),
        cell("100 KB in bursts of 20", &twenties, object(100), 1.50, Some(1.6)),
        cell("10 KB beside bulk", &both, Play::ObjectBesideBulk(10_000), 1.15, None),
        cell("bulk", &both, Play::Bulk, 0.95, Some(1.13)),
        cell("reports per byte of bulk", &both, Play::Reports, 0.02, None),
        cell("reports on da2gc's rate back", &both, Play::ReportsOn(0), 0.10, None),
        cell("reports on mss's rate back", &both, Play::ReportsOn(1), 0.10, None),
        // Two round trips of the dead path and one of the other.
        cell("da2gc dies under bulk", &both, Play::DiesUnderBulk(0, Death::Silent), 1.335, None),
        cell("mss dies under bulk", &both, Play::DiesUnderBulk(1, Death::Silent), 1.834, None),
    ];
    for (how, class, bound) in
        [("fastest", stage::FASTEST, 1.25), ("redundant", stage::REDUNDANT, 0.62)]
    {
        let name = format!("the short path dies after the request, {how}");
        cells.push(cell(&name, &both, Play::DiesAfterRequest(class), bound, None));
    }
    cells.push(cell("page", &both, Play::Page, 1.2, None));
    let mss_first = both.reversed();
    cells.push(cell("page: against mss alone", &mss_first, Play::PageAgainstOne, 0.8, None));
    cells.push(cell("page: slower than mss alone", &mss_first, Play::PageSlower, 0.0, None));
    cells.push(cell("memory", &both, Play::Memory, 8.0, None));
    let lost_on_both: f64 = both.0.iter().map(Profile::forward_loss).product();
    for (path, name) in NAMES.into_iter().enumerate() {
        let named = |what: &str| format!("operator's call, {name} dies: {what}");
        let lost = lost_on_both + CALL_LOSS;
        cells.push(cell(&named("lost"), &both, Play::CallLost(path), lost, None));
        cells.push(cell(&named("delay"), &both, Play::CallDelay(path), CALL_DELAY_S, None));
    }
    cells.extend(cells_of_returns(&both));
    cells.extend(cells_of_news(&both));
    cells.extend(cells_of_edges(&both));
    let three = both.and_leo();
    for (name, play) in [("10 KB", object(10)), ("100 KB", object(100)), ("1 MB", object(1000))] {
        cells.push(cell(&format!("with a low orbit: {name}"), &three, play, 1.15, None));
    }
    cells.push(cell("with a low orbit: bulk", &three, Play::Bulk, 0.93, None));
    for (fault, what) in Fault::ALL {
        for (good, name) in NAMES.into_iter().enumerate() {
            let bundle = both.beside_useless(good, fault)?;
            let named = |of: &str| format!("useless-{of}: {name} beside {what}");
            let object = Play::UselessForObject(10_000);
            cells.push(cell(&named("10 KB"), &bundle, object, 1.02, None));
            cells.push(cell(&named("bulk"), &bundle, Play::UselessForBulk, 0.99, None));
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests;
