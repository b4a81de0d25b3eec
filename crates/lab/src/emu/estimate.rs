//! Estimates of delay, rate and loss from the sending and arrival times of probes. The same
//! estimates for a declared link: the results that the model gives for the same packets.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_channel::{Direction, DirectionSpec, Fate};

/// IP bytes of a paced probe. It is small, so that even a 128 kbit/s link is idle between probes.
pub const PROBE_BYTES: usize = 44;

/// IP bytes of a packet in a burst.
pub const BURST_BYTES: usize = 1400;

/// Time that a burst should keep the link busy. Timestamps are accurate to about 0.1 ms, so 300 ms
/// give the rate to 0.03 %.
const BURST_SPAN: Duration = Duration::from_millis(300);

/// Packets in a burst: at least 8, or 0.7 s of 128 kbit/s, and at most 600, or 67 ms of 100 Mbit/s.
const BURST_PACKETS: std::ops::RangeInclusive<usize> = 8..=600;

/// Purpose of a packet in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Paced packet, for delay and loss.
    Probe,
    /// Packet of the burst with this index, sent back to back with the others, for the rate.
    Burst(usize),
}

impl Purpose {
    /// IP bytes of a packet with this purpose.
    pub fn bytes(self) -> usize {
        if self == Self::Probe { PROBE_BYTES } else { BURST_BYTES }
    }
}

/// Sending time of each packet, in the model's time, and its purpose.
#[derive(Debug, Clone, Default)]
pub struct Schedule(pub Vec<(Duration, Purpose)>);

impl Schedule {
    /// Number of packets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Rate at which the bursts were sent. An unlimited link would deliver them at this rate.
    pub fn burst_rate_bps(&self) -> Option<f64> {
        let at_once: Vec<_> = self.0.iter().map(|(at, _)| Some(*at)).collect();
        burst_rate_bps(self, &at_once)
    }
}

/// Estimate of a link from a set of probes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Median delay of the paced probes.
    pub delay_s: Option<f64>,
    /// Median rate within the bursts.
    pub rate_bps: Option<f64>,
    /// Fraction of all packets that did not arrive.
    pub loss: f64,
}

impl Estimate {
    /// Evaluates the arrivals. `arrived` has one entry for each packet of the schedule.
    pub fn of(sent: &Schedule, arrived: &[Option<Duration>]) -> Self {
        let delays = sent.0.iter().zip(arrived).filter_map(|((at, purpose), arrival)| {
            let arrival = arrival.filter(|_| *purpose == Purpose::Probe)?;
            Some(arrival.as_secs_f64() - at.as_secs_f64())
        });
        let lost = arrived.iter().filter(|arrival| arrival.is_none()).count();
        Self {
            delay_s: median(delays.collect()),
            rate_bps: burst_rate_bps(sent, arrived),
            loss: lost as f64 / sent.len().max(1) as f64,
        }
    }
}

/// Sends `sent` through a model of `spec` and returns the arrivals.
pub fn replay(spec: &DirectionSpec, seed: u64, sent: &Schedule) -> Vec<Option<Duration>> {
    let mut model = Direction::new(spec, seed);
    let arrival = |fate| match fate {
        Fate::Delivered { at } => Some(at),
        _ => None,
    };
    let offer = |(at, purpose): &(Duration, Purpose)| model.offer(*at, purpose.bytes());
    let fates: Vec<Fate> = sent.0.iter().map(offer).collect();
    let mut later = BTreeMap::new();
    while let Some(at) = model.next_decision() {
        later.extend(model.decide(at).map(|one| (one.number, one.fate)));
    }
    let decided = |fate| match fate {
        Fate::Waiting(number) => later.get(&number).copied().and_then(arrival),
        fate => arrival(fate),
    };
    fates.into_iter().map(decided).collect()
}

/// Rate that the bursts of `sent` would show on a link of `spec` if all packets of each burst were
/// offered at once. For a link with a rate, this is the link's rate. Returns `None` if too few
/// packets arrived.
pub fn full_rate_bps(spec: &DirectionSpec, seed: u64, sent: &Schedule) -> Option<f64> {
    let mut begins: Option<(usize, Duration)> = None;
    let at_once = sent.0.iter().map(|&(at, purpose)| {
        let Purpose::Burst(burst) = purpose else { return (at, purpose) };
        let began = begins.filter(|(of, _)| *of == burst).map_or(at, |(_, began)| began);
        begins = Some((burst, began));
        (began, purpose)
    });
    let at_once = Schedule(at_once.collect());
    Estimate::of(&at_once, &replay(spec, seed, &at_once)).rate_bps
}

