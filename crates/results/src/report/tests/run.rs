//! A small run of a small study.

use std::path::Path;

use crate::claim::Claims;
use crate::folder::{LinkRange, Manifest};
use crate::measured::{Cell, Measured, Row, unit_of};
use crate::report::{Files, Report};
use crate::study::Study;

pub(super) const PAPER: &str = r#"
paper = "On <b>links</b> & \"loss\""
authors = "A. Author"
year = 2019
about = "About </script> it."

[[page]]
id = "one"
objects = 1
bytes = 100

[[grid]]
id = "pages"
workload = "page"
runs = 2
deadline = "60 s"
metrics = ["plt", "wait"]
fixed = { engine = "emu", page = "one" }
settings = { connections = 6 }

[[grid.axes]]
contender = ["e2e-cubic", "bentpipe", "kcptun"]
link = ["da2gc", "mss"]
protocol = ["http/1.1", "http/2"]

[grid.quick]
runs = 1

[[section]]
id = "fig"
at = "figure 1"
title = "Times <i>"
grid = "pages"
today = "e2e-cubic"
with = "bentpipe"
method = "Theirs."
ours = "Ours."
deviations = ["A difference."]
figure = "bars"
x = "link"
y = "plt"
colour = "protocol"
spread = "deviation"
note = "A note."

[[section.paper]]
where = { link = "mss", protocol = "http/1.1" }
metric = "plt"
unit = "s"
low = 1.0
high = 10.0
text = "1 to 10 s"

[[section.paper]]
where = { protocol = "http/2" }
against = { protocol = "http/1.1" }
metric = "plt"
unit = "ratio"
kind = "max"
value = 4.8
text = "up to 4.8 times"

[[section.paper]]
where = { link = "da2gc" }
metric = "plt"
unit = "s"
lost = true
text = "the curve"

[[unchecked]]
at = "section 9"
claim = "Passengers are glad."
why = "Nobody was asked."
"#;

pub(super) const CLAIMS: &str = r#"
[[claim]]
id = "small/slower"
paper = "small"
section = "fig"
at = "section 2"
claim = "HTTP/2 is slower."
metric = "plt"
of = { contender = "e2e-cubic", protocol = "http/2" }
against = { contender = "e2e-cubic", protocol = "http/1.1" }
each = ["link"]
take = "all"
above = 0.25
differs = "It is not known why."

[[claim]]
id = "bentpipe/fast"
paper = "bentpipe"
experiment = "small"
section = "fig"
at = "ours"
claim = "Bentpipe takes a second."
metric = "plt"
of = { contender = "bentpipe", protocol = "http/1.1", link = "mss" }
below = 0.25
differs = "Light takes longer."

[[claim]]
id = "small/kcptun"
paper = "small"
section = "fig"
at = "section 3"
claim = "A tunnel helps."
metric = "plt"
of = { contender = "kcptun", protocol = "http/1.1", link = "mss" }
below = 1.0
"#;

pub(super) fn row(metric: &str, run: u32, value: f64, finished: bool) -> Row {
    Row {
        metric: metric.into(),
        unit: unit_of(metric).unwrap().into(),
        series: String::new(),
        x: None,
        run,
        seed: 40 + u64::from(run),
        value,
        finished,
    }
}

pub(super) fn cell(system: &str, link: &str, protocol: &str, values: [f64; 2]) -> Measured {
    let columns = [
        ("engine", "emu"),
        ("page", "one"),
        ("contender", system),
        ("link", link),
        ("protocol", protocol),
    ];
    let rows = (0..).zip(values).map(|(run, value)| row("plt", run, value, value < 60.0)).collect();
    Measured { paper: "small".into(), grid: "pages".into(), cell: Cell::of(columns), rows }
}

pub(super) fn with<T>(vega: Option<&str>, look: impl FnOnce(&Report<'_>) -> T) -> T {
    with_more(Vec::new(), vega, look)
}

pub(super) fn with_more<T>(
    more: Vec<Measured>,
    vega: Option<&str>,
    look: impl FnOnce(&Report<'_>) -> T,
) -> T {
    let studies = [Study::parse("small", "small.toml", PAPER).unwrap()];
    let claims = Claims::parse("claims.toml", CLAIMS).unwrap();
    claims.check(&studies).unwrap();
    let mut measured = vec![
        cell("e2e-cubic", "mss", "http/1.1", [8.0, 12.0]),
        cell("e2e-cubic", "mss", "http/2", [16.0, 60.0]),
        cell("e2e-cubic", "da2gc", "http/1.1", [4.0, 4.0]),
        cell("e2e-cubic", "da2gc", "http/2", [8.0, 8.0]),
        cell("bentpipe", "mss", "http/1.1", [2.0, 3.0]),
    ];
    measured[4].rows.extend([row("wait", 0, 0.5, true), row("wait", 0, 0.7, true)]);
    measured.extend(more);
    let manifest = Manifest {
        version: "0.1.0".into(),
        studies: vec![("small".into(), "0123456789abcdef".into())],
        seed: 7,
        quick: true,
        builds: Vec::new(),
        hosts: Vec::new(),
        links: vec![LinkRange {
            paper: "small".into(),
            grid: "pages".into(),
            place: [("link".to_owned(), "mss".to_owned())].into(),
            path: "radio".into(),
            direction: "return".into(),
            cells: 5,
            delay_ms: Some([380.74, 380.86]),
            rate_mbps: None,
            loss: [0.0444, 0.0812],
        }],
    };
    let made = [("command".to_owned(), "bentpipe papers <x>".to_owned())];
    let files = Files::new(Path::new("/run"), Path::new("/run"), true);
    look(&Report {
        studies: &studies,
        claims: &claims,
        measured: &measured,
        manifest: &manifest,
        made: &made,
        files: &files,
        vega,
    })
}
