//! Measurements of a grid's cells as a Parquet table. It has one column for each of the grid's, in
//! the order of [`COLUMNS`], then the columns that all grids share. `x` is a number, and null if a
//! row has no position. The file's metadata list the columns of the grid.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType};
use ::parquet::data_type::{Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::record::{Field, Row as Record};
use ::parquet::schema::parser::parse_message_type;

use crate::measured::{COLUMNS, Cell, Measured, Row, number};

/// Columns after those of the grid, the same in every table.
const SHARED: &str = "REQUIRED BINARY series (UTF8); REQUIRED BINARY metric (UTF8); \
                      REQUIRED BINARY unit (UTF8); REQUIRED INT32 run; REQUIRED INT64 seed; \
                      OPTIONAL DOUBLE x; REQUIRED DOUBLE value; REQUIRED BOOLEAN finished;";

/// Metadata key for the grid's columns, separated by commas.
const CELL_COLUMNS: &str = "bentpipe.cell-columns";

/// Maximum number of rows, which is beyond any study's grid: about 400 MB in memory.
const MAX_ROWS: usize = 1 << 22;

/// Reason why a table cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TableError {
    path: PathBuf,
    why: String,
}

/// Writes the results of one grid's cells in a canonical order, so that equal rows give equal
/// bytes. An existing file is replaced completely or not at all.
pub fn write_table(path: &Path, cells: &[Measured]) -> Result<(), TableError> {
    let wrong = |why: String| TableError { path: path.into(), why };
    let part = path.with_extension("parquet.part");
    let file = File::create(&part).map_err(|error| wrong(error.to_string()))?;
    let mut rows: Vec<(&Cell, &Row)> =
        cells.iter().flat_map(|one| one.rows.iter().map(|row| (&one.cell, row))).collect();
    rows.sort_by(|(cell, row), (other_cell, other)| {
        let key = |row: &Row| (row.metric.clone(), row.run, row.seed, row.series.clone());
        let cells = cell.cmp(other_cell).then_with(|| key(row).cmp(&key(other)));
        cells.then_with(|| row.x.unwrap_or(0.0).total_cmp(&other.x.unwrap_or(0.0)))
    });
    write(&file, &rows).map_err(|error| wrong(error.to_string()))?;
    let kept = file.sync_all().and_then(|()| fs::rename(&part, path));
    kept.map_err(|error| wrong(error.to_string()))
}

/// Reads the table at `path` of this grid of this study: by cell, in the table's order.
pub fn read_table(path: &Path, paper: &str, grid: &str) -> Result<Vec<Measured>, TableError> {
    let wrong = |why: String| TableError { path: path.into(), why };
    let failed = |error: ParquetError| wrong(error.to_string());
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let about = reader.metadata().file_metadata();
    if usize::try_from(about.num_rows()).is_ok_and(|count| count > MAX_ROWS) {
        let count = about.num_rows();
        return Err(wrong(format!("{count} rows are more than the {MAX_ROWS} of a grid")));
    }
    let known = about.key_value_metadata().into_iter().flatten();
    let columns = known
        .filter(|pair| pair.key == CELL_COLUMNS)
        .find_map(|pair| pair.value.clone())
        .ok_or_else(|| wrong(format!("no table of an experiment: it lacks {CELL_COLUMNS}")))?;
    let columns: BTreeSet<&str> = columns.split(',').collect();
    let mut cells: Vec<Measured> = Vec::new();
    for (place, record) in reader.get_row_iter(None).map_err(failed)?.enumerate() {
        let (cell, row) = measured(&record.map_err(failed)?, &columns)
            .ok_or_else(|| wrong(format!("row {place} lacks a column or its type")))?;
        match cells.last_mut() {
            Some(last) if last.cell == cell => last.rows.push(row),
            _ => {
                let (paper, grid) = (paper.into(), grid.into());
                cells.push(Measured { paper, grid, cell, rows: vec![row] });
            }
        }
    }
    Ok(cells)
}

