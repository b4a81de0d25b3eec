//! A recording as a link profile: delay and loss as series, for the emulator and the simulator.
//!
//! Pings tell the round trip, so both directions get half of the delay and the same loss. They tell no rate:
//! the profile has none, and says so.

use std::fmt::Write;

use crate::loss::{WINDOW_S, Windows};
use crate::ping::{Outcome, Ping};

/// Maximum number of steps of a series in a profile: 23 days of pings.
const MAX_STEPS: usize = 1_000_000;

/// Windows on each side that tell how much of a window's loss is chance: 11 windows are 18 minutes.
const NEIGHBOURS: usize = 5;

/// Largest loss of a direction. A series of a link that never delivers is refused.
const MAX_LOSS: f64 = 0.999;

/// Pings of one target in one session.
#[derive(Debug, Default)]
pub struct Recording {
    delays: Vec<(u64, u64)>,
    windows: Windows,
}

impl Recording {
    /// Adds a ping that left `since_start_us` after the start of the session. Add them by time of sending.
    pub fn add(&mut self, since_start_us: u64, ping: &Ping) {
        if ping.scout || matches!(ping.outcome, Outcome::Failed { .. }) {
            return;
        }
        self.windows.count(since_start_us, &ping.outcome);
        if let Some(rtt_us) = ping.outcome.rtt_us()
            && self.delays.len() < MAX_STEPS
        {
            self.delays.push((since_start_us, rtt_us / 2));
        }
    }

    /// Writes the profile. Returns `None` if no ping was answered. `about` is one line.
    pub fn toml(&self, name: &str, about: &str) -> Option<String> {
        if self.delays.is_empty() {
            return None;
        }
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        delays.dedup_by_key(|(at_us, _)| *at_us);
        delays[0].0 = 0;
        let delay =
            steps(delays.iter().map(|(at, us)| (*at, format!("{} ms", *us as f64 / 1000.0))));
        let losses = self.losses();
        let loss = steps(
            losses.iter().map(|(at_s, loss)| (at_s * 1_000_000, format!("{:.3} %", 100.0 * loss))),
        );
        let (name, about) = (quoted(name), quoted(about));
        let mut text = String::from(
            "# A recording of bentpipe probe. Each direction has half of the delay of each ping, and the loss of\n\
             # windows of 100 s, split evenly and without the part that is chance. Pings tell no rate: add\n\
             # `rate` and `queue` if you know them.\n\n",
        );
        _ = write!(text, "name = {name}\nabout = {about}\n");
        for direction in ["forward", "return"] {
            _ = write!(
                text,
                "\n[link.{direction}]\ndelay = {{ series = {{ steps = [{delay}] }} }}\n"
            );
            _ = writeln!(text, "loss = {{ series = {{ steps = [{loss}] }} }}");
        }
        Some(text)
    }

    /// Loss of one direction by the start of each window in seconds.
    fn losses(&self) -> Vec<(u64, f64)> {
        let windows: Vec<(u64, f64, f64)> = self
            .windows
            .iter()
            .map(|(number, window)| (number, f64::from(window.sent), f64::from(window.lost)))
            .collect();
        let start = windows.first().map_or(0, |(number, ..)| *number);
        let loss = |i: usize| {
            let near =
                &windows[i.saturating_sub(NEIGHBOURS)..(i + NEIGHBOURS + 1).min(windows.len())];
            let both = without_chance(near, windows[i].2 / windows[i].1);
            let one = 1.0 - (1.0 - both).max(0.0).sqrt();
            ((windows[i].0 - start) * WINDOW_S, one.clamp(0.0, MAX_LOSS))
        };
        (0..windows.len()).map(loss).collect()
    }
}

/// Moves a window's loss towards the mean of its neighbourhood, as far as the scatter there is that of
/// chance.
///
/// The link of the profile loses packets by chance again. If it did so around each window's own loss, chance
/// would be in the replay twice.
fn without_chance(near: &[(u64, f64, f64)], own: f64) -> f64 {
    let sent: f64 = near.iter().map(|(_, sent, _)| sent).sum();
    let lost: f64 = near.iter().map(|(.., lost)| lost).sum();
    let (n, mean) = (near.len() as f64, lost / sent);
    let total = near.iter().map(|(_, sent, lost)| (lost / sent - mean).powi(2)).sum::<f64>() / n;
    let chance = near.iter().map(|(_, sent, _)| mean * (1.0 - mean) / sent).sum::<f64>() / n;
    if total <= chance { mean } else { mean + (1.0 - chance / total).sqrt() * (own - mean) }
}

fn steps(steps: impl Iterator<Item = (u64, String)>) -> String {
    let mut text = String::new();
    for (index, (at_us, value)) in steps.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        _ = write!(text, "{comma}[\"{} ms\", \"{value}\"]", at_us as f64 / 1000.0);
    }
    text
}

/// A TOML string of one line.
fn quoted(text: &str) -> String {
    let plain: String =
        text.chars().filter(|c| !c.is_control() && !['"', '\\'].contains(c)).collect();
    format!("\"{plain}\"")
}

#[cfg(test)]
mod tests;
