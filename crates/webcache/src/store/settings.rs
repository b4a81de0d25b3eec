//! Settings of the store.

use std::path::PathBuf;

/// Budgets and directory of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Memory for headers, recently used bodies and transfers, bytes.
    pub memory_bytes: u64,
    /// Directory for this cache alone. Without one, everything is in memory.
    pub directory: Option<PathBuf>,
    /// Maximum size of the directory, bytes. Files count in blocks of 4 KiB, as in file systems.
    pub disk_bytes: u64,
    /// Maximum size of a stored object, bytes.
    pub object_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            directory: None,
            disk_bytes: 1 << 30,
            object_bytes: 16 << 20,
        }
    }
}
