//! The mark and the version of a file, checked before it is used.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use super::error::StoreError;
use super::schema::{VERSION, is_ours, version};

/// Checks that the file at `path` is a store that this version reads. Returns its version; 0 if it is
/// empty.
pub fn checked_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let sqlite = |source| StoreError::Sqlite { path: path.to_owned(), source };
    match is_ours(connection) {
        Ok(true) => {}
        Ok(false) => return Err(StoreError::Foreign { path: path.to_owned() }),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            return Err(StoreError::Foreign { path: path.to_owned() });
        }
        Err(error) => return Err(sqlite(error)),
    }
    let found = version(connection).map_err(sqlite)?;
    if found > VERSION {
        return Err(StoreError::Later { path: path.to_owned(), found });
    }
    Ok(found)
}
