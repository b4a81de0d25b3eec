//! Parser for every unit table: a decimal number, an optional space, a unit.

use crate::ParseQuantityError;

/// Kind of quantity: its units with their factors to the base unit, and units written by mistake.
pub(crate) struct Table {
    pub what: &'static str,
    pub example: &'static str,
    pub units: &'static [(&'static str, f64)],
    pub mistakes: &'static [(&'static str, &'static str)],
}

impl Table {
    /// Parses `text` to a value in base units.
    pub fn parse(&self, text: &str) -> Result<f64, ParseQuantityError> {
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = (trimmed[..split].replace('_', ""), trimmed[split..].trim());
        let number: f64 = number
            .parse()
            .map_err(|_| self.error(text, "it does not begin with a number".into()))?;
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let first = unit.split_whitespace().next().unwrap_or_default();
            let why =
                if unit.contains(char::is_numeric) && self.units.iter().any(|it| it.0 == first) {
                    "it has more than one number: convert it to one unit".into()
                } else {
                    self.unit_error(unit)
                };
            return Err(self.error(text, why));
        };
        Ok(number * factor)
    }

    fn unit_error(&self, unit: &str) -> String {
        if unit.is_empty() {
            return "it has no unit".into();
        }
        if let Some((_, why)) = self.mistakes.iter().find(|(name, _)| *name == unit) {
            return format!("{unit:?} {why}");
        }
        let known: Vec<_> = self.units.iter().map(|(name, _)| *name).collect();
        format!("the unit {unit:?} is none of {}", known.join(", "))
    }

    pub fn error(&self, text: &str, why: String) -> ParseQuantityError {
        ParseQuantityError { written: text.to_owned(), what: self.what, why, example: self.example }
    }

    /// Formats `value` in the largest unit in which it is at least one, with at most three
    /// decimals.
    pub fn format(&self, value: f64, preferred: &[&str]) -> String {
        let units = self.units.iter().filter(|(name, _)| preferred.contains(name));
        let (name, factor) = units
            .clone()
            .filter(|(_, factor)| value >= *factor)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .or_else(|| units.min_by(|a, b| a.1.total_cmp(&b.1)))
            .expect("`preferred` names at least one unit of the table");
        let text = format!("{:.3}", value / factor);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{text} {name}")
    }
}
