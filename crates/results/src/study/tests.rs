use std::collections::BTreeSet;

use super::*;
use crate::measured::{Cell, Measured, Row};

const SMALL: &str = r#"
paper = "P"
authors = "A"
about = "About."

[[page]]
id = "one"
objects = 1
bytes = 100

[[page]]
id = "site"
connections = 17
kilobytes = 111.13
requests = 18.97
domains = 3.0

[[condition]]
id = "rough"
about = "bursts"
set = { burst = 4, tls = "1.2", fast-open = false }

[[grid]]
id = "pages"
workload = "page"
runs = 3
deadline = "60 s"
x = "bit-error rate"
metrics = ["plt"]
fixed = { engine = "emu", condition = "rough", page = "one" }
settings = { connections = 6 }

[[grid.axes]]
contender = ["e2e-cubic", "bentpipe"]
x = [0.0, 1e-6]

[[grid.axes]]
runs = 5
deadline = "90 s"
contender = "bentpipe"
x = [1e-6, 1e-5]
page = ["one", "site"]

[grid.quick]
runs = 1

[[grid.quick.axes]]
contender = ["bentpipe"]
x = [0, 1e-6]

[[section]]
id = "fig"
at = "section 1"
title = "T"
grid = "pages"
where = { page = "one" }
today = "e2e-cubic"
with = "bentpipe"
method = "M."
ours = "O."
figure = "lines"
x = "x"
y = "plt"
colour = "contender"

[[section.paper]]
where = { x = 0 }
metric = "plt"
unit = "s"
high = 10.0
text = "at most 10 s"

[[section.paper]]
where = { x = 1e-6 }
against = { x = 0 }
metric = "plt"
unit = "ratio"
kind = "mean"
value = 2
text = "twice"
"#;

fn small(change: impl Fn(&str) -> String) -> Result<Study, String> {
    Study::parse("small", "small.toml", &change(SMALL)).map_err(|error| error.to_string())
}

fn shown<'a>(planned: impl IntoIterator<Item = &'a Planned>) -> Vec<String> {
    let of = |one: &Planned| {
        let on = |column| one.cell.on(column).unwrap();
        format!("{} {} {} {}", on("contender"), on("page"), on("x"), one.runs)
    };
    planned.into_iter().map(of).collect()
}

#[test]
fn a_grid_is_the_union_of_its_blocks_with_the_most_runs_of_each_cell() {
    let study = small(str::to_owned).unwrap();
    let grid = study.grid("pages").unwrap();
    let cells = [
        "e2e-cubic one 0 3",
        "e2e-cubic one 0.000001 3",
        "bentpipe one 0 3",
        "bentpipe one 0.000001 5",
        "bentpipe one 0.00001 5",
        "bentpipe site 0.000001 5",
        "bentpipe site 0.00001 5",
    ];
    assert_eq!(shown(&grid.cells), cells);
    assert_eq!(grid.cells[0].cell.on("engine"), Some("emu"));
    let deadlines: Vec<u64> = grid.cells.iter().map(|cell| cell.deadline.as_secs()).collect();
    assert_eq!(deadlines, [60, 60, 60, 90, 90, 90, 90]);
    assert_eq!(shown(&grid.quick), ["bentpipe one 0 1", "bentpipe one 0.000001 1"]);
    assert_eq!(study.plan(true).count(), 2);
    assert_eq!(grid.planned(&grid.cells[4].cell), Some(&grid.cells[4]));
}

#[test]
fn the_parts_are_what_the_file_says() {
    let study = small(str::to_owned).unwrap();
    assert_eq!(study.page("one").unwrap().content, Content::Objects { count: 1, bytes: 100 });
    assert!(matches!(study.page("site").unwrap().content, Content::Site { connections: 17, .. }));
    let changes = &study.condition("rough").unwrap().set;
    let expected = Changes {
        burst: Some(4.0),
        tls: Some(TlsVersion::V1_2),
        fast_open: Some(false),
        ..Changes::default()
    };
    assert_eq!(*changes, expected);
    let section = study.section("fig").unwrap();
    assert_eq!(section.paper[0].value, StatedValue::Range(None, Some(10.0)));
    assert_eq!(section.varying(study.grid("pages").unwrap()), ["contender", "x"]);
}

