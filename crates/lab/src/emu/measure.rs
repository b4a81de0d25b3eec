//! The measurement at the beginning of every run: does each link match its declaration?
//!
//! In each direction, paced probes and bursts are sent from kernel to kernel through the emulated
//! link. Their results are compared with the declaration *for this very schedule*. For that, a
//! fresh model is offered the same packets at the same times, with many seeds ([`REPLICAS`]). The
//! lowest and highest results are the bounds for a correct emulator:
//!
//! - For a constant link both bounds are equal, so only the emulator's own tolerance remains.
//! - For a random link they are the (burst-adjusted) confidence interval.
//! - For a link that varies with time they are the declared values of exactly this period.
//!
//! In addition, every packet that the wire's model delivers must have arrived.

use std::fmt;
use std::thread;

use bentpipe_channel::{Counters, DirectionSpec, LinkSpec};

use super::error::EmuError;
use super::estimate::{self, Estimate, Schedule};
use super::probe;
use super::testbed::{EmulatedLink, Testbed, direction_from};

/// Tolerance of the measured delay, in seconds.
pub const DELAY_TOLERANCE_S: f64 = 0.001;

/// Tolerance of the measured rate, as a ratio.
pub const RATE_TOLERANCE: f64 = 0.01;

/// Minimum rate at which an unlimited link must carry a burst.
pub const UNLIMITED_FLOOR_BPS: f64 = 100e6;

/// Minimum capacity of a terrestrial path, as a multiple of that of the radio link in front of it.
/// The path adds delay and must never be the bottleneck.
pub const TERRESTRIAL_HEADROOM: f64 = 2.0;

/// Bursts sent at nearly the link's rate kept it busy if they show at least this fraction of the
/// rate.
const FILLED: f64 = 0.99;

/// Attempts for a direction before a difference is accepted, because a busy machine can delay any
/// thread. Three attempts take at most about 15 s.
pub const ATTEMPTS: usize = 3;

/// Number of models that the measurement is compared with. For each random figure, a correct link
/// is outside the extremes of 200 models in one of a hundred attempts. It is outside in three
/// attempts in a row in one of a million cases.
const REPLICAS: u64 = 200;

/// A measured figure and the bounds from the declaration, including the tolerance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Measured value.
    pub measured: f64,
    /// Smallest value that agrees with the declaration.
    pub low: f64,
    /// Largest value that agrees with the declaration.
    pub high: f64,
}

/// Measurement of one direction of a link, in full agreement with the declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionMeasured {
    /// Median one-way delay of small packets in seconds. `None` if no packets arrived, as declared.
    pub delay_s: Option<Figure>,
    /// Rate within a burst in bit/s. `None` if almost no packets arrived, as declared.
    pub rate_bps: Option<Figure>,
    /// `true` if the bursts kept the link busy, so that `rate_bps` is the link's rate.
    ///
    /// Otherwise this machine sent them too slowly or no rate is declared, and the link carries at
    /// least the measured rate. That rate then equals, within [`RATE_TOLERANCE`], the one that the
    /// declared link shows for the same bursts. If the link would have slowed the bursts by less
    /// than a tenth, the rate is at least the smaller of half their sending rate and
    /// [`UNLIMITED_FLOOR_BPS`].
    pub is_filled: bool,
    /// Fraction of probes lost.
    pub loss: Figure,
    /// Number of probes sent.
    pub probes: usize,
    /// Number of the attempt that agreed.
    pub attempt: usize,
}

impl fmt::Display for DirectionMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(delay) = self.delay_s {
            write!(f, "{:.2} ms, ", delay.measured * 1e3)?;
        }
        match self.rate_bps {
            Some(rate) if rate.measured.is_infinite() => f.write_str("no limit of rate, ")?,
            Some(rate) if !self.is_filled => {
                write!(f, "at least {:.4} Mbit/s, ", rate.measured / 1e6)?;
            }
            Some(rate) => write!(f, "{:.4} Mbit/s, ", rate.measured / 1e6)?,
            None => {}
        }
        write!(f, "{:.2} % of {} probes lost", self.loss.measured * 1e2, self.probes)
    }
}

