//! Figures of an attack, and their bounds.

use super::Choice;
use super::attack::Attack;
use super::evidence::Evidence;
use super::files::BOUND_BYTES;
use super::shares::unfairness;
use super::victim::Seen;
use crate::experiment::report::{Goal, row};
use crate::experiment::table::{align, seconds, table, written};
use crate::result::{Row, Samples};

/// Maximum ratio of the victim's median page time during the attack to that before it.
const MAX_SLOWDOWN: f64 = 1.25;
/// Minimum ratio of the attempts made to those that were due.
const MIN_STRENGTH: f64 = 0.9;
/// Maximum deviation of a passenger from an equal share of the link, as a fraction of that share.
const MAX_UNFAIRNESS: f64 = 0.05;

/// Results of an attack.
pub struct Found {
    /// Kind of attack.
    pub attack: Attack,
    /// The victim's results before the attack, and during it.
    pub seen: [Seen; 2],
    /// Attempts, and those that the attacker saw refused.
    pub counts: [u64; 2],
    /// Fraction of the demanded attempts that the attacker made.
    pub strength: f64,
    /// Maximum memory of the air, and of the ground.
    pub peak_bytes: [u64; 2],
    /// Refusals that the gateways counted and logged.
    pub evidence: Evidence,
    /// Bytes of each passenger while all of them downloaded. Empty if not measured.
    pub shares: Vec<u64>,
}

impl Found {
    /// Ratio of the victim's median page time during the attack to that before it.
    fn slowdown(&self) -> Option<f64> {
        let [calm, attacked] = [0, 1].map(|which| self.seen[which].pages.median());
        Some(attacked? / calm?)
    }

    /// Results as rows.
    pub fn rows(&self, choice: &Choice) -> Vec<Row> {
        let new = |part: &str, metric: &str| {
            let workload = format!("{}{part}", self.attack);
            let row = row("attacks", &choice.profile, workload, metric, choice.seed);
            Row { engine: "emu".into(), ..row }
        };
        let one = |value: f64, row: Row| [value].into_iter().collect::<Samples>().fill(row);
        let mut rows = Vec::new();
        for (part, seen) in [", before", ""].into_iter().zip(&self.seen) {
            rows.push(seen.pages.fill(new(part, "plt")));
            let failures = Row { unit: "count".into(), ..new(part, "failures") };
            rows.push(one(seen.failures.len() as f64, failures));
        }
        for which in 0..2 {
            let part = [", air", ", ground"][which];
            let limit = Some(BOUND_BYTES[which] as f64);
            let memory = Row { unit: "bytes".into(), limit, ..new(part, "memory") };
            rows.push(one(self.peak_bytes[which] as f64, memory));
        }
        let counted = Row { unit: "count".into(), ..new("", "counted") };
        rows.push(one(self.evidence.counted as f64, counted));
        rows.push(one(self.strength, new("", "strength")));
        rows.extend(unfairness(&self.shares).map(|off| one(off, new("", "unfairness"))));
        rows
    }

    /// The bounds, and whether they are met.
    pub fn goals(&self) -> Vec<Goal> {
        let of = |what: &str| format!("{}: {what}", self.attack);
        let failures = self.seen.iter().map(|seen| seen.failures.len()).sum::<usize>();
        let memory = |which: usize| self.peak_bytes[which] as f64 / BOUND_BYTES[which] as f64;
        let mut goals = vec![
            Goal::ratio_at_most(of("page ÷ undisturbed"), self.slowdown(), MAX_SLOWDOWN),
            Goal::ratio_at_most(of("failures"), Some(failures as f64), 0.0),
            Goal::ratio_at_most(of("air's memory ÷ bound"), Some(memory(0)), 1.0),
            Goal::ratio_at_most(of("ground's memory ÷ bound"), Some(memory(1)), 1.0),
            Goal::ratio_at_least(of("attempts ÷ demanded"), Some(self.strength), MIN_STRENGTH),
            Goal::ratio_at_least(of("refused, counted"), Some(self.evidence.counted as f64), 1.0),
        ];
        if !self.attack.trace().limits.is_empty() {
            let lines = if self.evidence.logged.is_some() { 1.0 } else { 0.0 };
            goals.push(Goal::ratio_at_least(of("who holds most, logged"), Some(lines), 1.0));
        }
        if self.attack == Attack::Shares {
            let off = unfairness(&self.shares);
            goals.push(Goal::ratio_at_most(of("share off by"), off, MAX_UNFAIRNESS));
        }
        goals
    }
}

