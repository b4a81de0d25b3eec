//! A section's rows as a Parquet table: a column for each axis, then those that all sections share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::record::{Field, Row};
use ::parquet::schema::parser::parse_message_type;

use crate::measured::{Cell, Measured};

/// The columns behind those of the axes, as every table has them.
const SHARED: &str = "REQUIRED BINARY metric (UTF8); REQUIRED BINARY unit (UTF8); REQUIRED INT32 run; \
                      REQUIRED INT64 seed; REQUIRED DOUBLE value; REQUIRED BOOLEAN finished;";

/// More rows are not a section of a study: some 100 MB in memory.
const MOST_ROWS: usize = 1 << 20;

/// Why a table cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TableError {
    path: PathBuf,
    why: String,
}

/// Writes `rows`, which are all of one section, in an order of their own: the same rows give the
/// same bytes.
pub fn write_table(path: &Path, rows: &[Measured]) -> Result<(), TableError> {
    let failed = |error: ParquetError| TableError { path: path.into(), why: error.to_string() };
    let file = File::create(path)
        .map_err(|error| TableError { path: path.into(), why: error.to_string() })?;
    let mut rows: Vec<&Measured> = rows.iter().collect();
    rows.sort_by(|one, other| {
        let key = |row: &'_ Measured| (row.cell.clone(), row.metric.clone(), row.run, row.seed);
        key(one).cmp(&key(other))
    });
    write(file, &rows).map_err(failed)
}

/// The rows of the table at `path`, of this section of this study.
pub fn read_table(path: &Path, study: &str, section: &str) -> Result<Vec<Measured>, TableError> {
    let wrong = |why: String| TableError { path: path.into(), why };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let reader = SerializedFileReader::new(file).map_err(|error| wrong(error.to_string()))?;
    let count = reader.metadata().file_metadata().num_rows();
    if usize::try_from(count).is_ok_and(|count| count > MOST_ROWS) {
        return Err(wrong(format!("{count} rows are more than the {MOST_ROWS} of a section")));
    }
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None).map_err(|error| wrong(error.to_string()))? {
        let row = row.map_err(|error| wrong(error.to_string()))?;
        let row = measured(&row, study, section)
            .ok_or_else(|| wrong(format!("row {} lacks a column or its type", rows.len())))?;
        rows.push(row);
    }
    Ok(rows)
}

fn write(file: impl Write + Send, rows: &[&Measured]) -> Result<(), ParquetError> {
    let axes: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.cell.0.keys()).map(String::as_str).collect();
    let columns: String =
        axes.iter().map(|axis| format!("REQUIRED BINARY {axis} (UTF8); ")).collect();
    let schema = parse_message_type(&format!("message measured {{ {columns}{SHARED} }}"))?;
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(WriterProperties::new()))?;
    let mut group = writer.next_row_group()?;
    for axis in axes {
        // A section's cells need not all lie on the same axes; no value is empty.
        texts(&mut group, rows, |row| row.cell.on(axis).unwrap_or_default())?;
    }
    texts(&mut group, rows, |row| &row.metric)?;
    texts(&mut group, rows, |row| &row.unit)?;
    let runs: Vec<i32> = rows.iter().map(|row| row.run.cast_signed()).collect();
    let seeds: Vec<i64> = rows.iter().map(|row| row.seed.cast_signed()).collect();
    let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
    let finished: Vec<bool> = rows.iter().map(|row| row.finished).collect();
    column::<Int32Type>(&mut group, &runs)?;
    column::<Int64Type>(&mut group, &seeds)?;
    column::<DoubleType>(&mut group, &values)?;
    column::<BoolType>(&mut group, &finished)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn texts<'a, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[&'a Measured],
    text: impl Fn(&'a Measured) -> &'a str,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = rows.iter().map(|row| text(row).into()).collect();
    column::<ByteArrayType>(group, &values)
}

fn column<T: ::parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has fewer columns".into()));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

fn measured(row: &Row, study: &str, section: &str) -> Option<Measured> {
    let mut cell = BTreeMap::new();
    let (mut metric, mut unit) = (None, None);
    let (mut run, mut seed, mut value, mut finished) = (None, None, None, None);
    for (name, field) in row.get_column_iter() {
        match (name.as_str(), field) {
            ("metric", Field::Str(text)) => metric = Some(text.clone()),
            ("unit", Field::Str(text)) => unit = Some(text.clone()),
            ("run", Field::Int(number)) => run = Some(number.cast_unsigned()),
            ("seed", Field::Long(number)) => seed = Some(number.cast_unsigned()),
            ("value", Field::Double(number)) => value = Some(*number),
            ("finished", Field::Bool(truth)) => finished = Some(*truth),
            (_, Field::Str(text)) if text.is_empty() => {}
            (axis, Field::Str(text)) => drop(cell.insert(axis.to_owned(), text.clone())),
            _ => return None,
        }
    }
    Some(Measured {
        study: study.into(),
        section: section.into(),
        cell: Cell(cell),
        metric: metric?,
        unit: unit?,
        run: run?,
        seed: seed?,
        value: value?,
        finished: finished?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cell: Cell, run: u32, value: f64) -> Measured {
        Measured {
            study: "spdy".into(),
            section: "figure-3".into(),
            cell,
            metric: "plt".into(),
            unit: "s".into(),
            run,
            seed: u64::MAX - 1,
            value,
            finished: run != 1,
        }
    }

    #[test]
    fn what_is_written_reads_back_in_one_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let (a, b) =
            (Cell::of([("link", "mss"), ("page", "1x100k")]), Cell::of([("link", "da2gc")]));
        let rows = [row(a.clone(), 1, 2.5), row(b.clone(), 0, 1.0), row(a.clone(), 0, 0.1)];
        write_table(&path, &rows).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = read_table(&path, "spdy", "figure-3").unwrap();
        assert_eq!(read, [row(b, 0, 1.0), row(a.clone(), 0, 0.1), row(a, 1, 2.5)]);
        write_table(&path, &[rows[2].clone(), rows[0].clone(), rows[1].clone()]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn no_rows_are_a_table_too_and_rubbish_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write_table(&path, &[]).unwrap();
        assert_eq!(read_table(&path, "spdy", "figure-3").unwrap(), []);
        std::fs::write(&path, b"PAR1 and then nothing of the kind PAR1").unwrap();
        let error = read_table(&path, "spdy", "figure-3").unwrap_err().to_string();
        assert!(error.contains("t.parquet"), "{error}");
    }
}