/// Measurement of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkMeasured {
    /// Towards the client.
    pub forward: DirectionMeasured,
    /// Away from the client.
    pub return_: DirectionMeasured,
}

impl fmt::Display for LinkMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forward {}; return {}", self.forward, self.return_)
    }
}

/// Measurements of a testbed.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The radio link.
    pub radio: LinkMeasured,
    /// Radio links besides the first.
    pub further: Vec<LinkMeasured>,
    /// The terrestrial path; `None` if it is a cable.
    pub terrestrial: Option<LinkMeasured>,
}

/// Reason why a run must not report any results.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The link is not the declared one, or this machine is too busy to emulate it.
    #[error(
        "the {direction} direction of the {link} link is not as declared: {quantity} measured as \
         {measured}, declared as {low} to {high} ({attempts} attempts); if the declaration is \
         right, this machine is too busy to emulate it: run fewer testbeds at once, or \
         allow real-time priority (root, or `ulimit -r 1`)"
    )]
    Mismatch {
        /// `radio` or `terrestrial`.
        link: &'static str,
        /// `forward` or `return`.
        direction: &'static str,
        /// Quantity that differs.
        quantity: Quantity,
        /// Value from the probes; NaN if they gave none.
        measured: f64,
        /// Smallest value that would have agreed.
        low: f64,
        /// Largest value that would have agreed.
        high: f64,
        /// Number of attempts.
        attempts: usize,
    },
    /// The measurement itself could not be made.
    #[error("cannot measure the emulated link: {0}")]
    Emulator(#[from] EmuError),
}

/// Property of a link that can differ from its declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Median one-way delay in seconds.
    Delay,
    /// Rate in bit/s.
    Rate,
    /// Fraction of packets lost.
    Loss,
    /// Packets that the model delivered but that did not arrive.
    Unmodelled,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delay => "the delay in s",
            Self::Rate => "the rate in bit/s",
            Self::Loss => "the ratio of loss",
            Self::Unmodelled => "packets lost outside the model",
        })
    }
}

impl Testbed {
    /// Measures every emulated link, both directions at once, and compares it with the declaration
    /// of the testbed. Takes about 5 s, during which nothing else may use the links.
    pub fn measure(&self) -> Result<Measured, MeasureError> {
        let terrestrial = self.terrestrial.as_ref().map(|path| &path.spec);
        self.measure_against(&self.radio.spec, terrestrial)
    }

    /// Like [`Testbed::measure`], with a given declaration. A terrestrial path is measured only if it
    /// exists and is declared.
    pub fn measure_against(
        &self,
        radio: &LinkSpec,
        terrestrial: Option<&LinkSpec>,
    ) -> Result<Measured, MeasureError> {
        thread::scope(|scope| {
            let path = self.terrestrial.as_ref().zip(terrestrial);
            let needed = [&radio.return_, &radio.forward].map(needed_bps);
            let path =
                path.map(|(link, spec)| scope.spawn(move || measure_link(link, spec, needed)));
            let further = self.further.iter();
            let further = further
                .map(|link| scope.spawn(move || measure_link(link, &link.spec, [0.0; 2])))
                .collect::<Vec<_>>();
            let radio = measure_link(&self.radio, radio, [0.0; 2])?;
            let terrestrial = path.map(|path| path.join().unwrap_or_else(resume)).transpose()?;
            let further = further.into_iter().map(|one| one.join().unwrap_or_else(resume));
            Ok(Measured { radio, further: further.collect::<Result<_, _>>()?, terrestrial })
        })
    }
}

fn resume<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}

/// Minimum capacity of a path behind a radio link in the same direction.
fn needed_bps(radio: &DirectionSpec) -> f64 {
    radio.rate().map_or(0.0, |rate| TERRESTRIAL_HEADROOM * rate.bps() as f64)
}

