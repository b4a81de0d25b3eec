//! Parses a study's file, part by part.

use std::time::Duration;

use bentpipe_units::Span;
use serde::Deserialize;

use super::grid::{Block, Grid, expand};
use super::{
    Condition, Content, Figure, FigureKind, Kind, Page, Section, Spread, Stated, StatedValue,
    Study, StudyError, Unchecked, Workload,
};
use crate::measured::{COLUMNS, Pattern};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStudy {
    paper: String,
    authors: String,
    year: Option<u16>,
    venue: Option<String>,
    about: String,
    note: Option<String>,
    #[serde(default)]
    page: Vec<WrittenPage>,
    #[serde(default)]
    condition: Vec<Condition>,
    grid: Vec<WrittenGrid>,
    section: Vec<WrittenSection>,
    #[serde(default)]
    unchecked: Vec<Unchecked>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPage {
    id: String,
    objects: Option<u32>,
    bytes: Option<u64>,
    connections: Option<u32>,
    kilobytes: Option<f64>,
    requests: Option<f64>,
    domains: Option<f64>,
    about: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrid {
    id: String,
    workload: Workload,
    runs: u32,
    deadline: Span,
    metrics: Vec<String>,
    x: Option<String>,
    #[serde(default)]
    fixed: Pattern,
    #[serde(default)]
    settings: toml::Table,
    axes: Vec<toml::Table>,
    quick: WrittenQuick,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenQuick {
    runs: u32,
    deadline: Option<Span>,
    axes: Option<Vec<toml::Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSection {
    id: String,
    at: String,
    title: String,
    grid: String,
    #[serde(default, rename = "where")]
    cells: Pattern,
    today: Option<String>,
    with: Option<String>,
    method: String,
    ours: String,
    #[serde(default)]
    deviations: Vec<String>,
    figure: FigureKind,
    x: String,
    y: String,
    colour: Option<String>,
    facet: Option<String>,
    #[serde(default)]
    statistic: Option<Kind>,
    pool: Option<String>,
    #[serde(default)]
    beside: Vec<String>,
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    spread: Spread,
    note: Option<String>,
    differs: Option<String>,
    #[serde(default)]
    paper: Vec<WrittenStated>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStated {
    #[serde(rename = "where")]
    cells: Pattern,
    against: Option<Pattern>,
    metric: String,
    unit: String,
    #[serde(default)]
    kind: Kind,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(default)]
    lost: bool,
    text: String,
    differs: Option<String>,
}

pub(super) fn parse(name: &str, place: &str, text: &str) -> Result<Study, StudyError> {
    let wrong = |why| StudyError::Wrong { place: place.into(), why };
    let written: WrittenStudy = crate::toml_text::parse_toml(text)
        .map_err(|(line, why)| StudyError::Wrong { place: format!("{place}:{line}"), why })?;
    Ok(Study {
        name: name.into(),
        paper: written.paper,
        authors: written.authors,
        year: written.year,
        venue: written.venue,
        about: written.about.trim().into(),
        note: written.note,
        pages: each(written.page, page).map_err(wrong)?,
        conditions: written.condition,
        grids: each(written.grid, grid).map_err(wrong)?,
        sections: each(written.section, section).map_err(wrong)?,
        unchecked: written.unchecked,
        text: text.into(),
    })
}

fn each<T, U>(all: Vec<T>, one: impl Fn(T) -> Result<U, String>) -> Result<Vec<U>, String> {
    all.into_iter().map(one).collect()
}

fn page(written: WrittenPage) -> Result<Page, String> {
    let WrittenPage { id, objects, bytes, connections, kilobytes, requests, domains, about } =
        written;
    let content = match (objects, bytes, connections, kilobytes, requests, domains) {
        (Some(count), Some(bytes), None, None, None, None) => Content::Objects { count, bytes },
        (None, None, Some(connections), Some(kilobytes), Some(requests), Some(domains)) => {
            Content::Site { connections, kilobytes, requests, domains }
        }
        (None, None, None, None, None, None) => Content::Mix,
        _ => {
            return Err(format!(
                "page {id:?}: write objects and bytes, or connections, kilobytes, requests and \
                 domains, or none of them"
            ));
        }
    };
    Ok(Page { id, content, about })
}

fn grid(written: WrittenGrid) -> Result<Grid, String> {
    let id = written.id;
    let within = |part: &str, why: String| format!("grid {id:?}, {part}: {why}");
    let all = |part, axes: &[toml::Table], runs, deadline: Span| {
        let blocks: Result<Vec<Block>, String> =
            axes.iter().map(|axes| block(&written.fixed, axes, runs, deadline.into())).collect();
        blocks.and_then(|blocks| expand(&blocks)).map_err(|why| within(part, why))
    };
    let cells = all("axes", &written.axes, written.runs, written.deadline)?;
    let quick = written.quick;
    let deadline = quick.deadline.unwrap_or(written.deadline);
    let axes = quick.axes.as_ref().unwrap_or(&written.axes);
    let quick = all("quick", axes, quick.runs, deadline)?;
    let (x, metrics, settings) = (written.x, written.metrics, written.settings);
    Ok(Grid { id, workload: written.workload, metrics, x, settings, cells, quick })
}

/// Parses a block. Its `runs` and `deadline` override those of its grid, and its columns override
/// `fixed`.
fn block(
    fixed: &Pattern,
    written: &toml::Table,
    runs: u32,
    deadline: Duration,
) -> Result<Block, String> {
    let mut columns = written.clone();
    let runs = match columns.remove("runs") {
        Some(own) => own.try_into().map_err(|why| format!("runs: {why}"))?,
        None => runs,
    };
    let deadline = match columns.remove("deadline") {
        Some(own) => own.try_into::<Span>().map_err(|why| format!("deadline: {why}"))?.into(),
        None => deadline,
    };
    let mut own = Vec::new();
    for (column, value) in columns {
        if !COLUMNS.contains(&column.as_str()) {
            let known = COLUMNS.join(", ");
            return Err(format!("there is no column {column:?}: write one of {known}"));
        }
        let one = toml::Table::from_iter([(column.clone(), value)]);
        own.push(one.try_into::<Pattern>().map_err(|why| format!("{column}: {why}"))?);
    }
    let columns = own.iter().fold(fixed.clone(), |all, one| one.or(&all));
    Ok(Block { columns, runs, deadline })
}

fn section(written: WrittenSection) -> Result<Section, String> {
    let id = written.id;
    let pool = written.pool;
    let stated = |one| stated(one, pool.clone()).map_err(|why| format!("section {id:?}: {why}"));
    let paper = each(written.paper, stated)?;
    let statistic = written.statistic.unwrap_or_default().statistic(false);
    let (x, y, colour, facet) = (written.x, written.y, written.colour, written.facet);
    Ok(Section {
        id,
        at: written.at,
        title: written.title,
        grid: written.grid,
        cells: written.cells,
        today: written.today,
        with: written.with,
        method: written.method.trim().into(),
        ours: written.ours.trim().into(),
        deviations: written.deviations,
        figure: Figure { kind: written.figure, x, y, colour, facet, statistic, pool },
        beside: written.beside,
        also: written.also,
        spread: written.spread,
        note: written.note.map(|note| note.trim().into()),
        differs: written.differs.map(|why| why.trim().into()),
        paper,
    })
}

fn stated(written: WrittenStated, pool: Option<String>) -> Result<Stated, String> {
    let value = match (written.value, written.low, written.high, written.lost) {
        (Some(value), None, None, false) => StatedValue::Number(value),
        (None, None, None, true) => StatedValue::Lost,
        (None, None, None, false) => {
            return Err(format!("{:?} needs value, low or high, or lost = true", written.text));
        }
        (None, low, high, false) => StatedValue::Range(low, high),
        _ => {
            let text = written.text;
            return Err(format!("{text:?} has more than one of value, low and high, lost"));
        }
    };
    Ok(Stated {
        cells: written.cells,
        against: written.against,
        metric: written.metric,
        unit: written.unit,
        kind: written.kind,
        pool,
        value,
        text: written.text,
        differs: written.differs,
    })
}
