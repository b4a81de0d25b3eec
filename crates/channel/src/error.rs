//! Errors in the description of a link.

/// Reason why the description of a link was refused, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {why}")]
pub struct SpecError {
    field: String,
    why: String,
}

impl SpecError {
    pub(crate) fn new(field: &str, why: String) -> Self {
        Self { field: field.into(), why }
    }

    pub(crate) fn within(self, table: &str) -> Self {
        Self { field: format!("{table}.{}", self.field), ..self }
    }
}