/// Number of packets in a burst that keeps a link of `spec` busy long enough for a rate measurement
/// and still fits its queue.
pub fn burst_packets(spec: &DirectionSpec, now: Duration) -> usize {
    let mut model = Direction::new(spec, 0);
    let mut first = None;
    for sent in 0..*BURST_PACKETS.end() {
        match model.offer(now, BURST_BYTES) {
            Fate::QueueDropped | Fate::TooLong | Fate::Policed => return sent,
            Fate::Delivered { at } => {
                let busy = at.saturating_sub(*first.get_or_insert(at));
                if busy >= BURST_SPAN && sent >= *BURST_PACKETS.start() {
                    return sent;
                }
            }
            Fate::Lost | Fate::Waiting(_) => {}
        }
    }
    *BURST_PACKETS.end()
}

/// Rate shown by the bursts' arrivals. It compares packets half a burst apart, so that each pair
/// spans much time and a few late packets do not matter. A packet lost between two others has still
/// used its time on the link, so the bytes follow from the sequence numbers.
fn burst_rate_bps(sent: &Schedule, arrived: &[Option<Duration>]) -> Option<f64> {
    let mut by_burst: Vec<Vec<(usize, Duration)>> = Vec::new();
    for (index, ((_, purpose), arrival)) in sent.0.iter().zip(arrived).enumerate() {
        if let (Purpose::Burst(burst), Some(arrival)) = (*purpose, *arrival) {
            by_burst.resize_with(by_burst.len().max(burst + 1), Vec::new);
            by_burst[burst].push((index, arrival));
        }
    }
    let seconds_per_packet = by_burst.iter().flat_map(|arrivals| {
        let half = arrivals.len().div_ceil(2);
        arrivals.iter().zip(&arrivals[half.min(arrivals.len())..]).map(|(early, late)| {
            (late.1.as_secs_f64() - early.1.as_secs_f64()) / (late.0 - early.0) as f64
        })
    });
    let median = median(seconds_per_packet.collect())?;
    Some(if median > 0.0 { BURST_BYTES as f64 * 8.0 / median } else { f64::INFINITY })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two bursts of ten packets and ten probes, sent 1 s apart.
    fn schedule() -> Schedule {
        let second = |n: usize| Duration::from_secs(n as u64);
        let probes = (0..10).map(|n| (second(n), Purpose::Probe));
        let bursts = (0..20).map(|n| (second(10 + n / 10), Purpose::Burst(n / 10)));
        Schedule(probes.chain(bursts).collect())
    }

    #[test]
    fn a_constant_link_is_estimated_exactly_whatever_it_loses() {
        let sent = schedule();
        let arrived: Vec<_> = (sent.0.iter().enumerate())
            .map(|(index, (at, purpose))| match purpose {
                Purpose::Probe => Some(*at + Duration::from_millis(50)),
                Purpose::Burst(_) if index % 3 == 0 => None,
                Purpose::Burst(_) => {
                    let place = index as u32 % 10 + 1;
                    Some(*at + Duration::from_millis(50) + place * Duration::from_millis(14))
                }
            })
            .collect();
        let estimate = Estimate::of(&sent, &arrived);
        assert!((estimate.delay_s.unwrap() - 0.05).abs() < 1e-9);
        assert!((estimate.rate_bps.unwrap() - 800e3).abs() < 1.0);
        assert!((estimate.loss - 6.0 / 30.0).abs() < 1e-9);
    }

    #[test]
    fn bursts_that_were_sent_slowly_show_less_than_the_full_rate() {
        let text = "rate = \"200 Mbit/s\"\ndelay = \"50 ms\"\nqueue = \"100 ms\"";
        let spec: DirectionSpec = toml::from_str(text).unwrap();
        // One packet every 150 us: 75 Mbit/s.
        let at = |n: u32| Duration::from_micros(150) * n;
        let sent = Schedule((0..600).map(|n| (at(n), Purpose::Burst(0))).collect());
        let shown = Estimate::of(&sent, &replay(&spec, 0, &sent)).rate_bps.unwrap();
        assert!((shown / 1e6 - 74.67).abs() < 0.01, "{shown}");
        let full = full_rate_bps(&spec, 0, &sent).unwrap();
        assert!((full / 200e6 - 1.0).abs() < 1e-3, "{full}");
        let unlimited: DirectionSpec = toml::from_str("delay = \"50 ms\"").unwrap();
        assert_eq!(full_rate_bps(&unlimited, 0, &sent), Some(f64::INFINITY));
    }

    #[test]
    fn nothing_is_estimated_from_nothing() {
        let sent = schedule();
        let estimate = Estimate::of(&sent, &vec![None; sent.len()]);
        assert_eq!(estimate, Estimate { delay_s: None, rate_bps: None, loss: 1.0 });
    }
}
