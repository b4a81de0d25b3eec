//! Measured properties of a run's links.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One direction of a link, measured before a cell was run on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LinkMeasured {
    /// `radio`, or `terrestrial` for the path behind the ground station.
    pub path: String,
    /// `forward` (towards the client) or `return`.
    pub direction: String,
    /// Median one-way delay of small packets in milliseconds. Absent if no packet arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Rate at which bursts arrived, in Mbit/s. Absent if nothing limits it or no packet arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<f64>,
    /// `true` if the bursts kept the link busy. Otherwise the link carries at least this rate.
    pub filled: bool,
    /// Fraction of probes lost.
    pub loss: f64,
    /// Number of probes.
    pub probes: usize,
}

/// Range of the measurements of one direction of a link, before each of the cells that were run on
/// it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LinkRange {
    /// The study.
    pub paper: String,
    /// The grid.
    pub grid: String,
    /// Columns of the cells that identify the link, and their values.
    #[serde(rename = "where")]
    pub place: BTreeMap<String, String>,
    /// Same as in [`LinkMeasured`].
    pub path: String,
    /// Same as in [`LinkMeasured`].
    pub direction: String,
    /// Number of cells run on the link.
    pub cells: usize,
    /// Range of the one-way delay, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<[f64; 2]>,
    /// Range of the rate in Mbit/s, if the bursts kept the link busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<[f64; 2]>,
    /// Range of the fraction of probes lost.
    pub loss: [f64; 2],
}

/// Columns of a cell that identify its link.
const MAKE_A_LINK: [&str; 3] = ["link", "condition", "x"];

/// The fields of a log line that concern links.
#[derive(Deserialize)]
struct Line {
    paper: String,
    grid: String,
    cell: String,
    #[serde(default)]
    links: Vec<LinkMeasured>,
}

/// Ranges of all links in a log, sorted by study and place. If a cell was run again, its last line
/// counts. Lines without links are ignored.
pub(super) fn ranges(log: &str) -> Vec<LinkRange> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let by_cell =
        lines.map(|line| ((line.paper.clone(), line.grid.clone(), line.cell.clone()), line));
    let by_cell: BTreeMap<_, _> = by_cell.collect();
    let mut all: BTreeMap<_, LinkRange> = BTreeMap::new();
    for line in by_cell.into_values() {
        let columns = line.cell.split(',').filter_map(|pair| pair.split_once('='));
        let place: BTreeMap<String, String> = columns
            .filter(|(column, _)| MAKE_A_LINK.contains(column))
            .map(|(column, value)| (column.to_owned(), value.to_owned()))
            .collect();
        for link in line.links {
            let key = (
                line.paper.clone(),
                line.grid.clone(),
                place.clone(),
                link.path.clone(),
                link.direction.clone(),
            );
            match all.get_mut(&key) {
                Some(range) => range.take(&link),
                None => {
                    all.insert(key, LinkRange::of((&line.paper, &line.grid), &place, &link));
                }
            }
        }
    }
    all.into_values().collect()
}

impl LinkMeasured {
    fn sure_rate(&self) -> Option<f64> {
        self.rate_mbps.filter(|_| self.filled)
    }
}

impl LinkRange {
    fn of(
        (paper, grid): (&str, &str),
        place: &BTreeMap<String, String>,
        link: &LinkMeasured,
    ) -> Self {
        Self {
            paper: paper.into(),
            grid: grid.into(),
            place: place.clone(),
            path: link.path.clone(),
            direction: link.direction.clone(),
            cells: 1,
            delay_ms: link.delay_ms.map(|delay| [delay; 2]),
            rate_mbps: link.sure_rate().map(|rate| [rate; 2]),
            loss: [link.loss; 2],
        }
    }

    fn take(&mut self, link: &LinkMeasured) {
        self.cells += 1;
        widen(&mut self.delay_ms, link.delay_ms);
        widen(&mut self.rate_mbps, link.sure_rate());
        self.loss = wider(self.loss, link.loss);
    }
}

fn widen(range: &mut Option<[f64; 2]>, value: Option<f64>) {
    if let Some(value) = value {
        *range = Some(range.map_or([value; 2], |range| wider(range, value)));
    }
}

fn wider([least, most]: [f64; 2], value: f64) -> [f64; 2] {
    [least.min(value), most.max(value)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(paper: &str, cell: &str, path: &str, delay: f64, rate: f64, filled: bool) -> String {
        let link = json!({"path": path, "direction": "forward", "delay-ms": delay, "rate-mbps": rate,
            "filled": filled, "loss": delay / 1e4, "probes": 100});
        json!({"paper": paper, "grid": "g", "cell": cell, "links": [link], "seed": 1}).to_string()
    }

    #[test]
    fn cells_on_one_link_are_a_range() {
        let log = [
            line("spdy", "condition=loss-1,contender=bentpipe,link=geo", "radio", 310.0, 1.0, true),
            line("spdy", "condition=loss-1,contender=e2e,link=geo", "radio", 999.0, 9.9, true),
            line("spdy", "condition=loss-1,contender=e2e,link=geo", "radio", 311.0, 1.1, true),
            line("spdy", "condition=loss-1,contender=kcptun,link=geo", "radio", 309.0, 9.0, false),
            line("spdy", "condition=loss-0,contender=e2e,link=geo", "radio", 400.0, 1.0, true),
            line("aerotcp", "contender=e2e,link=geo,x=0.1", "terrestrial", 20.0, 200.0, false),
            json!({"paper": "spdy", "grid": "g", "cell": "link=geo", "not-measured": "x"})
                .to_string(),
            "no line of ours".into(),
        ];
        let found = ranges(&log.join("\n"));
        let words: Vec<_> = found.iter().map(|one| (&*one.paper, &*one.path, one.cells)).collect();
        assert_eq!(
            words,
            [("aerotcp", "terrestrial", 1), ("spdy", "radio", 1), ("spdy", "radio", 3)]
        );
        assert_eq!(found[2].delay_ms, Some([309.0, 311.0]));
        assert_eq!(found[2].rate_mbps, Some([1.0, 1.1]));
        assert_eq!(found[2].loss, [0.0309, 0.0311]);
        assert_eq!(found[2].place["condition"], "loss-1");
        assert_eq!((found[0].rate_mbps, &*found[0].place["x"]), (None, "0.1"));
    }
}
