//! Contents of a page.

/// A page to load.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Name of the page.
    pub id: String,
    /// Content of the page.
    pub content: Content,
    /// The real page that it represents.
    pub about: Option<String>,
}

/// Content of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Objects of one size.
    Objects {
        /// Number of objects.
        count: u32,
        /// Size of each object.
        bytes: u64,
    },
    /// A site, described by the averages of its visits.
    Site {
        /// Number of connections that the paper's browser opened.
        connections: u32,
        /// Total size of all objects, in units of 1000 bytes.
        kilobytes: f64,
        /// Number of requests for objects.
        requests: f64,
        /// Number of domains of the objects.
        domains: f64,
    },
    /// A mix of readers, described by the grid's settings.
    Mix,
}
