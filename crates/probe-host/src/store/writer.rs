//! The writer: commits, and goes on when the disk does not.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use bentpipe_probe::record::{Record, Session};
use rusqlite::{Connection, OpenFlags};

use super::check::checked_version;
use super::error::StoreError;
use super::schema::{INSERT, insert, prepare};

/// Maximum number of records kept in memory while the disk refuses them: 30 minutes of pings to 6 targets.
/// 6,000 × 500 bytes = 3 MB.
const MAX_PENDING: usize = 6000;

/// Writer of one session.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    limit_bytes: u64,
    session: Session,
    open: Option<Open>,
    pending: VecDeque<Record>,
    /// Records that did not fit into the memory while the disk refused them.
    lost: u64,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    session: i64,
    /// Held as long as this process writes.
    _lock: File,
}

/// Result of a flush.
#[derive(Debug)]
pub struct Flushed {
    /// Number of the last record that is safe on the disk, if any was written now.
    pub committed: Option<u64>,
    /// Trouble that keeps records in memory.
    pub trouble: Option<StoreError>,
}

impl Writer {
    /// A writer for a session. The file is opened at the first flush.
    pub fn new(path: PathBuf, limit_bytes: u64, session: Session) -> Self {
        Self { path, limit_bytes, session, open: None, pending: VecDeque::new(), lost: 0 }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a record for the next flush.
    pub fn push(&mut self, record: Record) {
        if self.pending.len() == MAX_PENDING {
            // What was measured first matters most: it is before the trouble.
            self.lost += 1;
            return;
        }
        self.pending.push_back(record);
    }

    /// Takes the number of records that were lost, once there is room to say so.
    pub fn take_lost(&mut self) -> u64 {
        match self.pending.is_empty() {
            true => std::mem::take(&mut self.lost),
            false => 0,
        }
    }

    /// Records that wait for the disk or were given up.
    pub fn unstored(&self) -> u64 {
        self.pending.len() as u64 + self.lost
    }

    /// Records that wait for the disk.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Commits everything taken. Records stay in memory if that fails, and the next flush tries again.
    pub fn flush(&mut self) -> Flushed {
        match self.try_flush() {
            Ok(committed) => Flushed { committed, trouble: None },
            Err(trouble) => {
                // After an error of the disk a fresh connection sees the true state of the file.
                self.open = None;
                Flushed { committed: None, trouble: Some(trouble) }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn limit_for_test(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.open = None;
    }

    fn try_flush(&mut self) -> Result<Option<u64>, StoreError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => open(&self.path, self.limit_bytes, &self.session)?,
        };
        let open = self.open.insert(open);
        if self.pending.is_empty() {
            return Ok(None);
        }
        let mut commit = || {
            let transaction = open.connection.transaction()?;
            {
                let mut statement = transaction.prepare_cached(INSERT)?;
                for record in &self.pending {
                    insert(&mut statement, open.session, record)?;
                }
            }
            transaction.commit()
        };
        commit().map_err(|source| StoreError::Sqlite { path: self.path.clone(), source })?;
        let last = self.pending.back().map(|record| record.number);
        self.pending.clear();
        Ok(last)
    }
}

fn open(path: &Path, limit_bytes: u64, session: &Session) -> Result<Open, StoreError> {
    let sqlite = |source| StoreError::Sqlite { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .map_err(|source| StoreError::Folder { path: path.to_owned(), source })?;
    }
    let lock = lock(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(real(path), flags).map_err(sqlite)?;
    checked_version(&connection, path)?;
    prepare(&connection, limit_bytes).map_err(sqlite)?;
    let session = begin(&connection, session).map_err(sqlite)?;
    Ok(Open { connection, session, _lock: lock })
}

/// Inserts the session, unless a flush before an error of the disk did.
fn begin(connection: &Connection, session: &Session) -> rusqlite::Result<i64> {
    let json = serde_json::to_string(session).unwrap_or_default();
    connection.execute(
        "INSERT OR IGNORE INTO session (id, began_wall_us, json) VALUES (?1, ?2, ?3)",
        rusqlite::params![session.id, session.began.wall_us, json],
    )?;
    connection
        .query_row("SELECT number FROM session WHERE id = ?1", [&session.id], |row| row.get(0))
}

/// Takes the lock of the only writer, on a file of its own: SQLite locks the store itself.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let fault = |source| StoreError::Lock { path: path.to_owned(), source };
    let file = File::options().create(true).append(true).open(name).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(fault(source)),
    }
}

/// The path with symbolic links of its folder resolved: SQLite then refuses those of the file only.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).unwrap_or_default();
    path.file_name().map_or_else(|| path.to_owned(), |name| folder.join(name))
}
