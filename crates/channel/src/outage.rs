//! Outages: times during which the link carries nothing.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::Span;
use rand_chacha::ChaCha8Rng;

use crate::draws::{Purpose, exponential, stream};
use crate::error::SpecError;
use crate::series::{MAX_STEPS, nanos};

/// Minimum mean gap between random outages. A queue of ten minutes then looks ahead at no more than
/// about 60,000 of them (1 MB).
const MIN_MEAN_GAP: Duration = Duration::from_millis(10);

/// Outages of a direction, and their effect on packets.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(try_from = "RawOutages")]
pub(crate) struct OutageSpec {
    packets: OutagePolicy,
    /// In order, without contact between neighbours.
    scheduled: Vec<Interval>,
    repeat_ns: Option<u64>,
    random: Option<RandomOutages>,
}

/// Effect of an outage on packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OutagePolicy {
    /// The sender goes on. A packet is lost if any part of its transmission falls into the outage.
    Lost,
    /// The sender pauses. Packets wait in the queue, which fills.
    Held,
}

/// Outages with exponential gaps and exponential lengths.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RandomOutages {
    mean_gap: Span,
    mean_length: Span,
}

/// Interval from `start_ns` to `end_ns`, which is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub start_ns: u64,
    pub end_ns: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawOutages {
    packets: OutagePolicy,
    /// (start, length)
    #[serde(default)]
    scheduled: Vec<(Span, Span)>,
    repeat: Option<Span>,
    random: Option<RandomOutages>,
}

impl TryFrom<RawOutages> for OutageSpec {
    type Error = SpecError;

    fn try_from(raw: RawOutages) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("outages", why));
        let interval = |(from, lasting): &(Span, Span)| {
            let start_ns = nanos(from.duration());
            Interval { start_ns, end_ns: start_ns.saturating_add(nanos(lasting.duration())) }
        };
        let scheduled: Vec<Interval> = raw.scheduled.iter().map(interval).collect();
        if scheduled.len() > MAX_STEPS {
            return error(format!("are {} in number: at most {MAX_STEPS}", scheduled.len()));
        }
        if scheduled.is_empty() && raw.random.is_none() {
            return error("have neither `scheduled` nor `random` times".into());
        }
        if scheduled.iter().any(|outage| outage.start_ns == outage.end_ns) {
            return error("include one that lasts no time".into());
        }
        if scheduled.windows(2).any(|pair| pair[0].end_ns >= pair[1].start_ns) {
            return error("overlap or are not in order of time: join or sort them".into());
        }
        if let Some(random) = raw.random
            && (random.mean_gap.duration() < MIN_MEAN_GAP
                || random.mean_length.duration().is_zero())
        {
            return error(format!(
                "come with a mean gap of {} and a mean length of {}: the gap must be at least {}, \
                 the length more than nothing",
                random.mean_gap,
                random.mean_length,
                Span::new(MIN_MEAN_GAP)
            ));
        }
        let repeat_ns = raw.repeat.map(|repeat| nanos(repeat.duration()));
        if let Some(repeat_ns) = repeat_ns {
            let Some((first, last)) = scheduled.first().zip(scheduled.last()) else {
                return error("repeat, but none is scheduled: remove `repeat`".into());
            };
            let always = scheduled.len() == 1 && first.end_ns - first.start_ns == repeat_ns;
            if last.end_ns > repeat_ns || always {
                return error("must end before they repeat, and leave some time between".into());
            }
        }
        Ok(Self { packets: raw.packets, scheduled, repeat_ns, random: raw.random })
    }
}

impl OutageSpec {
    pub fn packets(&self) -> OutagePolicy {
        self.packets
    }
}

/// Sequence of the outages of one direction, as separate intervals. It is generated only as far
/// ahead as callers look.
#[derive(Debug, Clone)]
pub(crate) struct Outages {
    spec: OutageSpec,
    rng: ChaCha8Rng,
    /// Number of scheduled outages consumed, over all repetitions.
    scheduled_used: u64,
    next_random: Option<Interval>,
    upcoming: VecDeque<Interval>,
}

