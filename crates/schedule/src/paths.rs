//! Paths of a class, on a link with several.

/// Paths that carry a class. The link reads this; the scheduler has no paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClassPaths {
    /// Division among the paths.
    pub spread: Spread,
    /// Use of paths whose bytes cost money.
    pub metered: Metered,
}

/// Division of a class among the paths of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Each packet goes on the path on which it arrives first.
    Fastest,
    /// Streams use all paths together, if that ends them earlier. Datagrams go as with
    /// [`Self::Fastest`].
    #[default]
    All,
    /// A copy of each packet goes on each path, so that the loss of one costs nothing.
    Each,
}

/// Use of a metered path by a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Metered {
    /// Nothing of the class goes there, even if no other path works.
    Never,
    /// The class uses it only while no other path works.
    #[default]
    Standby,
    /// Short exchanges and datagrams use it like any other path, long transfers as with
    /// [`Self::Standby`].
    Urgent,
    /// The class uses it like any other path.
    Always,
}
