//! Figure of a section: a Vega-Lite specification and its data. The page's script selects rows, one
//! panel for each facet.

mod pool;
mod spec;

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};
use serde_json::{Map, Value, json};

use super::format::{Summary, name, show, unit};
use super::section::Shown;
use crate::measured::{COLUMNS, Measured, Row};
use crate::statistics::{Statistic, percentile};
use crate::study::{FigureKind, Section};

/// Maximum points of one cell in a figure: more than the width of a panel.
const MAX_POINTS: usize = 3_000;

/// Maximum objects of a waterfall. More of them would be illegible.
const MAX_OBJECTS: usize = 120;

/// Lower end of a logarithmic axis.
const FOOT: f64 = 0.001;

/// Number of colours in the page's style.
const COLOURS: usize = 9;

/// A figure in preparation.
struct Drawing<'a> {
    shown: &'a Shown<'a>,
    cells: Vec<&'a Measured>,
    /// `true` if the baseline and Bentpipe have separate panels.
    by_system: bool,
    /// Columns of which the reader selects a value.
    picked: Vec<&'static str>,
    /// Cells of the mean at each position, if bars are means.
    pools: BTreeMap<&'a str, Vec<&'a str>>,
}

/// The figure of a section. Empty for a table, or if nothing was measured.
pub(super) fn figure(shown: &Shown<'_>) -> Markup {
    let section = shown.section;
    let Some(drawing) = Drawing::new(shown) else { return html! {} };
    let data = drawing.data();
    let colours = data["colours"].as_array().map(Vec::as_slice).unwrap_or_default();
    let what = match section.figure.kind {
        FigureKind::Waterfall => "objects over the seconds since the page's start".to_owned(),
        FigureKind::Cdf => format!("share of objects over the time {}", name(&section.figure.x)),
        _ => format!("{} over {}", name(&section.figure.y), drawing.x_title()),
    };
    html! {
        figure.chart {
            @if colours.len() > 1 {
                ul.key { @for (slot, colour) in colours.iter().enumerate() {
                    li { span class={ "swatch c" (slot % COLOURS + 1) } {} (colour.as_str().unwrap_or_default()) }
                } }
            }
            div.picks {}
            div.panels role="img" aria-label={ (section.title) ": " (what) ". The table beneath has the numbers." } {}
            figcaption { (what) (drawing.caption()) }
            // `<` could end the script element, so it is escaped in JSON.
            script type="application/json" { (PreEscaped(data.to_string().replace('<', "\\u003c"))) }
        }
    }
}

impl<'a> Drawing<'a> {
    fn new(shown: &'a Shown<'a>) -> Option<Self> {
        let figure = &shown.section.figure;
        let mut cells = shown.cells();
        if figure.kind == FigureKind::Table || cells.is_empty() {
            return None;
        }
        let drawn = [Some(&figure.x), figure.colour.as_ref(), figure.facet.as_ref()];
        let is_drawn = |column: &str| drawn.into_iter().flatten().any(|one| one == column);
        let by_system = shown.has_systems() && !is_drawn("contender");
        if by_system {
            cells.retain(|one| {
                let by = one.cell.on("contender");
                systems(shown.section).any(|(own, _)| Some(own) == by)
            });
        }
        let pools = match &figure.pool {
            Some(pool) => pool::pools(&cells, &figure.x, pool),
            None => BTreeMap::new(),
        };
        if let Some(pool) = &figure.pool {
            cells.retain(|one| {
                let own = pools.get(one.cell.on(&figure.x).unwrap_or_default());
                own.is_some_and(|own| one.cell.on(pool).is_some_and(|on| own.contains(&on)))
            });
        }
        cells.first()?;
        // A distribution covers the objects of all sites; a scatter plot covers all runs.
        let pooled = |column: &str| match figure.kind {
            FigureKind::Cdf => column == "page",
            FigureKind::Scatter => true,
            _ => figure.pool.as_deref() == Some(column),
        };
        let mut told: Vec<&str> =
            COLUMNS.into_iter().filter(|one| is_drawn(one) || *one == "contender").collect();
        let mut picked = Vec::new();
        for column in COLUMNS {
            let is_choice = !told.contains(&column) && !pooled(column);
            if is_choice && !follows(&cells, column, &told) {
                picked.push(column);
                told.push(column);
            }
        }
        Some(Self { shown, cells, by_system, picked, pools })
    }

