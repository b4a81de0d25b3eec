//! Records without a receipt, and receipts.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use bentpipe_probe::clock::Moment;
use bentpipe_probe::ndt7::Ndt7;
use bentpipe_probe::rate::RateCheck;
use bentpipe_probe::record::{Record, Session};
use bentpipe_probe::upload::{Batch, MAX_PACKED_TEXT, Receipt, Shared, Source};
use rusqlite::{Connection, OpenFlags, params};

use super::check::checked_version;
use super::error::StoreError;
use super::reader;
use super::schema::{COLUMNS, record};

/// Maximum number of records that are read for a batch.
const MAX_RECORDS: i64 = 1000;

/// Age after which a measured rate says nothing about the link.
const MAX_RATE_AGE_US: i64 = 2 * 3600 * 1_000_000;

/// Tables of uploads. Versions without uploads ignore them, so the version of the file stays.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS receipt (
        receiver TEXT NOT NULL,
        session INTEGER NOT NULL REFERENCES session,
        last INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (receiver, session)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS consent (
        receiver TEXT NOT NULL,
        kind TEXT NOT NULL,
        PRIMARY KEY (receiver, kind)
    ) STRICT, WITHOUT ROWID;
";

/// Records that a receiver has not acknowledged. Later records of a running probe are not part of them.
#[derive(Debug)]
pub struct Unsent {
    connection: Connection,
    path: PathBuf,
    receiver: String,
    sessions: VecDeque<Part>,
    _lock: Option<File>,
}

/// Records of one session.
#[derive(Debug)]
struct Part {
    row: i64,
    session: Session,
    /// The last record with a receipt, and the last one of all.
    acknowledged: i64,
    last: i64,
}

impl Unsent {
    /// Opens a store to show its records.
    pub fn show(path: &Path, receiver: &str) -> Result<Self, StoreError> {
        let connection = reader::open(path).map_err(|source| sqlite(path, source))?;
        Self::of(connection, path, receiver, None)
    }

    /// Opens a store to send its records. A probe may add records meanwhile.
    pub fn open(path: &Path, receiver: &str) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|source| sqlite(path, source))?;
        checked_version(&connection, path)?;
        let lock = lock(path)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .and_then(|()| connection.execute_batch(TABLES))
            .map_err(|source| sqlite(path, source))?;
        Self::of(connection, path, receiver, Some(lock))
    }

    fn of(
        connection: Connection,
        path: &Path,
        receiver: &str,
        lock: Option<File>,
    ) -> Result<Self, StoreError> {
        let mut sessions = VecDeque::new();
        if checked_version(&connection, path)? > 0 {
            let fault = |source| sqlite(path, source);
            let has_receipts = has_tables(&connection).map_err(fault)?;
            for (row, session) in reader::sessions(&connection, path)? {
                let query = "SELECT coalesce(max(number), 0) FROM record WHERE session = ?1";
                let last = connection.query_row(query, [row], |row| row.get(0)).map_err(fault)?;
                let query = "SELECT coalesce(max(last), 0) FROM receipt WHERE receiver = ?1 AND session = ?2";
                let acknowledged = match has_receipts {
                    true => connection
                        .query_row(query, params![receiver, row], |row| row.get(0))
                        .map_err(fault)?,
                    false => 0,
                };
                sessions.push_back(Part { row, session, acknowledged, last });
            }
        }
        let (path, receiver) = (path.to_owned(), receiver.to_owned());
        Ok(Self { connection, path, receiver, sessions, _lock: lock })
    }

    /// Summary of the records.
    pub fn shared(&self) -> Result<Shared, StoreError> {
        let mut shared = Shared::default();
        for part in self.sessions.iter().filter(|part| part.acknowledged < part.last) {
            shared.begin();
            self.records(part, -1, |record, _| {
                shared.add(&part.session, &record);
                true
            })?;
        }
        Ok(shared)
    }

    /// Kinds of records that the user agreed to share with the receiver.
    pub fn consented(&self) -> Result<BTreeSet<String>, StoreError> {
        let query = || -> rusqlite::Result<BTreeSet<String>> {
            let mut statement =
                self.connection.prepare("SELECT kind FROM consent WHERE receiver = ?1")?;
            statement.query_map([&self.receiver], |row| row.get(0))?.collect()
        };
        query().map_err(|source| sqlite(&self.path, source))
    }

    /// Notes the kinds that the user agreed to share with the receiver.
    pub fn consent(&mut self, kinds: &BTreeSet<&str>) -> Result<(), StoreError> {
        let mut write = || {
            let transaction = self.connection.transaction()?;
            for kind in kinds {
                let statement = "INSERT OR IGNORE INTO consent VALUES (?1, ?2)";
                transaction.execute(statement, params![self.receiver, kind])?;
            }
            transaction.commit()
        };
        write().map_err(|source| sqlite(&self.path, source))
    }

    /// Rate of the direction up in bits per second, if the newest session measured it in the last two hours.
    pub fn measured_bps(&self, now: Moment) -> Option<u64> {
        let row = self.sessions.back()?.row;
        let newest = |kind: &str| -> Option<String> {
            let query = "SELECT test_keys FROM record WHERE session = ?1 AND test_name = ?2 AND wall_us > ?3 AND \
                         test_keys ->> 'direction' = 'up' ORDER BY number DESC LIMIT 1";
            let after = now.wall_us.saturating_sub(MAX_RATE_AGE_US);
            self.connection.query_row(query, params![row, kind, after], |row| row.get(0)).ok()
        };
        let trains = newest("rate").and_then(|keys| serde_json::from_str::<RateCheck>(&keys).ok());
        let test = newest("ndt7").and_then(|keys| serde_json::from_str::<Ndt7>(&keys).ok());
        let trains = trains.and_then(|check| check.limit?.rate_bps());
        trains.or_else(|| test?.goodput_bps())
    }

    /// Hands the records of a part to `take` with the length of their test keys, until it returns `false`.
    fn records(
        &self,
        part: &Part,
        limit: i64,
        mut take: impl FnMut(Record, usize) -> bool,
    ) -> Result<(), StoreError> {
        let fault = |source| sqlite(&self.path, source);
        let query = format!(
            "SELECT {COLUMNS} FROM record WHERE session = ?1 AND number > ?2 AND number <= ?3 ORDER BY number LIMIT ?4"
        );
        let mut statement = self.connection.prepare(&query).map_err(fault)?;
        let range = params![part.row, part.acknowledged, part.last, limit];
        let mut rows = statement.query(range).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let length =
                row.get_ref("test_keys").ok().and_then(|keys| Some(keys.as_str().ok()?.len()));
            let read = record(row).map_err(fault)?.map_err(|source| StoreError::Row {
                path: self.path.clone(),
                session: part.row,
                number: row.get(0).unwrap_or_default(),
                source,
            })?;
            if !take(read, length.unwrap_or_default()) {
                break;
            }
        }
        Ok(())
    }
}

