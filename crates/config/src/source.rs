//! A configuration file being parsed.

use std::path::Path;

/// A file being parsed, with the text that its errors quote.
pub struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
}