/// Table of the results for display.
pub fn text(choice: &Choice, all: &[Found]) -> String {
    let header = ["attack", "attempts", "counted", "before", "in it", "failed", "air", "ground"];
    let mut table = table(&header);
    for found in all {
        let [calm, attacked] = &found.seen;
        let tried = attacked.pages.len() as u64 + attacked.probes;
        let megabytes = |which: usize| format!("{} MB", found.peak_bytes[which] / 1_000_000);
        table.add_row([
            found.attack.to_string(),
            found.counts[0].to_string(),
            found.evidence.counted.to_string(),
            written(calm.pages.percentile(0.5), seconds),
            written(attacked.pages.percentile(0.5), seconds),
            format!("{}/{tried}", attacked.failures.len()),
            megabytes(0),
            megabytes(1),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4, 5, 6, 7]);
    let mut text = format!(
        "{}\nA passenger's page of 36 objects (medians of {}) and small exchanges beside it,\n\
         before each attack and in it, {} × as strong as stated; what the gateways\n\
         counted as refused; the most memory of either gateway.\n\n{}\n",
        choice.profile.about,
        choice.pages,
        choice.factor,
        table.trim_fmt()
    );
    for found in all {
        let (attack, refused) = (found.attack, found.counts[1]);
        if refused > 0 {
            text.push_str(&format!("{attack}: the attacker saw {refused} refused\n"));
        }
        if let Some(line) = &found.evidence.logged {
            text.push_str(&format!("{attack}: {}\n", line.trim()));
        }
        if !found.shares.is_empty() {
            let megabytes = found.shares.iter().map(|bytes| format!("{:.1}", *bytes as f64 / 1e6));
            let megabytes = megabytes.collect::<Vec<_>>().join(", ");
            text.push_str(&format!(
                "{attack}: MB of each device, the attacker's first: {megabytes}\n"
            ));
        }
        for (when, seen) in ["before it", "in it"].into_iter().zip(&found.seen) {
            if let Some(first) = seen.failures.first() {
                let count = seen.failures.len();
                text.push_str(&format!("{attack}: {count} failed {when}; the first: {first}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::attacks::DEFAULT_PROFILE;
    use crate::profile::Profile;

    fn found(before: f64, attacked: &[f64], failures: usize, air: u64) -> Found {
        let seen = |pages: &[f64], failures| Seen {
            pages: pages.iter().copied().collect(),
            probes: 8,
            failures: vec!["datagram: no answer".into(); failures],
        };
        Found {
            attack: Attack::OpenRate,
            seen: [seen(&[before; 3], 0), seen(attacked, failures)],
            counts: [9000, 12],
            strength: 1.0,
            peak_bytes: [air, 1 << 20],
            evidence: Evidence { counted: 12, logged: Some("who holds most".into()) },
            shares: Vec::new(),
        }
    }

    #[test]
    fn the_victims_page_its_failures_and_memory_decide() {
        let missed = |found: Found| {
            let goals = found.goals();
            let missed = goals.iter().filter(|goal| !goal.holds()).map(|goal| goal.to_string());
            missed.collect::<Vec<_>>()
        };
        assert_eq!(missed(found(2.0, &[2.0, 2.5, 9.0], 0, BOUND_BYTES[0])), [""; 0]);
        assert_eq!(missed(found(2.0, &[2.51; 3], 0, 1)), ["open-rate: page ÷ undisturbed"]);
        assert_eq!(missed(found(2.0, &[2.0; 3], 1, 1)), ["open-rate: failures"]);
        let much = BOUND_BYTES[0] + 1;
        assert_eq!(missed(found(2.0, &[2.0; 3], 0, much)), ["open-rate: air's memory ÷ bound"]);
        let nothing = Found { evidence: Evidence::default(), ..found(2.0, &[2.0; 3], 0, 1) };
        let unproved = ["open-rate: refused, counted", "open-rate: who holds most, logged"];
        assert_eq!(missed(nothing), unproved, "an attack that nobody noticed");
        let strong = |strength| Found { strength, ..found(2.0, &[2.0; 3], 0, 1) };
        assert_eq!(missed(strong(0.8)), ["open-rate: attempts ÷ demanded"]);
        assert_eq!(missed(strong(0.9)), [""; 0]);
        let unfair = Found {
            attack: Attack::Shares,
            shares: vec![106, 100, 100, 94],
            ..found(2.0, &[2.0; 3], 0, 1)
        };
        assert_eq!(missed(unfair), ["shares: share off by"]);
        // If no page finished during the attack, that must not count as harmless.
        assert_eq!(missed(found(2.0, &[], 0, 1)), ["open-rate: page ÷ undisturbed"]);
    }

    #[test]
    fn the_table_fits_a_terminal_and_says_what_failed_first() {
        let profile = Profile::named(DEFAULT_PROFILE).unwrap();
        let attacks = Attack::ALL.to_vec();
        let choice = Choice { profile, attacks, pages: 3, factor: 10, seed: 1 };
        let text = text(&choice, &[found(2.0, &[2.5; 3], 2, 31 << 20)]);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}\n{text}");
        assert!(
            text.contains("open-rate: 2 failed in it; the first: datagram: no answer"),
            "{text}"
        );
    }
}
