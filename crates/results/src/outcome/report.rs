//! Report of an experiment: a text, rows, and its goals.

use super::goal::Goal;
use super::row::Row;
use super::table::{align, table};

/// Results of an experiment.
#[derive(Debug, Default)]
pub struct Report {
    /// Text for display, in 80 columns.
    pub text: String,
    /// Machine-readable rows.
    pub rows: Vec<Row>,
    /// Goals.
    pub goals: Vec<Goal>,
}

impl Report {
    /// Appends the report of another experiment.
    pub fn append(&mut self, other: Self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&other.text);
        self.rows.extend(other.rows);
        self.goals.extend(other.goals);
    }

    /// Sets the engine in every row.
    pub fn found_by(mut self, engine: &str) -> Self {
        self.rows.iter_mut().for_each(|row| row.engine = engine.into());
        self
    }

    /// Number of missed goals.
    pub fn missed(&self) -> usize {
        self.goals.iter().filter(|goal| !goal.holds()).count()
    }

    /// Text of the goals for display. Empty if there are none.
    pub fn goals_text(&self) -> String {
        if self.goals.is_empty() {
            return String::new();
        }
        let is_listed = |goal: &&Goal| !goal.is_in_text || !goal.holds();
        let listed: Vec<&Goal> = self.goals.iter().filter(is_listed).collect();
        let has_notes = listed.iter().any(|goal| !goal.note.is_empty());
        let notes = if has_notes { &["", ""][..] } else { &[""] };
        let mut table = table(&[&["target", "found", "bound"], notes].concat());
        for goal in listed {
            let found = goal.found.map_or("unbounded".into(), |found| goal.write(found));
            let verdict = if goal.holds() { "" } else { "missed" };
            let mut line = vec![goal.name.clone(), found, goal.bound_text()];
            line.extend(has_notes.then(|| goal.note.clone()));
            line.push(verdict.into());
            table.add_row(line);
        }
        align(&mut table, &[1, 2]);
        let held = format!("{} of {}", self.goals.len() - self.missed(), self.goals.len());
        match table.row_count() {
            0 => format!("{held} targets hold.\n"),
            _ => format!("{}\n{held} targets hold.\n", table.trim_fmt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_holds_up_to_itself_and_the_unknown_is_a_miss() {
        let mut report = Report::default();
        assert_eq!(report.goals_text(), "");
        report.goals = vec![
            Goal::ratio_at_most("a share", Some(0.5), 0.5),
            Goal::time_at_most("a wait", None, 0.0127),
            Goal::ratio_at_least("an index", Some(0.97), 0.98),
        ];
        assert_eq!(report.missed(), 2);
        let text = report.goals_text();
        for part in ["unbounded", "≤ 12.7 ms", "0.970", "≥ 0.980", "1 of 3 targets hold"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        report.goals.iter_mut().for_each(|goal| goal.is_in_text = true);
        report.goals[2].note = "limit 2 s".into();
        let text = report.goals_text();
        assert!(!text.contains("a share") && text.contains("an index"), "{text}");
        assert!(text.contains("limit 2 s"), "{text}");
    }
}
