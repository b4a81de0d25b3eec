//! Byte layouts: parsing of what came, writing of what goes. Nothing here keeps state.

pub mod codec;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod header;
pub mod lease;
pub mod report;

#[cfg(test)]
mod tests;
