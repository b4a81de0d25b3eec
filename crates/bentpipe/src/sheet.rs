//! Rows of a label and a text, as wide as a terminal.

use std::fmt;

/// Columns of the narrowest usual terminal.
const COLUMNS: usize = 80;

/// Column at which texts begin.
const TEXT_AT: usize = 16;

/// A title and rows below it: `  label         text`. A text that is too long continues below its
/// first line.
pub struct Sheet(String);

impl Sheet {
    pub fn new(title: &str) -> Self {
        Self(format!("{title}\n"))
    }

    /// Adds a row. A word longer than a line is not broken, so that it can be copied.
    pub fn row(&mut self, label: &str, text: impl fmt::Display) {
        let mut line = format!("  {label:<width$} ", width = TEXT_AT - 3);
        let mut is_empty = true;
        for word in text.to_string().split_whitespace() {
            let width = line.chars().count() + usize::from(!is_empty) + word.chars().count();
            if !is_empty && width > COLUMNS {
                self.0 += line.trim_end();
                self.0.push('\n');
                line = " ".repeat(TEXT_AT);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        self.0 += line.trim_end();
        self.0.push('\n');
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_without_room_move_below_the_text() {
        let mut sheet = Sheet::new("title");
        let (long, path) = ("word ".repeat(20), format!("/{}", "p".repeat(90)));
        sheet.row("label", long);
        sheet.row("path", format!("in {path}"));
        sheet.row("a longer label than fits", "text");
        let text = sheet.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("  label         {}", ["word"; 13].join(" ")));
        assert_eq!(lines[2], format!("                {}", ["word"; 7].join(" ")));
        assert_eq!(lines[3..5], ["  path          in", &format!("                {path}")]);
        assert_eq!(lines[5], "  a longer label than fits text");
    }
}
