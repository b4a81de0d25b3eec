//! What is loaded.

/// What is loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its name.
    pub id: String,
    /// What it is made of.
    pub content: Content,
    /// What it stands for.
    pub about: Option<String>,
}

/// What a page is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Objects of one size.
    Objects {
        /// How many.
        count: u32,
        /// Of each.
        bytes: u64,
    },
    /// A site as the averages of its visits describe it.
    Site {
        /// Opened by the paper's browser.
        connections: u32,
        /// Of all objects together, in units of 1000 bytes.
        kilobytes: f64,
        /// For objects.
        requests: f64,
        /// They are on.
        domains: f64,
    },
    /// What the grid's settings say: a mix of readers.
    Mix,
}
