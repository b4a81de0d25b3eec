//! Sites on disk.

/// The most resources of a site: more than twice the requests of the 90th percentile of the HTTP
/// Archive.
pub const MAX_RESOURCES: usize = 1024;
