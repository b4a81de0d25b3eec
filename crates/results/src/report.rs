//! Report that compares a run with the papers: one self-contained HTML page, and a text version.

mod address;
mod claims;
mod figure;
mod format;
mod index;
mod links;
mod markdown;
mod page;
mod section;
mod text;
mod values;
mod worked;

#[cfg(test)]
mod tests;

pub use address::Files;
pub use markdown::markdown;
pub use page::html;
pub use text::text;
pub use worked::Report;
use worked::{Worked, set_aside};
