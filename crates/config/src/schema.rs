//! JSON Schema of the two files.

use super::Which;

#[cfg(test)]
pub mod generated;

impl Which {
    /// JSON Schema (draft 7) of the file: every key with its meaning, type and default.
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Air => include_str!("schema/air.schema.json"),
            Self::Ground => include_str!("schema/ground.schema.json"),
        }
    }
}
