//! Tests of the pages that document the tables: `docs/sql.md` has the columns that are written, and
//! `experiments/README.md` the metrics.

use std::fs::{self, File};
use std::path::Path;

use bentpipe_results::{COLUMNS, Cell, METRICS, Measured, Row, write_table};
use parquet::basic::{ConvertedType, Repetition, Type};
use parquet::file::reader::{FileReader, SerializedFileReader};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rows of the table below a heading, as their cells.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let rest = page[start..].lines().skip(2).skip_while(|line| !line.starts_with('|'));
    let rows = rest.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').skip(1).map(str::trim).collect()).collect()
}

/// Columns of a written table, with their types in SQL. Those that may be null end in `?`.
fn written() -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let cell = Cell::of(COLUMNS.map(|column| (column, "1")));
    let rows = vec![Row::of("plt", 1.0, true)];
    let measured = Measured { paper: "p".into(), grid: "g".into(), cell, rows };
    write_table(&path, &[measured]).unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let named = schema.columns().iter().map(|column| {
        let sql = match (column.physical_type(), column.converted_type()) {
            (Type::BYTE_ARRAY, ConvertedType::UTF8) => "VARCHAR",
            (Type::INT32, _) => "INTEGER",
            (Type::INT64, _) => "BIGINT",
            (Type::DOUBLE, _) => "DOUBLE",
            (Type::BOOLEAN, _) => "BOOLEAN",
            other => panic!("{}: {other:?} is not documented", column.name()),
        };
        let is_optional = column.self_type().get_basic_info().repetition() == Repetition::OPTIONAL;
        (column.name().to_owned(), format!("{sql}{}", if is_optional { "?" } else { "" }))
    });
    named.collect()
}

#[test]
fn the_dictionary_has_the_columns_that_are_written() {
    let page = page("docs/sql.md");
    let documented: Vec<(String, String)> = table(&page, "## Columns")
        .iter()
        .map(|row| {
            let name = row[0].trim_matches(['*', '`']).to_owned();
            let null = if row[2].ends_with("else null") { "?" } else { "" };
            (name, format!("{}{null}", row[1].trim_matches('`')))
        })
        .collect();
    assert_eq!(documented, written());
}

#[test]
fn every_metric_is_documented_with_its_unit() {
    let page = page("experiments/README.md");
    let rows = table(&page, "### Metrics");
    for (metric, unit) in METRICS {
        let row = rows.iter().find(|row| row[0].split('`').any(|name| name == metric));
        let row = row.unwrap_or_else(|| panic!("{metric} is not in experiments/README.md"));
        assert!(row[1].split(", ").any(|one| one == unit), "{metric}: {unit}: {row:?}");
    }
}