    fn data(&self) -> Value {
        let figure = &self.shown.section.figure;
        let rows = self.rows();
        let systems: Vec<Value> = if self.by_system {
            let of = |(one, title): (&str, &str)| json!({ "value": one, "title": format!("{title}{one}") });
            systems(self.shown.section).map(of).collect()
        } else {
            vec![json!({ "value": "", "title": "" })]
        };
        let picks: Vec<Value> = self
            .picked
            .iter()
            .enumerate()
            .map(|(place, column)| json!({ "field": format!("p{place}"), "label": column, "options": self.order(column) }))
            .collect();
        let facets = figure.facet.as_ref().map_or(vec![String::new()], |facet| self.order(facet));
        json!({
            "facets": facets,
            "contenders": systems,
            "colours": self.colours(),
            "start": self.start(&rows),
            "picks": picks,
            "shared": figure.kind != FigureKind::Scatter,
            "together": figure.facet.as_deref() == Some("contender"),
            "spec": self.spec(&rows),
            "rows": rows,
        })
    }

    /// Initial selection: the values that show the most panels, then the most colours, then the
    /// most rows.
    fn start(&self, rows: &[Value]) -> Vec<String> {
        let fields: Vec<String> = (0..self.picked.len()).map(|place| format!("p{place}")).collect();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let mut seen: Vec<(Vec<String>, [BTreeSet<String>; 2], usize)> = Vec::new();
        for row in rows {
            let key: Vec<String> = fields.iter().map(|field| text(row, field)).collect();
            let place = seen.iter().position(|(one, ..)| *one == key).unwrap_or_else(|| {
                seen.push((key, Default::default(), 0));
                seen.len() - 1
            });
            seen[place].1[0].insert(text(row, "f") + &text(row, "w"));
            seen[place].1[1].insert(text(row, "c"));
            seen[place].2 += 1;
        }
        // If several are equally good, take the first.
        let best = seen
            .into_iter()
            .rev()
            .max_by_key(|(_, [panels, colours], count)| (panels.len(), colours.len(), *count));
        best.map(|(key, ..)| key).unwrap_or_default()
    }

    /// Values of a column in the order of the grid. Systems under test are in the order of the
    /// section.
    fn order(&self, column: &str) -> Vec<String> {
        if column == "contender" {
            return self.shown.systems(&self.cells).into_iter().map(str::to_owned).collect();
        }
        let mut all: Vec<String> = Vec::new();
        for value in self.cells.iter().filter_map(|one| one.cell.on(column)) {
            if !all.iter().any(|one| one == value) {
                all.push(value.into());
            }
        }
        if column == "x" {
            let key = |text: &String| text.parse::<f64>().unwrap_or_default();
            all.sort_by(|one, two| key(one).total_cmp(&key(two)));
        }
        all
    }

    fn colours(&self) -> Vec<String> {
        let figure = &self.shown.section.figure;
        if figure.kind == FigureKind::Waterfall {
            return ["block", "wait", "receive"].map(str::to_owned).to_vec();
        }
        match figure.colour.as_deref() {
            None | Some("series") => vec![String::new()],
            Some(column) => {
                let mut all = self.order(column);
                // Bentpipe has the same colour in every figure.
                if let Some(with) =
                    all.iter().position(|one| Some(one) == self.shown.section.with.as_ref())
                {
                    all[..=with].rotate_right(1);
                }
                all
            }
        }
    }

