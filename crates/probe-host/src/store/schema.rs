//! Tables and pragmas, and records as rows.

use bentpipe_probe::clock::Moment;
use bentpipe_probe::record::{Measurement, Record};
use rusqlite::{Connection, Row, Statement, params};

/// Version of the tables, `user_version` of the file.
pub const VERSION: i64 = 1;

/// Mark of the format, `application_id` of the file: "bppr".
pub const APPLICATION_ID: i64 = 0x6270_7072;

/// Size of a page.
const PAGE_BYTES: u64 = 4096;

/// Tables. The test keys are JSON, as in the export; the rest of a record has columns for queries.
const TABLES: &str = "
    CREATE TABLE session (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        began_wall_us INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE record (
        session INTEGER NOT NULL REFERENCES session,
        number INTEGER NOT NULL,
        boot_us INTEGER NOT NULL,
        wall_us INTEGER NOT NULL,
        clock_age_s INTEGER NOT NULL,
        runtime_us INTEGER NOT NULL,
        quiet INTEGER NOT NULL,
        activity TEXT,
        concurrent TEXT NOT NULL,
        test_name TEXT NOT NULL,
        test_keys TEXT NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID;
";

/// Makes the tables of an empty file, and sets the pragmas of a writer. At most `limit_bytes` are used.
pub fn prepare(connection: &Connection, limit_bytes: u64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_BYTES.cast_signed())?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A file that is already larger keeps its size.
    let pages = i64::try_from((limit_bytes / PAGE_BYTES).max(16)).unwrap_or(i64::MAX);
    connection.pragma_update(None, "max_page_count", pages)?;
    if version(connection)? == 0 {
        let make = format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
        );
        connection.execute_batch(&make)?;
    }
    Ok(())
}

/// The version of the file; 0 if it is empty.
pub fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Returns `true` if the file has the mark of a store, or nothing yet.
pub fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let mark: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(mark == APPLICATION_ID || (mark == 0 && tables == 0))
}

/// The statement that [`insert`] runs.
pub const INSERT: &str = "INSERT INTO record VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)";

/// Inserts a record.
pub fn insert(
    statement: &mut Statement<'_>,
    session: i64,
    record: &Record,
) -> rusqlite::Result<()> {
    let mut test = serde_json::to_value(&record.measurement).unwrap_or_default();
    let keys = test["test_keys"].take().to_string();
    statement.execute(params![
        session,
        record.number.cast_signed(),
        record.began.boot_us.cast_signed(),
        record.began.wall_us,
        record.clock_age_s,
        record.runtime_us.cast_signed(),
        record.quiet,
        record.activity,
        record.concurrent.join(" "),
        record.measurement.name(),
        keys,
    ])?;
    Ok(())
}

/// Columns of [`record`], in its order.
pub const COLUMNS: &str = "number, boot_us, wall_us, clock_age_s, runtime_us, quiet, activity, concurrent, test_name, \
     test_keys";

/// A row as a record, or the fault of its JSON.
pub fn record(row: &Row<'_>) -> rusqlite::Result<Result<Record, serde_json::Error>> {
    let (name, keys): (String, String) = (row.get(8)?, row.get(9)?);
    let measurement = serde_json::from_str::<serde_json::Value>(&keys).and_then(|keys| {
        let value = serde_json::json!({ "test_name": name, "test_keys": keys });
        serde_json::from_value::<Measurement>(value)
    });
    let measurement = match measurement {
        Ok(measurement) => measurement,
        Err(error) => return Ok(Err(error)),
    };
    let concurrent: String = row.get(7)?;
    Ok(Ok(Record {
        number: row.get::<_, i64>(0)?.cast_unsigned(),
        began: Moment { boot_us: row.get::<_, i64>(1)?.cast_unsigned(), wall_us: row.get(2)? },
        clock_age_s: row.get(3)?,
        runtime_us: row.get::<_, i64>(4)?.cast_unsigned(),
        quiet: row.get(5)?,
        activity: row.get(6)?,
        concurrent: concurrent.split_whitespace().map(str::to_owned).collect(),
        measurement,
    }))
}
