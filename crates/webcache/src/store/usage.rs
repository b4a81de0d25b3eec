//! Use of the store.

/// Current use of memory and disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in memory, including those of transfers.
    pub memory_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

/// Numbers of stored and evicted objects since the cache was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored objects.
    pub stored: u64,
    /// Bytes of their bodies.
    pub stored_bytes: u64,
    /// Evicted objects.
    pub evicted: u64,
    /// Bytes of their bodies.
    pub evicted_bytes: u64,
}