    /// Fields common to all rows of a cell: its panel, its colour, and the keys of the selection.
    fn base(&self, one: &Measured) -> Map<String, Value> {
        let figure = &self.shown.section.figure;
        let on = |column: Option<&String>| {
            column.and_then(|column| one.cell.on(column)).unwrap_or_default().to_owned()
        };
        let mut row = Map::new();
        row.insert("f".into(), on(figure.facet.as_ref()).into());
        row.insert("c".into(), on(figure.colour.as_ref()).into());
        if self.by_system {
            row.insert("w".into(), one.cell.on("contender").unwrap_or_default().into());
        }
        for (place, column) in self.picked.iter().enumerate() {
            row.insert(format!("p{place}"), one.cell.on(column).unwrap_or_default().into());
        }
        row
    }

    fn rows(&self) -> Vec<Value> {
        let figure = &self.shown.section.figure;
        match figure.kind {
            FigureKind::Cdf => self.distribution_rows(),
            FigureKind::Lines if self.is_over_time() => {
                self.cells.iter().flat_map(|one| self.time_rows(one)).collect()
            }
            FigureKind::Scatter => self.cells.iter().flat_map(|one| self.run_rows(one)).collect(),
            FigureKind::Waterfall => {
                self.cells.iter().flat_map(|one| self.object_rows(one)).collect()
            }
            _ => pool::groups(&self.cells, figure.pool.as_deref())
                .iter()
                .filter_map(|group| self.cell_row(group))
                .collect(),
        }
    }

    /// Returns `true` if `x` is the position of each value and not a column of the grid.
    fn is_over_time(&self) -> bool {
        self.shown.section.figure.x == "x"
            && self.cells.iter().all(|one| one.cell.on("x").is_none())
    }

    /// A bar or a point of one cell, or the mean of several.
    fn cell_row(&self, group: &[&Measured]) -> Option<Value> {
        let figure = &self.shown.section.figure;
        let (one, others) = group.split_first()?;
        let values = match others {
            [] => one.values(&figure.y),
            _ => group
                .iter()
                .map(|one| figure.statistic.of(&one.values(&figure.y)))
                .collect::<Option<Vec<f64>>>()?,
        };
        let made = if others.is_empty() { figure.statistic } else { Statistic::Mean };
        let summary = Summary::of(&values, made)?;
        let unit = unit(&figure.y, false);
        let mut row = self.base(one);
        let x = one.cell.on(&figure.x)?;
        row.insert(
            "x".into(),
            match x.parse::<f64>() {
                Ok(number) if figure.x == "x" => number.into(),
                _ => x.into(),
            },
        );
        let scale = scale(unit);
        let finite =
            |value: f64| if value.is_finite() { json!(value * scale) } else { Value::Null };
        row.insert("y".into(), finite(summary.centre.value));
        // The spread between sites is not a confidence interval of their mean.
        if others.is_empty() {
            row.insert("low".into(), finite(summary.centre.low));
            row.insert("high".into(), finite(summary.centre.high));
        }
        // A bar of zero length gets a text that explains it.
        let word = match summary.centre.value {
            value if value.is_infinite() => Some("never"),
            0.0 => Some("0"),
            _ => None,
        };
        row.extend(word.map(|word| ("word".to_owned(), word.into())));
        if figure.kind == FigureKind::Box {
            for (name, q) in [("q1", 0.25), ("q3", 0.75), ("q5", 0.05), ("q95", 0.95)] {
                row.insert(name.into(), percentile(&values, q).map_or(Value::Null, finite));
            }
        }
        let beside = match others {
            [] => summary.beside(unit),
            _ => format!("mean of {} cells", group.len()),
        };
        let text = format!("{} ({beside})", show(summary.centre.value, unit));
        row.insert("t".into(), text.into());
        Some(row.into())
    }