fn write(file: impl Write + Send, rows: &[(&Cell, &Row)]) -> Result<(), ParquetError> {
    let of_cells: Vec<&str> = COLUMNS
        .into_iter()
        .filter(|column| rows.iter().any(|(cell, _)| cell.on(column).is_some()))
        .collect();
    let texts_of_cells: Vec<&str> = of_cells.iter().copied().filter(|one| *one != "x").collect();
    let columns: String =
        texts_of_cells.iter().map(|column| format!("REQUIRED BINARY {column} (UTF8); ")).collect();
    let schema = parse_message_type(&format!("message measured {{ {columns}{SHARED} }}"))?;
    let about = KeyValue::new(CELL_COLUMNS.into(), of_cells.join(","));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![about])).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in texts_of_cells {
        texts(&mut group, rows, |cell, _| cell.on(column).unwrap_or_default())?;
    }
    texts(&mut group, rows, |_, row| &row.series)?;
    texts(&mut group, rows, |_, row| &row.metric)?;
    texts(&mut group, rows, |_, row| &row.unit)?;
    plain::<Int32Type>(&mut group, rows, |row| row.run.cast_signed())?;
    plain::<Int64Type>(&mut group, rows, |row| row.seed.cast_signed())?;
    let places: Vec<Option<f64>> = rows
        .iter()
        .map(|(cell, row)| cell.on("x").and_then(|x| x.parse().ok()).or(row.x))
        .collect();
    let there: Vec<i16> = places.iter().map(|place| i16::from(place.is_some())).collect();
    let places: Vec<f64> = places.into_iter().flatten().collect();
    column::<DoubleType>(&mut group, &places, Some(&there))?;
    plain::<DoubleType>(&mut group, rows, |row| row.value)?;
    plain::<BoolType>(&mut group, rows, |row| row.finished)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn texts<'a, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[(&'a Cell, &'a Row)],
    text: impl Fn(&'a Cell, &'a Row) -> &'a str,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = rows.iter().map(|(cell, row)| text(cell, row).into()).collect();
    column::<ByteArrayType>(group, &values, None)
}

fn plain<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[(&Cell, &Row)],
    value: impl Fn(&Row) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.iter().map(|(_, row)| value(row)).collect();
    column::<T>(group, &values, None)
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has fewer columns".into()));
    };
    column.typed::<T>().write_batch(values, there, None)?;
    column.close()
}

fn measured(record: &Record, columns: &BTreeSet<&str>) -> Option<(Cell, Row)> {
    let mut cell = BTreeMap::new();
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut x, mut run, mut seed, mut value, mut finished) = (None, None, None, None, None);
    for (name, field) in record.get_column_iter() {
        match (name.as_str(), field) {
            (name, Field::Str(text)) if columns.contains(name) => {
                cell.insert(name.to_owned(), text.clone());
            }
            (name @ ("series" | "metric" | "unit"), Field::Str(text)) => {
                texts.insert(name, text);
            }
            ("run", Field::Int(number)) => run = Some(number.cast_unsigned()),
            ("seed", Field::Long(number)) => seed = Some(number.cast_unsigned()),
            ("x", Field::Double(number)) => x = Some(*number),
            ("x", Field::Null) => {}
            ("value", Field::Double(number)) => value = Some(*number),
            ("finished", Field::Bool(truth)) => finished = Some(*truth),
            _ => return None,
        }
    }
    if columns.contains("x") {
        cell.insert("x".into(), number(x.take()?));
    }
    let row = Row {
        metric: (*texts.get("metric")?).into(),
        unit: (*texts.get("unit")?).into(),
        series: (*texts.get("series")?).into(),
        x,
        run: run?,
        seed: seed?,
        value: value?,
        finished: finished?,
    };
    Some((Cell::of(cell), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: u32, x: Option<f64>, value: f64) -> Row {
        Row {
            metric: "rate".into(),
            unit: "bit/s".into(),
            series: "connection-1".into(),
            x,
            run,
            seed: u64::MAX - 1,
            value,
            finished: run != 1,
        }
    }

    fn cell(columns: &[(&str, &str)], rows: Vec<Row>) -> Measured {
        let cell = Cell::of(columns.iter().copied());
        Measured { paper: "spdy".into(), grid: "sites".into(), cell, rows }
    }

    #[test]
    fn written_rows_read_back_in_a_fixed_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let (one, two) = ([("link", "aero"), ("page", "")], [("link", "mss"), ("page", "bbc")]);
        let (a, b, c) = (row(0, Some(0.1), 2.5), row(0, Some(0.2), 1.0), row(1, None, 0.1));
        let written = [
            cell(&two, vec![c.clone(), b.clone(), a.clone()]),
            cell(&one, vec![row(0, None, -0.0)]),
        ];
        write_table(&path, &written).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = read_table(&path, "spdy", "sites").unwrap();
        assert_eq!(read, [written[1].clone(), cell(&two, vec![a, b, c])]);
        write_table(&path, &read).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn x_is_the_cells_where_it_is_a_column_of_the_grid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let written = [cell(&[("x", "0.000001")], vec![row(0, None, 1.0)])];
        write_table(&path, &written).unwrap();
        assert_eq!(read_table(&path, "spdy", "sites").unwrap(), written);
    }

    #[test]
    fn no_rows_are_a_table_too_and_rubbish_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write_table(&path, &[]).unwrap();
        assert_eq!(read_table(&path, "spdy", "sites").unwrap(), []);
        std::fs::write(&path, b"PAR1 and then nothing of the kind PAR1").unwrap();
        let error = read_table(&path, "spdy", "sites").unwrap_err().to_string();
        assert!(error.contains("t.parquet"), "{error}");
    }
}