#[test]
fn faults_are_reported_with_their_place() {
    let wrong = [
        ("figure = \"lines\"", "figure = \"lines\"\nfigures = 1", "small.toml:62: unknown field"),
        ("burst = 4", "bursts = 4", "small.toml:21: unknown field `bursts`"),
        ("\nruns = 5", "\ncontenders = \"x\"", "grid \"pages\", axes: there is no column \"conten"),
        ("id = \"site\"", "id = \"one\"", "two of page \"one\""),
        ("page = [\"one\", \"site\"]", "page = \"one\"", "page \"site\" is in no grid"),
        ("page = [\"one\", \"site\"]", "page = \"two\"", "there is no page \"two\""),
        ("x = [0, 1e-6]", "x = [1]", "is none of the full grid"),
        (
            "[\"e2e-cubic\", \"bentpipe\"]",
            "[\"e2e\"]",
            "there is no contender \"e2e\": write one of",
        ),
        ("x = [1e-6, 1e-5]", "link = \"mss\"", "different columns"),
        ("metrics = [\"plt\"]", "metrics = [\"plts\"]", "there is no metric \"plts\""),
        (
            "grid = \"pages\"",
            "grid = \"page\"",
            "section \"fig\": there is no grid \"page\": there",
        ),
        ("where = { page = \"one\" }", "where = { page = \"two\" }", "matches no cell of the grid"),
        ("where = { page = \"one\" }", "where = { page = \"site\" }", "no cell of the quick grid"),
        ("y = \"plt\"", "y = \"epb\"", "the figure's \"epb\" is neither a column nor a metric"),
        ("y = \"plt\"", "y = \"plt\"\nalso = [\"lcp\"]", "also: its grid does not measure \"lcp\""),
        ("high = 10.0", "high = 10.0\nlost = true", "more than one of value, low"),
        ("high = 10.0", "", "needs value, low or high, or lost"),
        ("where = { x = 0 }", "where = { x = 7 }", "where matches no cell of the section"),
        ("against = { x = 0 }", "against = { x = 7 }", "against leads to no cell"),
        ("deadline = \"90 s\"", "deadline = \"90\"", "deadline"),
        ("runs = 3", "runs = 0", "must be more than 0"),
        ("bytes = 100", "", "page \"one\": write objects and bytes"),
    ];
    for (from, to, says) in wrong {
        assert!(SMALL.contains(from), "{from}");
        let error = small(|text| text.replacen(from, to, 1)).expect_err(to);
        assert!(error.starts_with("small.toml") && error.contains(says), "{to}: {error}");
    }
}

#[test]
fn a_grid_cannot_be_without_bound() {
    let many: Vec<String> = (0..200).map(|x| x.to_string()).collect();
    let many = format!("x = [{}]\nlink = [{}]", many.join(", "), many.join(", "));
    let error = small(|text| text.replacen("x = [0.0, 1e-6]", &many, 1)).unwrap_err();
    assert!(error.contains("more than 20000 cells"), "{error}");
}

#[test]
fn shards_have_everything_once() {
    let study = Study::named("spdy").unwrap();
    let all: Vec<_> = study.plan(false).collect();
    let mut parts = Vec::new();
    for number in 1..=7 {
        let shard: Shard = format!("{number}/7").parse().unwrap();
        let part: Vec<_> = shard.part(study.plan(false)).collect();
        assert!(part.len().abs_diff(all.len() / 7) <= 1);
        parts.extend(part);
    }
    let name = |(grid, planned): &(&Grid, &Planned)| format!("{} {}", grid.id, planned.cell);
    let whole: BTreeSet<String> = all.iter().map(name).collect();
    assert_eq!(parts.len(), all.len());
    assert_eq!(parts.iter().map(name).collect::<BTreeSet<_>>(), whole);
    assert!(Shard::WHOLE.part(study.plan(false)).eq(all));
    for wrong in ["0/7", "8/7", "1/0", "1", "/", "-1/2"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

fn measured(system: &str, x: &str, values: &[f64]) -> Measured {
    let row = |(run, &value): (usize, &f64)| Row {
        metric: "plt".into(),
        unit: "s".into(),
        series: String::new(),
        x: None,
        run: run as u32,
        seed: 1,
        value,
        finished: true,
    };
    let cell = Cell::of([("contender", system), ("x", x), ("page", "one")]);
    let rows = values.iter().enumerate().map(row).collect();
    Measured { paper: "small".into(), grid: "pages".into(), cell, rows }
}

#[test]
fn a_stated_value_is_found_in_its_cells() {
    let study = small(str::to_owned).unwrap();
    let section = study.section("fig").unwrap();
    let all = [
        measured("e2e-cubic", "0", &[1.0, 2.0, 9.0]),
        measured("e2e-cubic", "0.000001", &[4.0, 6.0, 8.0]),
        measured("bentpipe", "0", &[0.5]),
    ];
    let among = all.iter().map(|one| (&one.cell, one)).collect();
    let found = |stated: usize, system| {
        let found = section.paper[stated].found(&among, &section.cells, Some(system));
        found.map(|found| (found.value, found.cells.len()))
    };
    assert_eq!(found(0, "e2e-cubic"), Some((2.0, 1)));
    assert_eq!(found(0, "bentpipe"), Some((0.5, 1)));
    assert_eq!(found(1, "e2e-cubic"), Some((3.0, 2)));
    assert_eq!(found(1, "bentpipe"), None);
}

#[test]
fn the_studies_built_in_are_those_of_the_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut built_in = Study::all().unwrap();
    built_in.extend(Study::own().unwrap());
    built_in.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!(Study::load_folder(&folder).unwrap(), built_in);
    let error = Study::named("wifi").unwrap_err().to_string();
    assert!(error.contains("mile-high, aerotcp"), "{error}");
}

/// Most file systems limit names to 255 bytes, and a file is first written as `.json.part`.
#[test]
fn every_cell_is_of_a_known_link_and_its_file_has_a_name_that_fits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for study in Study::all().unwrap().into_iter().chain(Study::own().unwrap()) {
        for (grid, planned) in study.plan(false) {
            let file = crate::Folder::cell_file(&study.name, &grid.id, &planned.cell);
            assert!(file.file_name().unwrap().len() < 240, "{}", file.display());
            for link in planned.cell.on("link").into_iter().flat_map(|links| links.split('+')) {
                let profile = root.join(format!("profiles/{link}.toml"));
                assert!(profile.exists(), "{}: there is no profile {link}", study.name);
            }
        }
    }
}