    /// Rows of the first run: each series over time, without values between zeros, and thinned to
    /// the resolution of a panel.
    fn time_rows(&self, one: &Measured) -> Vec<Value> {
        let figure = &self.shown.section.figure;
        let run = one.of(&figure.y).map(|row| row.run).min();
        let rows: Vec<&Row> =
            one.of(&figure.y).filter(|row| Some(row.run) == run && row.x.is_some()).collect();
        let is_zero = |place: Option<usize>, series: &str| {
            let row = place.and_then(|place| rows.get(place));
            row.is_some_and(|row| row.value == 0.0 && row.series == series)
        };
        let rows: Vec<&Row> = (0..rows.len())
            .filter(|&at| {
                let near = [at.checked_sub(1), Some(at), Some(at + 1)];
                !near.into_iter().all(|place| is_zero(place, &rows[at].series))
            })
            .map(|at| rows[at])
            .collect();
        let step = rows.len().div_ceil(MAX_POINTS).max(1);
        let scale = scale(unit(&figure.y, false));
        let of = |(_, row): (usize, &Row)| {
            let mut point = self.base(one);
            point.insert("x".into(), json!(row.x));
            point.insert("y".into(), json!(row.value * scale));
            point.insert("s".into(), row.series.clone().into());
            Value::from(point)
        };
        rows.into_iter().enumerate().filter(|(place, _)| place % step == 0).map(of).collect()
    }

    /// A hundred points of the distribution of all objects of the cells that differ only in their
    /// page.
    fn distribution_rows(&self) -> Vec<Value> {
        let figure = &self.shown.section.figure;
        let mut pools: Vec<(Map<String, Value>, Vec<f64>)> = Vec::new();
        for one in &self.cells {
            let (base, values) = (self.base(one), one.values(&figure.x));
            match pools.iter_mut().find(|(other, _)| *other == base) {
                Some((_, pool)) => pool.extend(values),
                None => pools.push((base, values)),
            }
        }
        let mut rows = Vec::new();
        for (base, mut pool) in pools {
            pool.sort_by(f64::total_cmp);
            for percent in (0..=100).filter(|_| !pool.is_empty()) {
                let rank = (pool.len() * percent).div_ceil(100).max(1) - 1;
                if !pool[rank].is_finite() {
                    break;
                }
                let mut row = base.clone();
                row.insert("x".into(), json!(pool[rank]));
                row.insert("y".into(), json!(percent as f64 / 100.0));
                rows.push(row.into());
            }
        }
        rows
    }

    /// A point for each run with a possible value.
    fn run_rows(&self, one: &Measured) -> Vec<Value> {
        let figure = &self.shown.section.figure;
        let of = |x: &Row| {
            let mut values = one.of(&figure.y).filter(|y| y.is_possible());
            let y = values.find(|y| y.run == x.run && y.series == x.series)?;
            let mut point = self.base(one);
            point.insert("x".into(), json!(x.value.max(FOOT)));
            point.insert("y".into(), json!(y.value.max(FOOT)));
            let text = |row: &Row| format!("{} {}", name(&row.metric), show(row.value, &row.unit));
            point.insert("t".into(), format!("{}, {}, run {}", text(x), text(y), x.run).into());
            Some(point.into())
        };
        let rows = one.of(&figure.x).filter(|x| x.is_possible());
        rows.take(MAX_POINTS).filter_map(of).collect()
    }

