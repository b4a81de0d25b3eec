//! Consistency of the parts of a study.

use std::collections::BTreeSet;

use super::{FigureKind, Grid, PROTOCOLS, Planned, SYSTEMS, Section, Stated, StatedValue, Study};
use crate::measured::{COLUMNS, Cell, Pattern, unit_of};
use crate::statistics::Statistic;

/// Allowed values of columns that are the same in every study. `x` must be a number.
const VALUES: [(&str, &[&str]); 6] = [
    ("engine", &["emu", "sim"]),
    ("loader", &["light", "chromium"]),
    ("contender", &SYSTEMS),
    ("protocol", &PROTOCOLS),
    ("class", &["assured", "lower-effort"]),
    ("direction", &["down", "up"]),
];

pub(super) fn check(study: &Study) -> Result<(), String> {
    once("page", study.pages.iter().map(|page| page.id.as_str()))?;
    once("condition", study.conditions.iter().map(|condition| condition.id.as_str()))?;
    once("grid", study.grids.iter().map(|grid| grid.id.as_str()))?;
    once("section", study.sections.iter().map(|section| section.id.as_str()))?;
    for grid in &study.grids {
        check_grid(study, grid).map_err(|why| format!("grid {:?}: {why}", grid.id))?;
    }
    for page in &study.pages {
        used(study, "page", &page.id)?;
    }
    for condition in &study.conditions {
        used(study, "condition", &condition.id)?;
    }
    for section in &study.sections {
        let grid = study.grid(&section.grid).ok_or_else(|| {
            let grids: Vec<_> = study.grids.iter().map(|grid| grid.id.as_str()).collect();
            let (id, grids) = (&section.id, grids.join(", "));
            format!("section {id:?}: there is no grid {:?}: there are {grids}", section.grid)
        })?;
        check_section(section, grid).map_err(|why| format!("section {:?}: {why}", section.id))?;
    }
    Ok(())
}

/// Checks that all `ids` differ.
pub(crate) fn once<'a>(what: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(format!("there are two of {what} {id:?}: rename one"));
        }
    }
    Ok(())
}

fn used(study: &Study, column: &str, id: &str) -> Result<(), String> {
    let mut cells = study.grids.iter().flat_map(|grid| &grid.cells);
    if cells.any(|planned| planned.cell.on(column) == Some(id)) {
        return Ok(());
    }
    Err(format!("{column} {id:?} is in no grid: use it or take it away"))
}

fn check_grid(study: &Study, grid: &Grid) -> Result<(), String> {
    if let Some(metric) = grid.metrics.iter().find(|metric| unit_of(metric).is_none()) {
        return Err(format!("there is no metric {metric:?}: see METRICS in measured.rs"));
    }
    let first = grid.cells.first().ok_or("there are no cells: write a block of axes")?;
    for planned in &grid.cells {
        check_cell(study, planned)?;
        if !same_columns(&planned.cell, &first.cell) {
            return Err(format!("{} and {} have different columns", first.cell, planned.cell));
        }
    }
    let full: BTreeSet<&Cell> = grid.cells.iter().map(|planned| &planned.cell).collect();
    if let Some(planned) = grid.quick.iter().find(|planned| !full.contains(&planned.cell)) {
        return Err(format!("the quick cell {} is none of the full grid", planned.cell));
    }
    Ok(())
}

fn check_cell(study: &Study, planned: &Planned) -> Result<(), String> {
    let cell = &planned.cell;
    if planned.runs == 0 || planned.deadline.is_zero() {
        return Err(format!("{cell}: runs and deadline must be more than 0"));
    }
    for (column, known) in VALUES {
        if let Some(value) = cell.on(column).filter(|value| !known.contains(value)) {
            let known = known.join(", ");
            return Err(format!("there is no {column} {value:?}: write one of {known}"));
        }
    }
    if let Some(page) = cell.on("page").filter(|page| study.page(page).is_none()) {
        return Err(format!("there is no page {page:?}: write a [[page]] for it"));
    }
    let condition = cell.on("condition").filter(|id| study.condition(id).is_none());
    if let Some(condition) = condition {
        return Err(format!("there is no condition {condition:?}: write a [[condition]] for it"));
    }
    match cell.on("x").map(str::parse::<f64>) {
        Some(Err(_)) => Err(format!("{cell}: x must be a number")),
        _ => Ok(()),
    }
}

fn same_columns(one: &Cell, two: &Cell) -> bool {
    one.columns().map(|(column, _)| column).eq(two.columns().map(|(column, _)| column))
}

fn check_section(section: &Section, grid: &Grid) -> Result<(), String> {
    let any = |cells: &[Planned]| cells.iter().any(|one| section.cells.matches(&one.cell));
    if !any(&grid.cells) {
        return Err("where matches no cell of the grid".into());
    }
    if !any(&grid.quick) {
        return Err("where matches no cell of the quick grid: a quick report would lack it".into());
    }
    for system in [&section.today, &section.with].into_iter().flatten().chain(&section.beside) {
        if !SYSTEMS.contains(&system.as_str()) {
            let known = SYSTEMS.join(", ");
            return Err(format!("there is no contender {system:?}: write one of {known}"));
        }
    }
    let figure = &section.figure;
    for name in [Some(&figure.x), Some(&figure.y), figure.colour.as_ref(), figure.facet.as_ref()] {
        let known = |name: &&String| {
            COLUMNS.contains(&name.as_str())
                || grid.metrics.contains(name)
                || matches!(name.as_str(), "series" | "share")
        };
        if let Some(name) = name.filter(|name| !known(name)) {
            return Err(format!(
                "the figure's {name:?} is neither a column nor a metric of its grid"
            ));
        }
    }
    if figure.pool.is_some() && figure.kind != FigureKind::Bars {
        return Err("pool: only bars are means of cells".into());
    }
    if figure.pool.is_none() && figure.statistic != Statistic::Median {
        return Err("statistic: say with pool what its means are of".into());
    }
    if let Some(pool) = figure.pool.as_ref().filter(|pool| !COLUMNS.contains(&pool.as_str())) {
        return Err(format!("pool: {pool:?} is not a column: write one of {}", COLUMNS.join(", ")));
    }
    if let Some(metric) = section.also.iter().find(|metric| !grid.metrics.contains(metric)) {
        return Err(format!("also: its grid does not measure {metric:?}"));
    }
    section.paper.iter().try_for_each(|stated| {
        check_stated(section, grid, stated).map_err(|why| format!("{:?}: {why}", stated.text))
    })
}

fn check_stated(section: &Section, grid: &Grid, stated: &Stated) -> Result<(), String> {
    if !grid.metrics.contains(&stated.metric) {
        return Err(format!("its grid does not measure {:?}", stated.metric));
    }
    let matching = |pattern: &Pattern| -> Vec<&Cell> {
        let cells = grid.cells.iter().map(|planned| &planned.cell);
        cells.filter(|cell| pattern.matches(cell)).collect()
    };
    let all = matching(&stated.cells);
    let shown = all.iter().any(|cell| section.cells.matches(cell));
    if all.is_empty() || !(shown || stated.against.is_some() || stated.value == StatedValue::Lost) {
        return Err("where matches no cell of the section".into());
    }
    if let Some(against) = &stated.against {
        let full: BTreeSet<&Cell> = grid.cells.iter().map(|planned| &planned.cell).collect();
        if !all.iter().any(|cell| full.contains(&against.moved(cell))) {
            return Err("against leads to no cell of the grid".into());
        }
    }
    Ok(())
}