impl Source for Unsent {
    type Error = StoreError;

    fn next(&mut self) -> Result<Option<Batch>, StoreError> {
        let Some(part) = self.sessions.iter().find(|part| part.acknowledged < part.last) else {
            return Ok(None);
        };
        let (mut records, mut length) = (Vec::new(), 0);
        self.records(part, MAX_RECORDS, |record, keys| {
            records.push(record);
            length += keys;
            length < MAX_PACKED_TEXT
        })?;
        // Nothing would look like the end of the session.
        let unpacked =
            || StoreError::Unpacked { path: self.path.clone(), session: part.session.id.clone() };
        Batch::pack(&part.session, &records).ok_or_else(unpacked).map(Some)
    }

    fn acknowledge(&mut self, receipt: &Receipt) -> Result<(), StoreError> {
        let name = &receipt.name;
        let stranger =
            || StoreError::Receipt { path: self.path.clone(), session: name.session.clone() };
        let part = self.sessions.iter_mut().find(|part| part.session.id == name.session);
        let part = part.ok_or_else(stranger)?;
        let last = i64::try_from(name.last).unwrap_or(i64::MAX);
        if last <= part.acknowledged {
            return Ok(());
        }
        let query = "SELECT count(*), coalesce(max(number), 0) FROM record WHERE session = ?1 AND number <= ?2";
        let row = part.row;
        let mut write = || {
            let transaction = self.connection.transaction()?;
            let (records, newest): (i64, i64) =
                transaction.query_row(query, [row, last], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if newest != last || receipt.total > records.cast_unsigned() {
                return Ok(false);
            }
            let json = serde_json::to_string(receipt).unwrap_or_default();
            let statement = "INSERT OR REPLACE INTO receipt VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(statement, params![self.receiver, row, last, json])?;
            transaction.commit().map(|()| true)
        };
        match write().map_err(|source| sqlite(&self.path, source))? {
            true => part.acknowledged = last,
            false => return Err(stranger()),
        }
        Ok(())
    }
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT count(*) FROM sqlite_schema WHERE name = 'receipt'";
    connection.query_row(query, [], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".upload.lock");
    let fault = |source| StoreError::Lock { path: path.to_owned(), source };
    let file = File::options().create(true).append(true).open(name).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Uploading { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(fault(source)),
    }
}

fn sqlite(path: &Path, source: rusqlite::Error) -> StoreError {
    StoreError::Sqlite { path: path.to_owned(), source }
}
