//! Jumps of the one-way delay: a path that became longer at once.

use std::time::Duration;

use super::arrivals::Arrivals;

/// Number of recent arrivals that are compared.
const ARRIVALS: usize = 24;
/// Number of arrivals after a jump that must be as late.
const AFTER: usize = 4;
/// Part of the whole rise that is one jump.
const AT_ONCE: f64 = 0.75;

/// Returns `true` if the delay of the last arrivals rose by more than `least`, nearly all of it
/// between two of them.
pub fn is_jump(arrivals: &Arrivals, least: Duration) -> bool {
    let samples = arrivals.recent(ARRIVALS);
    if samples.len() < 2 * AFTER {
        return false;
    }
    let delay =
        |index: usize| samples[index].arrived.as_secs_f64() - samples[index].sent.as_secs_f64();
    let last = samples.len() - 1;
    let rise = delay(last) - delay(0);
    if rise <= least.as_secs_f64() {
        return false;
    }
    let jump = |index: usize| delay(index) - delay(index - 1);
    let Some(at) = (1..=last).max_by(|a, b| jump(*a).total_cmp(&jump(*b))) else { return false };
    jump(at) >= AT_ONCE * rise && last + 1 - at >= AFTER
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::ArrivalSample;
    use super::*;

    fn arrivals(delay_ms: impl Fn(u64) -> u64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        let sample = |number: u64| {
            let sent = Duration::from_millis(5 * number);
            let arrived = sent + Duration::from_millis(delay_ms(number));
            ArrivalSample { sent, arrived, total_bytes: 1500 * (number + 1) }
        };
        arrivals.add(&(0..24).map(sample).collect::<Vec<_>>());
        arrivals
    }

    #[test]
    fn a_step_is_a_jump_and_a_slope_is_a_queue() {
        let least = Duration::from_millis(15);
        assert!(is_jump(&arrivals(|number| if number < 12 { 300 } else { 340 }), least));
        assert!(!is_jump(&arrivals(|number| 300 + 5 * number), least), "a rate that halved");
        assert!(
            !is_jump(&arrivals(|number| if number < 22 { 300 } else { 340 }), least),
            "too new"
        );
        assert!(!is_jump(&arrivals(|number| 340 - number), least));
    }
}
