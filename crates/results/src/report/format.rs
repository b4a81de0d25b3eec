//! Human-readable numbers and names.

use crate::measured::unit_of;
use crate::statistics::{Interval, MIN_FOR_P95, Statistic};
use crate::study::StatedValue;

/// Summary of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub centre: Interval,
    /// 95th percentile. With fewer than [`MIN_FOR_P95`] values, the largest value.
    pub p95: f64,
    pub n: usize,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none. The seed of the bootstrap is fixed, so that
    /// equal values give an equal page.
    pub fn of(values: &[f64], statistic: Statistic) -> Option<Self> {
        let centre = statistic.with_interval(values, 1)?;
        Some(Self { centre, p95: Statistic::P95.of(values)?, n: values.len() })
    }

    /// Text below the value: `1 to 2 s · p95 3 s · n 20`, or `1 to 2 s · max 3 s · n 10`.
    pub fn beside(&self, unit: &str) -> String {
        if self.n == 1 {
            return "one run".into();
        }
        let (low, high) = (show(self.centre.low, unit), show(self.centre.high, unit));
        let interval = if low == high { low } else { range(&low, &high) };
        // A line may break only at the dots.
        let most = format!("{} {}", p95(self.n), show(self.p95, unit));
        let parts = [interval, most, format!("n {}", self.n)];
        parts.map(|part| part.replace(' ', "\u{a0}")).join(" · ")
    }
}

/// Mean and sample standard deviation, such as `mean 2.5 s ± 500 ms`; `None` for fewer than two
/// values.
pub(super) fn mean_and_deviation(values: &[f64], unit: &str) -> Option<String> {
    let mean = Statistic::Mean.of(values).filter(|_| values.len() > 1)?;
    if mean.is_infinite() {
        return Some(format!("mean {}", show(mean, unit)));
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (values.len() - 1) as f64).sqrt();
    Some(format!("mean {} ± {}", show(mean, unit), show(deviation, unit)))
}

/// Label of the 95th percentile of `n` values.
pub(super) fn p95(n: usize) -> &'static str {
    if n < MIN_FOR_P95 { "max" } else { "p95" }
}

/// Note on the number of impossible values that were left out; empty if there are none.
pub(super) fn aside(count: usize) -> String {
    if count == 0 { String::new() } else { format!("{count} set aside") }
}

/// A range such as `1 to 2 s`, with the unit once if both ends share it.
fn range(low: &str, high: &str) -> String {
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, one)), Some((_, two))) if one == two => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Default number of digits of a value.
pub(super) const DIGITS: usize = 3;

/// Maximum digits of a value. More digits would only show binary rounding.
const MAX_DIGITS: usize = 12;

/// A value with its unit and three digits: `12.3 s`, `1.89 Mbit/s`, `93 %`, `2.5 ×`. The unit of a
/// quotient is `×`.
pub(super) fn show(value: f64, unit: &str) -> String {
    show_to(value, unit, DIGITS)
}

/// Number of digits needed to show that `value` differs from all `bounds` that it does not equal.
pub(super) fn digits_apart(value: f64, bounds: &[f64], unit: &str) -> usize {
    let differ = |count: &usize| {
        let shown = show_to(value, unit, *count);
        bounds.iter().all(|bound| value == *bound || show_to(*bound, unit, *count) != shown)
    };
    (DIGITS..=MAX_DIGITS).find(differ).unwrap_or(DIGITS)
}

/// Like [`show`], with this number of digits.
pub(super) fn show_to(value: f64, unit: &str, count: usize) -> String {
    let digits = |value| digits_to(value, count);
    if value.is_infinite() {
        return if unit == "s" { "never" } else { "∞" }.into();
    }
    if value.is_nan() {
        return "undecided".into();
    }
    match unit {
        "s" if value != 0.0 && value.abs() < 0.9995 => format!("{} ms", digits(value * 1e3)),
        "ratio" => format!("{} %", digits(value * 1e2)),
        "percentage points" => format!("{} {unit}", digits(value * 1e2)),
        "count" => digits(value),
        "bit/s" if value.abs() >= 999_500.0 => format!("{} Mbit/s", digits(value / 1e6)),
        "bit/s" if value.abs() >= 999.5 => format!("{} kbit/s", digits(value / 1e3)),
        unit => format!("{} {unit}", digits(value)),
    }
}