/// Measures one link. `needed` is the minimum rate in bit/s that bursts which do not fill the link
/// must show, from either end.
fn measure_link(
    link: &EmulatedLink,
    declared: &LinkSpec,
    needed: [f64; 2],
) -> Result<LinkMeasured, MeasureError> {
    thread::scope(|scope| {
        let measure = |from: usize| {
            measure_direction(link, from, direction_from(declared, from), needed[from])
        };
        let return_ = scope.spawn(move || measure(0));
        let forward = measure(1);
        let return_ = return_.join().unwrap_or_else(resume);
        Ok(LinkMeasured { forward: forward?, return_: return_? })
    })
}

/// Difference from the declaration in one attempt.
struct Difference {
    quantity: Quantity,
    figure: Figure,
}

fn measure_direction(
    link: &EmulatedLink,
    from: usize,
    declared: &DirectionSpec,
    needed_bps: f64,
) -> Result<DirectionMeasured, MeasureError> {
    let mut attempt = 1;
    loop {
        match try_direction(link, from, declared, needed_bps)? {
            Ok(measured) => return Ok(DirectionMeasured { attempt, ..measured }),
            Err(Difference { quantity, figure }) if attempt < ATTEMPTS => {
                let link = link.name;
                tracing::debug!(link, from, attempt, %quantity, ?figure, "measuring once more");
                attempt += 1;
            }
            Err(Difference { quantity, figure: Figure { measured, low, high } }) => {
                return Err(MeasureError::Mismatch {
                    link: link.name,
                    direction: if from == 0 { "return" } else { "forward" },
                    quantity,
                    measured,
                    low,
                    high,
                    attempts: ATTEMPTS,
                });
            }
        }
    }
}

fn try_direction(
    link: &EmulatedLink,
    from: usize,
    declared: &DirectionSpec,
    needed_bps: f64,
) -> Result<Result<DirectionMeasured, Difference>, EmuError> {
    let before = link.wire_counters(from).model;
    let burst = estimate::burst_packets(declared, link.epoch.elapsed());
    let run = probe::run(link, from, burst, |sent| {
        estimate::replay(declared, 0, sent).into_iter().flatten().max().unwrap_or_default()
    })?;
    let after = link.wire_counters(from).model;

    let measured = Estimate::of(&run.sent, &run.arrived);
    let full_bps = estimate::full_rate_bps(declared, 0, &run.sent);
    // One replica has the wire's own seed, and so the same random outages.
    let declared: Vec<_> = (0..REPLICAS)
        .chain([link.seeds[from]])
        .map(|seed| Estimate::of(&run.sent, &estimate::replay(declared, seed, &run.sent)))
        .collect();
    let missing = run.arrived.iter().filter(|arrival| arrival.is_none()).count() as u64;
    let dropped_until = |counters: &Counters| {
        counters.lost.packets + counters.queue_dropped.packets + counters.too_long.packets
    };
    let dropped = dropped_until(&after) - dropped_until(&before);
    let compared = compare(&run.sent, measured, &declared).and_then(|agreed| {
        // Both use one seed, so that random events of the link are the same in both.
        let both = declared[0].rate_bps.zip(full_bps);
        let is_filled =
            both.is_some_and(|(shown, full)| full.is_finite() && shown >= FILLED * full);
        enough(DirectionMeasured { is_filled, ..agreed }, needed_bps)
    });
    Ok(compared.and_then(|agreed| {
        // Some dropped packets may belong to others, so fewer missing probes prove nothing.
        let unmodelled = missing.saturating_sub(dropped) as f64;
        let figure = Figure { measured: unmodelled, low: 0.0, high: 0.0 };
        let failed = Difference { quantity: Quantity::Unmodelled, figure };
        if unmodelled > 0.0 { Err(failed) } else { Ok(agreed) }
    }))
}

