//! The reader: sessions and their records, also while a probe writes.

use std::path::Path;

use bentpipe_probe::record::{Record, Session};
use rusqlite::{Connection, OpenFlags};

use super::check::checked_version;
use super::error::StoreError;
use super::schema::{COLUMNS, record};

/// Wall clock at the last test of the public ndt7 service in a store, if there is one, in microseconds since 1970.
pub fn last_public_test(path: &Path) -> Option<i64> {
    let query =
        "SELECT max(wall_us) FROM record WHERE test_name = 'ndt7' AND test_keys ->> 'public'";
    open(path).ok()?.query_row(query, [], |row| row.get(0)).ok()?
}

/// An item of a store.
#[derive(Debug)]
pub enum Item {
    /// A session; its records follow.
    Session(Session),
    /// A record of the session before.
    Record(Record),
}

/// Reads a store in order, and hands each item to `take`. An error of `take` ends the reading.
pub fn read<E>(
    path: &Path,
    mut take: impl FnMut(Item) -> Result<(), E>,
) -> Result<Result<(), E>, StoreError> {
    let sqlite = |source| StoreError::Sqlite { path: path.to_owned(), source };
    let connection = open(path).map_err(sqlite)?;
    let found = checked_version(&connection, path)?;
    if found == 0 {
        return Ok(Ok(()));
    }
    // One transaction, so that a running probe does not add to some sessions meanwhile.
    let transaction = connection.unchecked_transaction().map_err(sqlite)?;
    for (number, session) in sessions(&transaction, path)? {
        if let Err(error) = take(Item::Session(session)) {
            return Ok(Err(error));
        }
        let query = format!("SELECT {COLUMNS} FROM record WHERE session = ?1 ORDER BY number");
        let mut statement = transaction.prepare(&query).map_err(sqlite)?;
        let mut rows = statement.query([number]).map_err(sqlite)?;
        while let Some(row) = rows.next().map_err(sqlite)? {
            let read = record(row).map_err(sqlite)?.map_err(|source| StoreError::Row {
                path: path.to_owned(),
                session: number,
                number: row.get(0).unwrap_or_default(),
                source,
            })?;
            if let Err(error) = take(Item::Record(read)) {
                return Ok(Err(error));
            }
        }
    }
    Ok(Ok(()))
}

/// Sessions of a store with their row numbers.
pub fn sessions(connection: &Connection, path: &Path) -> Result<Vec<(i64, Session)>, StoreError> {
    let sqlite = |source| StoreError::Sqlite { path: path.to_owned(), source };
    let mut statement =
        connection.prepare("SELECT number, json FROM session ORDER BY number").map_err(sqlite)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sqlite)?;
    let mut sessions = Vec::new();
    for row in rows {
        let (number, json): (i64, String) = row.map_err(sqlite)?;
        let session = serde_json::from_str(&json).map_err(|source| StoreError::Row {
            path: path.to_owned(),
            session: number,
            number: 0,
            source,
        })?;
        sessions.push((number, session));
    }
    Ok(sessions)
}

/// Opens a store for reading. In a folder that cannot be written, SQLite cannot share a log, so the file is
/// then read as it stands.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let shared = Connection::open_with_flags(path, flags)?;
    let readable = shared.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    match readable {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen) => {
            let text = path.to_string_lossy();
            let escaped = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            let uri = format!("file:{escaped}?immutable=1");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
        }
        _ => Ok(shared),
    }
}