    /// Phases of each object, from the run nearest to the median.
    fn object_rows(&self, one: &Measured) -> Vec<Value> {
        let y = &self.shown.section.figure.y;
        let Some(median) = Statistic::Median.of(&one.values(y)) else { return Vec::new() };
        let off = |row: &&Row| (row.ranked() - median).abs();
        let nearest = one.of(y).min_by(|one, two| off(one).total_cmp(&off(two))).map(|row| row.run);
        let mine = |phase| one.of(phase).filter(|row| Some(row.run) == nearest);
        let mut objects: Vec<&Row> = mine("block").filter(|row| row.x.is_some()).collect();
        objects.sort_by(|one, two| one.x.unwrap_or(0.0).total_cmp(&two.x.unwrap_or(0.0)));
        let mut rows = Vec::new();
        for (place, object) in objects.into_iter().take(MAX_OBJECTS).enumerate() {
            let mut from = object.x.unwrap_or_default();
            for phase in ["block", "wait", "receive"] {
                let found = mine(phase).find(|row| row.series == object.series);
                let Some(part) = found.filter(|part| part.value > 0.0) else { continue };
                let mut row = self.base(one);
                row.insert("c".into(), phase.into());
                row.insert("x".into(), json!(from));
                from += part.value;
                row.insert("x2".into(), json!(from));
                row.insert("y".into(), json!(place + 1));
                row.insert(
                    "t".into(),
                    format!("{}: {phase} {}", object.series, show(part.value, "s")).into(),
                );
                rows.push(row.into());
            }
        }
        rows
    }

    fn x_title(&self) -> String {
        let figure = &self.shown.section.figure;
        match (&self.shown.grid.x, figure.x.as_str()) {
            (Some(x), "x") => x.clone(),
            (None, "x") => "seconds since the start".into(),
            (_, x) => name(x).into(),
        }
    }

    fn caption(&self) -> String {
        let figure = &self.shown.section.figure;
        let caption = match figure.kind {
            FigureKind::Bars if figure.pool.is_some() => return self.pooled_caption(),
            FigureKind::Bars => {
                ": medians, with 95 % intervals by bootstrap; where there is no bar and no word \
                 nothing was measured."
            }
            FigureKind::Lines if self.is_over_time() => ": the first run.",
            FigureKind::Lines => ": medians, with 95 % intervals by bootstrap.",
            FigureKind::Cdf => ": of all sites and runs.",
            FigureKind::Box => {
                ": median, quartiles, 5th and 95th percentile, which of fewer than 20 values are \
                 the least and the greatest."
            }
            FigureKind::Scatter => ": each run a point; what is less stands at 0.1 %.",
            FigureKind::Waterfall => {
                ", of the run nearest to the median; a bar begins when its connection was up."
            }
            FigureKind::Table => ".",
        };
        caption.into()
    }

    /// Caption that names the cells of a mean.
    fn pooled_caption(&self) -> String {
        let what = match self.shown.section.figure.statistic {
            Statistic::P95 => "95th percentiles (of fewer than 20 runs the greatest)",
            Statistic::Mean => "means",
            Statistic::Min => "least values",
            Statistic::Max => "greatest values",
            Statistic::Median => "medians",
        };
        let of = |(place, pool): (&&str, &Vec<&str>)| match pool.as_slice() {
            [] => format!("{place}: nothing that all of them have"),
            pool => format!("{place}: {}", pool.join(", ")),
        };
        let pools: Vec<String> = self.pools.iter().map(of).collect();
        format!(": means of {what}, of what all bars of a place have. {}.", pools.join("; "))
    }
}

/// Systems with separate panels, each with a prefix for its name.
fn systems(section: &Section) -> impl Iterator<Item = (&str, &'static str)> {
    let today = section.today.as_deref().map(|one| (one, "measured today: "));
    let with = section.with.as_deref().map(|one| (one, "with Bentpipe: "));
    let beside = section.beside.iter().map(|one| (one.as_str(), "beside them: "));
    today.into_iter().chain(with).chain(beside)
}

/// Returns `true` if the cells' values in `column` follow from those in `told`. Then there is
/// nothing to select.
fn follows(cells: &[&Measured], column: &str, told: &[&str]) -> bool {
    let mut values = BTreeMap::new();
    cells.iter().all(|one| {
        let key: Vec<Option<&str>> = told.iter().map(|column| one.cell.on(column)).collect();
        *values.entry(key).or_insert(one.cell.on(column)) == one.cell.on(column)
    })
}

/// Factor for values in a figure, because rates are shown in Mbit/s.
fn scale(unit: &str) -> f64 {
    if unit == "bit/s" { 1e-6 } else { 1.0 }
}