impl Outages {
    pub fn new(spec: &OutageSpec, seed: u64) -> Self {
        let rng = stream(seed, Purpose::Outages);
        let (spec, upcoming) = (spec.clone(), VecDeque::new());
        let mut outages = Self { spec, rng, scheduled_used: 0, next_random: None, upcoming };
        outages.next_random = outages.draw_after(0);
        outages
    }

    /// Outage at `index`, counted from the first that was not popped.
    pub fn get(&mut self, index: usize) -> Option<Interval> {
        while self.upcoming.len() <= index {
            let next = self.merged()?;
            self.upcoming.push_back(next);
        }
        self.upcoming.get(index).copied()
    }

    /// Removes and returns the first outage if it has ended by `now_ns`.
    pub fn pop_ended(&mut self, now_ns: u64) -> Option<Interval> {
        let first = self.get(0)?;
        if first.end_ns > now_ns {
            return None;
        }
        self.upcoming.pop_front()
    }

    /// Returns `true` if any time from `start_ns` to `finish_ns` lies in an outage. Starts must not
    /// go backwards, because earlier outages are forgotten.
    pub fn overlaps(&mut self, start_ns: u64, finish_ns: u64) -> bool {
        while self.pop_ended(start_ns).is_some() {}
        self.get(0).is_some_and(|outage| outage.start_ns <= start_ns || outage.start_ns < finish_ns)
    }

    /// Next outage, merged with all that overlap or touch it.
    fn merged(&mut self) -> Option<Interval> {
        let mut outage = self.next_before(u64::MAX)?;
        while let Some(more) = self.next_before(outage.end_ns) {
            outage.end_ns = outage.end_ns.max(more.end_ns);
        }
        Some(outage)
    }

    /// Earliest outage not yet consumed, if it begins by `until_ns`.
    fn next_before(&mut self, until_ns: u64) -> Option<Interval> {
        let scheduled = self.next_scheduled().filter(|next| next.start_ns <= until_ns);
        let random = self.next_random.filter(|next| next.start_ns <= until_ns);
        let scheduled_first = match (scheduled, random) {
            (Some(scheduled), Some(random)) => scheduled.start_ns <= random.start_ns,
            (scheduled, _) => scheduled.is_some(),
        };
        if scheduled_first {
            self.scheduled_used += 1;
            return scheduled;
        }
        let random = random?;
        self.next_random = self.draw_after(random.end_ns);
        Some(random)
    }

    fn next_scheduled(&self) -> Option<Interval> {
        let each = self.spec.scheduled.len() as u64;
        if each == 0 {
            return None;
        }
        let (round, index) = (self.scheduled_used / each, self.scheduled_used % each);
        let offset_ns = match self.spec.repeat_ns {
            Some(repeat_ns) => round.checked_mul(repeat_ns)?,
            None if round > 0 => return None,
            None => 0,
        };
        let outage = self.spec.scheduled[index as usize];
        Some(Interval {
            start_ns: outage.start_ns.checked_add(offset_ns)?,
            end_ns: outage.end_ns.saturating_add(offset_ns),
        })
    }

