//! Scanners that find the objects of a page while the page streams by.
//!
//! [`HtmlScanner`], [`CssScanner`] and [`ModuleScanner`] take bytes as they arrive, and report
//! objects at once. They are not browsers: scripts do not run, and media queries and selectors are
//! not evaluated. A missed object costs a round trip. The waste of unneeded ones is bounded by
//! [`crate::budget`]. Neither changes a byte of the page.

mod cookie;
mod css;
mod html;
mod module;
mod srcset;
mod tag;

pub use css::CssScanner;
pub use html::HtmlScanner;
pub use module::{MAX_MODULE_BYTES, ModuleScanner};

use crate::address::MAX_URL_BYTES;
use crate::referrer::ReferrerPolicy;

/// Maximum number of bytes of a document that are scanned. An object must be found early to help,
/// and an endless document must not occupy a scanner.
pub const MAX_SCANNED_BYTES: usize = 4 << 20;

/// Longest tag or comment that is buffered, bytes: a tag may contain a picture. After a longer one
/// the rest of the page is not scanned. Each open page may need this much memory.
pub const MAX_TOKEN_BYTES: usize = 1 << 20;

/// Use of an object, in the order in which browsers need them. Objects that block rendering come
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A style sheet.
    Style,
    /// A font that a style sheet or a preload names.
    Font,
    /// A script.
    Script,
    /// An ES module, which may import others.
    Module,
    /// An image of the page or of a style sheet, or a video's poster.
    Image,
    /// The icon of the site.
    Icon,
}

/// Urgency of an object (RFC 9218 section 4.1): 0 for the page itself to 7 for the least urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

/// A reference to an object that the document will request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// URL as written, with entities and escapes resolved. Relative to the document's base.
    pub url: String,
    /// Use of the object.
    pub kind: Kind,
    /// Urgency of the object.
    pub urgency: Urgency,
    /// Referrer policy of the element, or of a `<meta>` before it.
    pub referrer: Option<ReferrerPolicy>,
}

/// Report of a scanner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Base URL for all references after it. Relative to the document's URL.
    Base(String),
    /// An object.
    Object(ObjectRef),
    /// A script in the page sets a cookie, which later requests will carry.
    Cookie,
}

impl Urgency {
    /// Urgency of the page itself.
    pub const PAGE: Self = Self(0);
    /// Lowest urgency.
    pub const LEAST: Self = Self(7);

    /// Creates an urgency. Returns `None` unless `level` is one of RFC 9218's eight levels.
    pub fn new(level: u8) -> Option<Self> {
        (level <= Self::LEAST.0).then_some(Self(level))
    }

    /// Level from 0 to 7.
    pub fn level(self) -> u8 {
        self.0
    }

    fn raised(self) -> Self {
        // Never before the page itself.
        Self(self.0.saturating_sub(1).max(1))
    }

    fn lowered(self) -> Self {
        Self((self.0 + 1).min(Self::LEAST.0))
    }
}

impl Kind {
    /// Default urgency of an object of this kind. Scripts in the head block rendering, so they get
    /// 2 instead of 3.
    pub fn urgency(self) -> Urgency {
        Urgency(match self {
            Self::Style => 1,
            Self::Script | Self::Module => 3,
            Self::Font => 4,
            Self::Image => 5,
            Self::Icon => 7,
        })
    }
}

impl ObjectRef {
    fn new(url: impl Into<String>, kind: Kind) -> Self {
        Self { url: url.into(), kind, urgency: kind.urgency(), referrer: None }
    }
}

/// Returns `true` for a reference worth following. Excludes empty ones, fragments of the document
/// itself, `data:` URLs, and those longer than a URL may be.
fn is_reference(text: &str) -> bool {
    let scheme = |name: &str| text.get(..name.len()).is_some_and(|s| s.eq_ignore_ascii_case(name));
    !text.is_empty()
        && text.len() <= MAX_URL_BYTES
        && !text.starts_with('#')
        && !["data:", "blob:", "about:", "javascript:"].into_iter().any(scheme)
}

#[cfg(test)]
mod tests;
