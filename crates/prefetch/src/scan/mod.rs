//! Scanner for the objects of a page, while the page streams by.
//!
//! [`HtmlScanner`], [`CssScanner`] and [`ModuleScanner`] take bytes as they come and report what they find at once.
//! They are no browser: scripts do not run, media queries and selectors are not evaluated. What they
//! miss costs a round trip and what they find in vain is bounded by [`crate::account`]; neither changes
//! a byte of what the passenger gets.

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

/// The most bytes of one document that are looked at: what is found must be found early to help, and
/// a document without end must not keep a scanner for ever.
pub const MAX_SCANNED_BYTES: usize = 4 << 20;

/// The longest tag or comment that is waited for, in bytes: a picture may be written inside one. Where
/// one is longer, the rest of the page is not looked at. So much may be kept for each page under way.
pub const MAX_TOKEN_BYTES: usize = 1 << 20;

/// Purpose of an object. The order is that of use: objects that block rendering are first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A style sheet.
    Style,
    /// A font that a style sheet names or the page preloads.
    Font,
    /// A script.
    Script,
    /// An ES module, which may import others.
    Module,
    /// A picture: of the page, of a style sheet, or a poster.
    Image,
    /// The site's icon.
    Icon,
}

/// Urgency of an object: 0 is the page itself and 7 the least, as in RFC 9218 section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urgency(u8);

/// An object that a document will ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// As it is written, entities and escapes resolved; relative to the document's base.
    pub url: String,
    /// Purpose.
    pub kind: Kind,
    /// Urgency.
    pub urgency: Urgency,
    /// Referrer policy, if an element or a `<meta>` before it gives one.
    pub referrer: Option<ReferrerPolicy>,
}

/// Report of a scanner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// From here on references are relative to this URL, itself relative to the document's own.
    Base(String),
    /// An object.
    Object(Found),
    /// A script in the page sets a cookie, which the requests that follow will bear.
    Cookie,
}

impl Urgency {
    /// The page itself.
    pub const PAGE: Self = Self(0);
    /// The least urgent.
    pub const LEAST: Self = Self(7);

    /// One of RFC 9218's eight levels; `None` for anything else.
    pub fn new(level: u8) -> Option<Self> {
        (level <= Self::LEAST.0).then_some(Self(level))
    }

    /// The level, 0 to 7.
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
    /// Default urgency of an object of this kind: style sheets 1, scripts 3 (2 in the head, where
    /// they block), fonts 4, images 5, icons 7.
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

impl Found {
    fn new(url: impl Into<String>, kind: Kind) -> Self {
        Self { url: url.into(), kind, urgency: kind.urgency(), referrer: None }
    }
}

/// Returns `true` if a reference is worth keeping: not empty, no fragment of the document itself,
/// nothing that carries its own bytes, and no longer than a URL may be.
fn is_reference(text: &str) -> bool {
    let scheme = |name: &str| text.get(..name.len()).is_some_and(|s| s.eq_ignore_ascii_case(name));
    !text.is_empty()
        && text.len() <= MAX_URL_BYTES
        && !text.starts_with('#')
        && !["data:", "blob:", "about:", "javascript:"].into_iter().any(scheme)
}

#[cfg(test)]
mod tests;
