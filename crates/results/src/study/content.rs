//! Contents of a page.

/// A page that is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its name.
    pub id: String,
    /// Its content.
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
        /// Size of each.
        bytes: u64,
    },
    /// A site as the averages of its visits describe it.
    Site {
        /// Opened by the paper's browser.
        connections: u32,
        /// Size of all objects together, in units of 1000 bytes.
        kilobytes: f64,
        /// For objects.
        requests: f64,
        /// They are on.
        domains: f64,
    },
    /// A mix of readers, as the grid's settings describe it.
    Mix,
}