/// Rounds to `count` significant digits, keeps every digit before the point, and drops zeros at the
/// end.
pub(super) fn digits_to(value: f64, count: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let before = value.abs().log10().floor() as i32;
    let after = (count as i32 - 1 - before).clamp(0, 3 + count as i32) as usize;
    let text = format!("{value:.after$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Value that a paper states.
pub(super) fn stated(value: StatedValue, unit: &str) -> String {
    match value {
        StatedValue::Number(value) => show(value, unit),
        StatedValue::Range(Some(low), Some(high)) => range(&show(low, unit), &show(high, unit)),
        StatedValue::Range(Some(low), None) => format!("at least {}", show(low, unit)),
        StatedValue::Range(None, Some(high)) => format!("at most {}", show(high, unit)),
        StatedValue::Range(None, None) | StatedValue::Lost => "lost".into(),
    }
}

/// Unit of a metric, or of its quotient.
pub(super) fn unit(metric: &str, quotient: bool) -> &str {
    if quotient { "×" } else { unit_of(metric).unwrap_or_default() }
}

/// Name of a metric in words.
pub(super) fn name(metric: &str) -> &str {
    match metric {
        "plt" => "page load time",
        "lcp" => "largest contentful paint",
        "repeat-plt" => "page load time, repeat view",
        "repeat-lcp" => "largest contentful paint, repeat view",
        "response-time" => "response time",
        "jain" => "Jain's index",
        "connections-dropped" => "connections dropped unused",
        "packets-small" => "packets below 80 bytes",
        "packets-large" => "packets of 1280 to 1500 bytes",
        "rate-fill" => "rate over ceiling",
        "failed" => "failed runs",
        "epb" => "EPB ratio",
        "epb-received" => "EPB ratio from the first byte's arrival",
        "epb-fair" => "EPB ratio of the fair share",
        "below-window" => "runs below the window's share",
        "extra-traffic" => "extra traffic",
        "extra-budget" => "extra traffic allowed",
        "link-rate" => "rate of the link",
        "link-rtt" => "round trip of the link",
        "link-loss" => "loss of the link",
        "block" => "blocked",
        "share" => "share",
        other => other,
    }
}

/// Wraps `text` into lines of at most `width`.
pub(super) fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word = clipped(word, width);
        let last = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if last == 0 => line.push_str(&word),
            Some(line) if last + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Cuts `text` off if it is longer than `width`.
pub(super) fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        let shown = [
            (12.345, "s", "12.3 s"),
            (0.3808, "s", "381 ms"),
            (0.9999, "s", "1 s"),
            (0.0, "s", "0 s"),
            (f64::INFINITY, "s", "never"),
            (1_890_000.0, "bit/s", "1.89 Mbit/s"),
            (468_000.0, "bit/s", "468 kbit/s"),
            (0.9312, "ratio", "93.1 %"),
            (0.000_001, "ratio", "0.0001 %"),
            (2.5, "×", "2.5 ×"),
            (1234.0, "count", "1234"),
            (-0.02, "ratio", "-2 %"),
            (0.36, "percentage points", "36 percentage points"),
            (6.0, "round trips", "6 round trips"),
        ];
        for (value, unit, text) in shown {
            assert_eq!(show(value, unit), text);
        }
        let range = StatedValue::Range(Some(1.0), Some(10.0));
        assert_eq!(stated(range, "s"), "1 s to 10 s".replacen(" s", "", 1));
        assert_eq!(stated(StatedValue::Range(None, Some(0.1)), "ratio"), "at most 10 %");
    }

    #[test]
    fn a_value_has_the_digits_that_tell_it_from_its_bounds() {
        let shown = |value: f64, bounds: &[f64], unit: &str| {
            let count = digits_apart(value, bounds, unit);
            let bounds = bounds.iter().map(|bound| show_to(*bound, unit, count));
            (show_to(value, unit, count), bounds.collect::<Vec<_>>().join(", "))
        };
        for (value, bounds, unit, found, asked) in [
            (0.672, &[1.0][..], "×", "0.672 ×", "1 ×"),
            (0.99951, &[1.0], "×", "0.9995 ×", "1 ×"),
            (1.0496, &[1.05], "×", "1.0496 ×", "1.05 ×"),
            (0.99999, &[1.0], "s", "0.99999 s", "1 s"),
            (0.900_04, &[0.9, 1.1], "×", "0.90004 ×", "0.9 ×, 1.1 ×"),
            (0.895, &[0.9], "ratio", "89.5 %", "90 %"),
            (0.0, &[0.0, 0.0], "count", "0", "0, 0"),
            (1.05, &[1.05], "×", "1.05 ×", "1.05 ×"),
            (1_049_600.0, &[1_050_000.0], "bit/s", "1.0496 Mbit/s", "1.05 Mbit/s"),
            (799_800.0, &[800_000.0], "bit/s", "799.8 kbit/s", "800 kbit/s"),
            (f64::INFINITY, &[5.0], "s", "never", "5 s"),
        ] {
            assert_eq!(shown(value, bounds, unit), (found.into(), asked.into()));
        }
    }

    #[test]
    fn a_mean_has_its_standard_deviation() {
        let of = |values: &[f64]| mean_and_deviation(values, "s");
        assert_eq!(of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap(), "mean 5 s ± 2.14 s");
        assert_eq!(of(&[0.5, f64::INFINITY]).unwrap(), "mean never");
        assert_eq!(of(&[1.0]), None);
    }

    #[test]
    fn a_summary_says_how_sure_it_is() {
        let summary = |values: &[f64]| Summary::of(values, Statistic::Median).unwrap();
        assert_eq!(summary(&[1.0]).beside("s"), "one run");
        let beside = |values: &[f64]| summary(values).beside("s").replace('\u{a0}', " ");
        assert_eq!(beside(&[2.0, 2.0]), "2 s · max 2 s · n 2");
        assert!(beside(&[3.0; 19]).contains("max 3 s") && beside(&[3.0; 20]).contains("p95 3 s"));
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        let beside = beside(&many);
        assert!(beside.ends_with("s · p95 95 s · n 100") && beside.contains(" to "), "{beside}");
    }
}