/// Compares each figure with the values of the replicas.
fn compare(
    sent: &Schedule,
    measured: Estimate,
    declared: &[Estimate],
) -> Result<DirectionMeasured, Difference> {
    let delay = bounds(declared.iter().map(|d| d.delay_s))
        .map(|(low, high)| (low - DELAY_TOLERANCE_S, high + DELAY_TOLERANCE_S));
    let rate = bounds(declared.iter().map(|d| d.rate_bps)).map(|(low, high)| {
        let sent_bps = sent.burst_rate_bps().unwrap_or(f64::INFINITY);
        if low > 0.9 * sent_bps {
            // The bursts did not fill the link. The measurement can only show that the link is not
            // the bottleneck.
            (UNLIMITED_FLOOR_BPS.min(0.5 * sent_bps), f64::INFINITY)
        } else {
            (low * (1.0 - RATE_TOLERANCE), high * (1.0 + RATE_TOLERANCE))
        }
    });
    let loss = bounds(declared.iter().map(|d| Some(d.loss))).unwrap_or((0.0, 0.0));
    let silent =
        |figure: fn(&Estimate) -> Option<f64>| declared.iter().any(|d| figure(d).is_none());

    Ok(DirectionMeasured {
        loss: within(Quantity::Loss, measured.loss, loss)?,
        delay_s: optional(Quantity::Delay, measured.delay_s, delay, silent(|d| d.delay_s))?,
        rate_bps: optional(Quantity::Rate, measured.rate_bps, rate, silent(|d| d.rate_bps))?,
        is_filled: false,
        probes: sent.len(),
        attempt: 1,
    })
}

/// Checks that a path carries at least the needed rate if the bursts did not fill it.
fn enough(agreed: DirectionMeasured, needed_bps: f64) -> Result<DirectionMeasured, Difference> {
    match agreed.rate_bps {
        Some(rate) if !agreed.is_filled => {
            within(Quantity::Rate, rate.measured, (needed_bps, f64::INFINITY)).map(|_| agreed)
        }
        _ => Ok(agreed),
    }
}

fn bounds(values: impl Iterator<Item = Option<f64>>) -> Option<(f64, f64)> {
    values.flatten().fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

fn within(
    quantity: Quantity,
    measured: f64,
    (low, high): (f64, f64),
) -> Result<Figure, Difference> {
    let figure = Figure { measured, low, high };
    if (low..=high).contains(&measured) { Ok(figure) } else { Err(Difference { quantity, figure }) }
}

/// Compares a figure that may be absent. It agrees if at least one replica lacks it too.
fn optional(
    quantity: Quantity,
    measured: Option<f64>,
    bounds: Option<(f64, f64)>,
    may_be_silent: bool,
) -> Result<Option<Figure>, Difference> {
    if measured.is_none() && may_be_silent {
        return Ok(None);
    }
    let bounds = bounds.unwrap_or((f64::NAN, f64::NAN));
    within(quantity, measured.unwrap_or(f64::NAN), bounds).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mbps: f64, is_filled: bool) -> DirectionMeasured {
        let bps = mbps * 1e6;
        let rate = Figure { measured: bps, low: 0.99 * bps, high: 1.01 * bps };
        DirectionMeasured {
            delay_s: Some(Figure { measured: 0.05, low: 0.049, high: 0.051 }),
            rate_bps: Some(rate),
            is_filled,
            loss: Figure { measured: 0.0, low: 0.0, high: 0.0 },
            probes: 2300,
            attempt: 1,
        }
    }

    #[test]
    fn a_path_that_was_not_filled_must_be_seen_to_carry_what_is_needed_of_it() {
        assert!(enough(seen(68.0, false), 20e6).is_ok());
        let short = enough(seen(19.0, false), 20e6).err().unwrap();
        assert_eq!((short.quantity, short.figure.low), (Quantity::Rate, 20e6));
        // A path that is narrow as declared is intended.
        assert!(enough(seen(1.0, true), 20e6).is_ok());
    }

    #[test]
    fn an_unfilled_link_is_reported_as_a_lower_bound() {
        let says = "at least 68.3459 Mbit/s, 0.00 % of 2300 probes lost";
        assert_eq!(seen(68.3459, false).to_string(), format!("50.00 ms, {says}"));
        assert!(seen(199.9978, true).to_string().contains("199.9978 Mbit/s"));
    }
}
