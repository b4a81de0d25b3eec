//! The tables of a section: the paper's values next to the measured ones, and every cell.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::Worked;
use super::format::{Summary, aside, mean_and_deviation, name, show, stated, unit};
use crate::measured::{COLUMNS, Cell, Measured, Pattern};
use crate::statistics::{MIN_FOR_P95, Statistic, percentile};
use crate::study::{FigureKind, Found, Grid, Kind, SYSTEMS, Section, Spread, Stated, Study};

/// A section, with everything that is needed to show it.
pub(super) struct Shown<'a> {
    pub worked: &'a Worked<'a>,
    pub study: &'a Study,
    pub section: &'a Section,
    pub grid: &'a Grid,
    /// All measured cells of the grid.
    pub among: &'a BTreeMap<&'a Cell, &'a Measured>,
}

impl<'a> Shown<'a> {
    pub fn new(worked: &'a Worked<'a>, study: &'a Study, section: &'a Section) -> Option<Self> {
        let grid = study.grid(&section.grid)?;
        let among = worked.index.grid(&study.name, &grid.id);
        Some(Self { worked, study, section, grid, among })
    }

    /// Measured cells of the section, in the order of the grid.
    pub fn cells(&self) -> Vec<&'a Measured> {
        let mine = |cell: &&Cell| self.section.cells.matches(cell);
        let cells = self.grid.cells.iter().map(|planned| &planned.cell).filter(mine);
        cells.filter_map(|cell| self.among.get(cell).copied()).collect()
    }

    /// Returns `true` if the grid's cells differ in their systems under test.
    pub fn has_systems(&self) -> bool {
        self.grid.cells.first().is_some_and(|one| one.cell.on("contender").is_some())
    }

    /// Systems under test of `cells`: the baseline, then Bentpipe, then the others.
    pub fn systems(&self, cells: &[&Measured]) -> Vec<&'a str> {
        let first = [self.section.today.as_deref(), self.section.with.as_deref()];
        let mut all: Vec<&str> = first.into_iter().flatten().collect();
        all.extend(SYSTEMS.iter().filter(|one| !first.contains(&Some(one))));
        all.retain(|one| cells.iter().any(|cell| cell.cell.on("contender") == Some(one)));
        all
    }

    /// Finds the measurements for a value from a paper, for the baseline and for Bentpipe.
    /// Bentpipe's measurements come only from cells that the baseline has too. A value that names
    /// its system belongs to that system.
    pub fn found(&self, stated: &'a Stated) -> (Option<Found<'a>>, Option<Found<'a>>) {
        let (section, shown) = (self.section, &self.section.cells);
        let find = |system: Option<&str>| stated.found(self.among, shown, system);
        if !self.has_systems() {
            return (find(None), None);
        }
        let named = stated.cells.on("contender").is_some();
        // A section that excludes a system reports nothing about it.
        let part =
            |one: &&str| shown.on("contender").is_none_or(|all| all.iter().any(|it| it == one));
        let beside = match stated.cells.on("contender") {
            Some([one]) => Some(one.as_str()),
            _ => section.today.as_deref(),
        };
        let among = self.compared(beside);
        let with = section.with.as_deref().filter(part);
        let with = with.and_then(|with| stated.found(&among, shown, Some(with)));
        let own = |all: &[String]| Some(all) == section.with.as_ref().map(std::slice::from_ref);
        if named && stated.cells.on("contender").is_some_and(own) {
            return (None, with);
        }
        let today = match (&section.today, named) {
            (_, true) => find(None),
            (Some(today), false) => find(Some(today)),
            (None, false) => None,
        };
        (today, with)
    }

    /// All cells, except those of Bentpipe without a counterpart of the system `beside`. If there
    /// are no counterparts at all, all cells.
    fn compared(&self, beside: Option<&str>) -> BTreeMap<&'a Cell, &'a Measured> {
        let all = || self.among.iter().map(|(cell, measured)| (*cell, *measured));
        let (Some(beside), Some(with)) = (beside, &self.section.with) else {
            return all().collect();
        };
        let is_with = |cell: &Cell| cell.on("contender") == Some(with);
        let has_like = |cell: &Cell| self.among.contains_key(&cell.with("contender", beside));
        if !all().any(|(cell, _)| is_with(cell) && has_like(cell)) {
            return all().collect();
        }
        all().filter(|(cell, _)| !is_with(cell) || has_like(cell)).collect()
    }

    /// Metrics of the section, those of the figure first.
    pub fn metrics(&self) -> Vec<&'a str> {
        let figure = &self.section.figure;
        let drawn: &[&String] = match figure.kind {
            FigureKind::Cdf => &[&figure.x],
            FigureKind::Scatter => &[&figure.x, &figure.y],
            _ => &[&figure.y],
        };
        let mut all: Vec<&str> = Vec::new();
        let stated = self.section.paper.iter().map(|stated| &stated.metric);
        for metric in drawn.iter().copied().chain(&self.section.also).chain(stated) {
            if self.grid.metrics.contains(metric) && !all.contains(&metric.as_str()) {
                all.push(metric);
            }
        }
        all
    }

    fn anchor(&self, cell: &Cell) -> Option<String> {
        self.worked.index.anchor(&self.study.name, &self.grid.id, cell)
    }

    /// Table with `the paper says | measured today | with Bentpipe`. Empty if the paper has no
    /// values.
    pub fn stated_table(&self) -> Markup {
        let section = self.section;
        html! {
            @if !section.paper.is_empty() {
                // Shown on narrow screens, where the table has no header.
                p.who {
                    @if let Some(today) = &section.today { "Measured today: " code { (today) } ". " }
                    @if let Some(with) = &section.with { "With Bentpipe: " code { (with) } "." }
                }
                div.scroll tabindex="0" role="region" aria-label={ "Values of the paper: " (section.title) } {
                    table.stated {
                        thead { tr {
                            th scope="col" { "Of what" }
                            th scope="col" { "The paper says" }
                            @if self.has_today() {
                                th scope="col" {
                                    "Measured today"
                                    @if let Some(today) = &section.today { br; code { (today) } }
                                }
                            }
                            @if let Some(with) = &section.with {
                                th scope="col" { "With Bentpipe" br; code { (with) } }
                            }
                        } }
                        tbody { @for stated in &section.paper { (self.stated_row(stated)) } }
                    }
                }
                @if let Some(why) = &section.differs { p.differs { "What differs: " (why) } }
            }
        }
    }

    fn stated_row(&self, one: &'a Stated) -> Markup {
        let (today, with) = self.found(one);
        let fewer = fewer(today.as_ref(), with.as_ref());
        let quotient = one.against.is_some();
        let kind = format!("{:?}", one.kind).to_lowercase();
        let paper_unit = if quotient && one.unit == "ratio" { "×" } else { one.unit.as_str() };
        html! {
            tr {
                th scope="row" {
                    (name(&one.metric))
                    @if one.kind != Kind::Median { ", " (kind) }
                    span.where {
                        (self.pattern(&one.cells))
                        @if let Some(against) = &one.against { " ÷ " (self.pattern(against)) }
                    }
                }
                td.paper data-label="The paper says" {
                    span.value { (stated(one.value, paper_unit)) }
                    span.beside { (one.text) }
                    @if let Some(why) = &one.differs { span.beside.differs { (why) } }
                }
                @if self.has_today() {
                    td data-label="Measured today" { (self.found_cell(one, today, None)) }
                }
                @if let Some(system) = &self.section.with {
                    td.bentpipe data-label="With Bentpipe" {
                        (self.found_cell(one, with, Some(system)))
                        @if let Some((of, all)) = fewer {
                            span.beside { "of " (of) " of the " (all) " cells measured today" }
                        }
                    }
                }
            }
        }
    }

    /// Returns `true` if there is any measurement of the baseline.
    fn has_today(&self) -> bool {
        self.section.today.is_some() || !self.has_systems()
    }

    /// Reason for a missing measurement: it was never planned, not planned in this run, or gave no
    /// value.
    fn absent(&self, stated: &Stated, with: Option<&str>) -> &'static str {
        let system = with.or_else(|| match stated.cells.on("contender") {
            Some(_) => None,
            None => self.section.today.as_deref(),
        });
        let planned = |cells| stated.is_in(cells, &self.section.cells, system);
        match self.worked.report.manifest.quick {
            _ if !planned(&self.grid.cells) => "not run",
            true if !planned(&self.grid.quick) => "not in the quick part",
            _ => "not measured",
        }
    }

    fn found_cell(&self, stated: &Stated, found: Option<Found<'_>>, with: Option<&str>) -> Markup {
        let Some(found) = found else {
            return html! { span.none { (self.absent(stated, with)) } };
        };
        let quotient = stated.against.is_some();
        let unit = unit(&stated.metric, quotient);
        let summary = Summary::of(&found.values, stated.kind.statistic(quotient));
        let others = stated.cells.on("contender").is_some_and(|named| {
            let today = self.section.today.as_ref().map(std::slice::from_ref);
            Some(named) != today
                && found.cells.iter().all(|one| {
                    one.cell.on("contender").is_some_and(|its| named.iter().any(|name| name == its))
                })
        });
        html! {
            @match found.cells.as_slice() {
                [one] => (self.link(&one.cell, &show(found.value, unit))),
                cells => details.cells {
                    summary { (show(found.value, unit)) }
                    ul { @for one in cells { li { (self.link(&one.cell, &self.short(&one.cell))) } } }
                }
            }
            @if others { code.which { (of_whom(&found).join(", ")) } }
            @if is_greatest(stated, &found) {
                span.beside { "the greatest: " (fewest(stated, &found)) " values have no p95" }
            }
            @if let Some(summary) = summary {
                span.beside {
                    @if quotient { (spread("pairs", &found.values, unit)) }
                    @else if stated.pooled().is_some() { "mean of " (spread("cells", &found.values, unit)) }
                    @else { (summary.beside(unit)) }
                }
            }
        }
    }

    /// The cells in words, without the system that already heads the column.
    fn pattern(&self, pattern: &Pattern) -> String {
        let today = self.section.today.as_ref().map(std::slice::from_ref);
        let parts = pattern
            .columns()
            .filter(|(column, values)| !(*column == "contender" && Some(*values) == today));
        let of = |(column, values): (&str, &[String])| label(column, &values.join(", "));
        parts.map(of).collect::<Vec<_>>().join(" · ")
    }

    /// A number as a link to the runs from which it was computed.
    fn link(&self, cell: &Cell, text: &str) -> Markup {
        match self.anchor(cell) {
            Some(anchor) => html! { a.value href={ "#" (anchor) } { (text) } },
            None => html! { span.value { (text) } },
        }
    }

    /// The values that distinguish a cell from the others of its grid.
    fn short(&self, cell: &Cell) -> String {
        let varies = |column: &str| {
            self.grid.cells.iter().any(|planned| planned.cell.on(column) != cell.on(column))
        };
        let parts = cell.columns().filter(|(column, _)| varies(column));
        parts.map(|(column, value)| label(column, value)).collect::<Vec<_>>().join(" · ")
    }

    /// Every cell of the section: a row for each combination, a column for each system under test.
    pub fn cells_table(&self) -> Markup {
        let cells = self.cells();
        if cells.is_empty() {
            return html! { p.none { "Nothing of this section was measured in this run." } };
        }
        let systems = self.systems(&cells);
        let columns: Vec<&str> = COLUMNS
            .into_iter()
            .filter(|column| *column != "contender")
            .filter(|column| {
                cells.iter().any(|one| one.cell.on(column) != cells[0].cell.on(column))
            })
            .collect();
        let mut rows: Vec<Cell> = Vec::new();
        for one in &cells {
            let row = one.cell.without("contender");
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        let open = self.section.paper.is_empty() && rows.len() <= 24;
        html! {
            details.all open[open] {
                summary { "Every cell: median, 95 % interval, 95th percentile (of fewer than 20 values the greatest, max) and number of values" }
                @for metric in self.metrics() {
                    div.scroll tabindex="0" role="region" aria-label={ "Every cell: " (name(metric)) } {
                        table {
                            caption { (name(metric)) @if metric == "rate" { ", mean" } }
                            thead { tr {
                                @for column in &columns { th scope="col" { (self.heading(column)) } }
                                @if systems.is_empty() { th scope="col" { "measured" } }
                                @for system in &systems { th scope="col" { code { (system) } } }
                            } }
                            tbody { @for row in &rows {
                                tr {
                                    @for column in &columns { td { (row.on(column).unwrap_or_default()) } }
                                    @if systems.is_empty() { (self.cell(row, metric)) }
                                    @for system in &systems {
                                        (self.cell(&row.with("contender", system), metric))
                                    }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }

    fn heading(&self, column: &str) -> String {
        match &self.grid.x {
            Some(x) if column == "x" => x.clone(),
            _ => column.into(),
        }
    }

    fn cell(&self, cell: &Cell, metric: &str) -> Markup {
        let measured = self.among.get(cell).filter(|one| self.section.cells.matches(&one.cell));
        let unit = unit(metric, false);
        // During most of a page's time nothing arrives, so the median of a rate says nothing.
        let statistic = if metric == "rate" { Statistic::Mean } else { Statistic::Median };
        let summary = measured.and_then(|one| Summary::of(&one.values(metric), statistic));
        let deviation = measured
            .filter(|_| self.section.spread == Spread::Deviation)
            .and_then(|one| mean_and_deviation(&one.values(metric), unit));
        let aside = aside(measured.map_or(0, |one| one.set_aside(metric)));
        let bentpipe =
            cell.on("contender").is_some() && cell.on("contender") == self.section.with.as_deref();
        html! {
            td.bentpipe[bentpipe] {
                @match summary {
                    None if aside.is_empty() => span.none { "–" },
                    None => {},
                    Some(summary) => {
                        (self.link(cell, &show(summary.centre.value, unit)))
                        span.beside { (summary.beside(unit)) }
                        @if let Some(spread) = deviation { span.beside { (spread) } }
                    }
                }
                @if !aside.is_empty() { span.beside { (self.link(cell, &aside)) } }
            }
        }
    }
}

/// Returns `true` if the 95th percentile is really the largest value, because there are too few
/// values.
pub(super) fn is_greatest(stated: &Stated, found: &Found<'_>) -> bool {
    stated.kind == Kind::P95 && fewest(stated, found) < MIN_FOR_P95
}

/// Numbers of cells behind Bentpipe's value and behind the baseline's, if the latter is larger.
pub(super) fn fewer(today: Option<&Found<'_>>, with: Option<&Found<'_>>) -> Option<(usize, usize)> {
    let (of, all) = (with?.cells.len(), today?.cells.len());
    (of < all).then_some((of, all))
}

/// Number of values behind a percentile: of all runs together or, for a quotient, of the cell with
/// the fewest.
fn fewest(stated: &Stated, found: &Found<'_>) -> usize {
    let of_cells = found.cells.iter().map(|one| one.values(&stated.metric).len());
    let is_by_cell = stated.against.is_some() || stated.pooled().is_some();
    if is_by_cell { of_cells.min().unwrap_or(0) } else { found.values.len() }
}

/// Number of values, and their spread.
fn spread(what: &str, values: &[f64], unit: &str) -> String {
    let ends = percentile(values, 0.0).zip(percentile(values, 1.0));
    match ends.filter(|_| values.len() > 1) {
        Some((least, most)) => {
            format!("{} {what}, {} to {}", values.len(), show(least, unit), show(most, unit))
        }
        None => format!("one of {what}"),
    }
}

/// A column's value in a list of values. It includes the column's name if the value alone is
/// unclear.
pub(super) fn label(column: &str, value: &str) -> String {
    if column == "x" { format!("x = {value}") } else { value.into() }
}

/// Systems that carried the cells, without duplicates.
fn of_whom<'a>(found: &Found<'a>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for system in found.cells.iter().filter_map(|one| one.cell.on("contender")) {
        if !all.contains(&system) {
            all.push(system);
        }
    }
    all
}