    fn draw_after(&mut self, from_ns: u64) -> Option<Interval> {
        let random = self.spec.random?;
        let mut draw =
            |mean: Span| (nanos(mean.duration()) as f64 * exponential(&mut self.rng)) as u64;
        let (gap, length) = (draw(random.mean_gap), draw(random.mean_length).max(1));
        let start_ns = from_ns.checked_add(gap)?;
        Some(Interval { start_ns, end_ns: start_ns.saturating_add(length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn outages(text: &str, seed: u64) -> Outages {
        Outages::new(&toml::from_str(text).unwrap(), seed)
    }

    fn seconds(outages: &mut Outages, n: usize) -> Vec<(u64, u64)> {
        (0..n).map_while(|i| outages.get(i)).map(|o| (o.start_ns / S, o.end_ns / S)).collect()
    }

    #[test]
    fn scheduled_outages_follow_their_schedule() {
        let text = "packets = 'lost'\nscheduled = [['10 s', '3 s'], ['50 s', '10 s']]";
        assert_eq!(seconds(&mut outages(text, 1), 9), [(10, 13), (50, 60)]);
        let text = format!("{text}\nrepeat = '60 s'");
        let mut repeated = outages(&text, 1);
        assert_eq!(seconds(&mut repeated, 4), [(10, 13), (50, 60), (70, 73), (110, 120)]);
        assert!(!repeated.overlaps(0, 10 * S) && repeated.overlaps(0, 10 * S + 1));
        assert!(repeated.overlaps(13 * S - 1, 20 * S) && !repeated.overlaps(13 * S, 20 * S));
        assert!(repeated.overlaps(71 * S, 71 * S));
    }

    #[test]
    fn touching_outages_are_merged() {
        let text =
            "packets = 'lost'\nscheduled = [['0 s', '3 s'], ['50 s', '10 s']]\nrepeat = '60 s'";
        assert_eq!(seconds(&mut outages(text, 1), 3), [(0, 3), (50, 63), (110, 123)]);
    }

    #[test]
    fn scheduled_and_random_outages_are_merged() {
        let scheduled = "packets = 'lost'\nscheduled = [['10 s', '3 s']]\nrepeat = '20 s'";
        let both = format!("{scheduled}\nrandom = {{ mean-gap = '7 s', mean-length = '4 s' }}");
        let mut outages = outages(&both, 2);
        let all: Vec<Interval> = (0..2000).map(|i| outages.get(i).unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0].end_ns < pair[1].start_ns));
        let end_ns = all[all.len() - 1].end_ns;
        let down = |at_ns| all.iter().any(|o| (o.start_ns..o.end_ns).contains(&at_ns));
        let times = (10..).step_by(20).map(|s| s * S).take_while(|at_ns| at_ns + 3 * S < end_ns);
        let covered: Vec<bool> =
            times.map(|at_ns| down(at_ns) && down(at_ns + 3 * S - 1)).collect();
        assert!(covered.len() > 500 && covered.iter().all(|covered| *covered));
        // The link is up 17/20 of the time by schedule, and 7/11 of that by chance.
        let down_ns: u64 = all.iter().map(|o| o.end_ns - o.start_ns).sum();
        let up = 1.0 - down_ns as f64 / end_ns as f64;
        assert!((up - 17.0 / 20.0 * 7.0 / 11.0).abs() < 0.03, "{up}");
    }

    #[test]
    fn random_outages_have_the_expected_means() {
        let text = "packets = 'lost'\nrandom = { mean-gap = '120 s', mean-length = '5 s' }";
        let mut random = outages(text, 9);
        let n = 20_000;
        let all: Vec<Interval> = (0..n).map(|i| random.get(i).unwrap()).collect();
        let length: u64 = all.iter().map(|o| o.end_ns - o.start_ns).sum();
        let gap = all[n - 1].end_ns - length;
        // Exponential: the standard error of a mean is mean/√n; five of them are 3.5 %.
        assert!((length as f64 / n as f64 / (5.0 * S as f64) - 1.0).abs() < 0.036);
        assert!((gap as f64 / n as f64 / (120.0 * S as f64) - 1.0).abs() < 0.036);
        assert!(all.windows(2).all(|pair| pair[0].end_ns < pair[1].start_ns));
    }

    #[test]
    fn invalid_outages_are_refused() {
        let why = |text| toml::from_str::<OutageSpec>(text).unwrap_err().to_string();
        assert!(why("packets = 'lost'").contains("neither"));
        assert!(why("scheduled = [['1 s', '1 s']]").contains("packets"));
        assert!(
            why("packets = 'lost'\nscheduled = [['1 s', '1 s'], ['2 s', '1 s']]").contains("join")
        );
        let always = "packets = 'lost'\nscheduled = [['0 s', '60 s']]\nrepeat = '60 s'";
        assert!(why(always).contains("between"));
        let crowded = "packets = 'lost'\nrandom = { mean-gap = '1 ms', mean-length = '5 s' }";
        assert!(why(crowded).contains("10 ms"));
    }
}
