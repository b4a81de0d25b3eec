//! Accuracy of the emulator: declared and measured properties of every link.

use crate::emu::{DirectionMeasured, Figure, LinkMeasured, Testbed};
use crate::profile::Profile;
use crate::result::Row;
use bentpipe_channel::{DirectionSpec, LinkSpec};

/// One figure of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// `radio` or `terrestrial`.
    pub link: &'static str,
    /// `forward` or `return`.
    pub direction: &'static str,
    /// `delay`, `rate` or `loss`.
    pub quantity: &'static str,
    /// `s`, `bit/s` or `ratio`.
    pub unit: &'static str,
    /// Declared long-term value. `None` if unlimited.
    pub declared: Option<f64>,
    /// Measured value, with the bounds that follow from the declaration.
    pub figure: Figure,
    /// Number of packets behind the value.
    pub packets: usize,
}

/// Brings up a testbed for `profile` and measures it.
pub fn run(profile: &Profile, seed: u64) -> anyhow::Result<Vec<Line>> {
    let testbed = Testbed::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
    let measured = testbed.measure()?;
    let mut lines = of_link("radio", &profile.link, &measured.radio);
    if let (Some(spec), Some(measured)) = (&profile.terrestrial, &measured.terrestrial) {
        lines.extend(of_link("terrestrial", spec, measured));
    }
    Ok(lines)
}

/// Rows of `lines`.
pub fn rows(profile: &Profile, seed: u64, lines: &[Line]) -> Vec<Row> {
    let row = |line: &Line| Row {
        experiment: "measure".into(),
        engine: "emu".into(),
        profile: Some(profile.name.clone()),
        workload: Some(format!("{}-{}", line.link, line.direction)),
        metric: line.quantity.into(),
        unit: line.unit.into(),
        n: line.packets,
        p50: Some(line.figure.measured).filter(|value| value.is_finite()),
        limit: line.declared,
        seed: Some(seed),
        ..Row::default()
    };
    lines.iter().map(row).collect()
}

fn of_link(link: &'static str, spec: &LinkSpec, measured: &LinkMeasured) -> Vec<Line> {
    let mut lines = of_direction(link, "forward", &spec.forward, &measured.forward);
    lines.extend(of_direction(link, "return", &spec.return_, &measured.return_));
    lines
}

fn of_direction(
    link: &'static str,
    direction: &'static str,
    spec: &DirectionSpec,
    measured: &DirectionMeasured,
) -> Vec<Line> {
    let packets = measured.probes;
    let line = |quantity, unit, declared, figure: Option<Figure>| {
        figure.map(|figure| Line { link, direction, quantity, unit, declared, figure, packets })
    };
    let delay_s = spec.mean_delay().as_secs_f64();
    let rate_bps = spec.rate().map(|rate| rate.bps() as f64);
    // Probes have several sizes, which matters only for bit errors.
    let loss = spec.mean_loss(1400);
    [
        line("delay", "s", Some(delay_s), measured.delay_s),
        line("rate", "bit/s", rate_bps, measured.rate_bps),
        line("loss", "ratio", Some(loss), Some(measured.loss)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
