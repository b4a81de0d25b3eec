//! Scenario of one run, drawn from a seed.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_flow::ResetCode;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Limits of the random draws: the conditions that a transport must withstand.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum bytes in one direction of a flow.
    pub most_bytes: u64,
    /// Maximum number of flows. At least two are drawn.
    pub most_flows: u16,
    /// Maximum outage. At least a second is drawn.
    pub longest_outage: Duration,
    /// Maximum loss in each direction.
    pub most_loss: f64,
    /// `true` if the link may reorder packets.
    pub reorders: bool,
    /// `true` if the aircraft may end its direction and leave without waiting for a response.
    pub air_leaves: bool,
}

impl Limits {
    /// Conditions that the project promises to withstand.
    pub const PROMISED: Self = Self {
        most_bytes: 2_000_000,
        most_flows: 5,
        longest_outage: Duration::from_secs(30),
        most_loss: 0.15,
        reorders: true,
        air_leaves: true,
    };
}

/// A scenario: everything that happens in one run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Seed of everything else, and of the transport's own randomness.
    pub seed: u64,
    /// The radio link.
    pub link: LinkPlan,
    /// Outage of the link.
    pub outage: Outage,
    /// Time at which the aircraft's address changes.
    pub moves_at: Option<Duration>,
    /// Interval at which the session's keys are replaced, if the transport can.
    pub key_lifetime: Option<Duration>,
    /// Memory of each end.
    pub memory: Memory,
    /// Flows, by number.
    pub flows: Vec<FlowPlan>,
}

/// Link parameters, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub struct LinkPlan {
    /// Rate in bit/s.
    pub rate_bps: u64,
    /// One-way delay.
    pub delay: Duration,
    /// Fraction of packets lost.
    pub loss: f64,
    /// Mean number of consecutive packets that are lost together; 1 is independent loss.
    pub burst: u32,
    /// Mean of the additional delay, which is exponentially distributed.
    pub jitter: Option<Duration>,
    /// `true` if the additional delay may reorder packets.
    pub reorders: bool,
}

/// An outage: the link carries nothing in either direction.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// Start of the outage.
    pub at: Duration,
    /// Length of the outage.
    pub length: Duration,
}

/// Memory of each end of the session.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Bytes received and not yet read.
    pub receive_bytes: u64,
    /// Bytes written and not yet acknowledged by a report.
    pub send_bytes: u64,
    /// Send buffer of one flow.
    pub flow_send_bytes: u64,
    /// Reserve for each incoming flow.
    pub flow_reserve_bytes: u64,
}

/// One flow.
#[derive(Debug, Clone)]
pub struct FlowPlan {
    /// Time at which the aircraft opens it.
    pub opens_at: Duration,
    /// Number of the aircraft's bytes that are sent with the opening.
    pub first_bytes: u64,
    /// Plan of the aircraft.
    pub air: SidePlan,
    /// Plan of the ground.
    pub ground: SidePlan,
}

/// Plan of one end of a flow.
#[derive(Debug, Clone)]
pub struct SidePlan {
    /// Bytes to send.
    pub bytes: u64,
    /// Bytes per write.
    pub write_bytes: usize,
    /// `true` if it ends its direction only after it has read the end of the other.
    pub ends_last: bool,
    /// Offsets at which it stops reading, and the length of each pause.
    pub pauses: Vec<(u64, Duration)>,
    /// Way in which it abandons the flow, if it does.
    pub breaks: Option<Break>,
}

/// Ways in which an end abandons a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Resets the flow after it has written this many bytes.
    Reset(u64, ResetCode),
    /// Drops the flow after it has written this many bytes.
    Drop(u64),
    /// Sends everything, ends its direction, and reads no more.
    Leave,
}

impl Scenario {
    /// Draws the run for `seed` within `limits`.
    pub fn draw(seed: u64, limits: &Limits) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let link = LinkPlan::draw(rng, limits);
        let flows: Vec<_> = (0..rng.random_range(2..=limits.most_flows))
            .map(|_| FlowPlan::draw(rng, limits))
            .collect();
        let outage_ms = rng.random_range(1000..=limits.longest_outage.as_millis() as u64);
        let outage = Outage { at: ms(rng, 0..20_000), length: Duration::from_millis(outage_ms) };
        let moves = rng.random_bool(0.5);
        Self {
            seed,
            link,
            outage,
            moves_at: moves.then(|| ms(rng, 500..40_000)),
            key_lifetime: (!moves).then(|| ms(rng, 1500..8000)),
            memory: Memory::draw(rng),
            flows,
        }
    }

    /// Time by which everything must be over: several times the need of the slowest case.
    pub fn deadline(&self) -> Duration {
        let bytes: u64 = self.flows.iter().map(|flow| flow.air.bytes + flow.ground.bytes).sum();
        let goodput_bps = self.link.rate_bps as f64 * (1.0 - self.link.loss);
        // A window of the smallest memory is refilled once per round trip.
        let rtt = self.link.rtt().as_secs_f64();
        let window = self.memory.send_bytes.min(self.memory.flow_reserve_bytes) / 4;
        let refills = bytes as f64 / window as f64 * rtt / (1.0 - self.link.loss);
        let sending = Duration::from_secs_f64(8.0 * bytes as f64 / goodput_bps + refills);
        let pauses = self.flows.iter().flat_map(|flow| [&flow.air, &flow.ground]);
        let pauses: Duration = pauses.flat_map(|side| &side.pauses).map(|(_, long)| *long).sum();
        3 * sending + self.outage.at + self.outage.length + pauses + Duration::from_secs(240)
    }

    /// The link with its outage, in the form of the channel model.
    pub fn link_spec(&self) -> LinkSpec {
        let LinkPlan { rate_bps, delay, loss, burst, jitter, reorders } = self.link;
        let loss = match (loss * 100.0, burst) {
            (loss, 1) => format!("\"{loss} %\""),
            (loss, burst) => {
                format!("{{ gilbert-elliott = {{ mean = \"{loss} %\", burst = {burst} }} }}")
            }
        };
        let mut text = format!(
            "rate = \"{rate_bps} bit/s\"\ndelay = \"{} us\"\nloss = {loss}\nqueue = \"2 BDP\"\n\
             outages = {{ packets = \"lost\", scheduled = [[\"{} ms\", \"{} ms\"]] }}\n",
            delay.as_micros(),
            self.outage.at.as_millis(),
            self.outage.length.as_millis(),
        );
        if let Some(mean) = jitter {
            let shape = format!("shape = \"exponential\", mean = \"{} us\"", mean.as_micros());
            text += &format!("jitter = {{ {shape} }}\n");
            text += if reorders { "order = \"free\"\n" } else { "order = \"kept\"\n" };
        }
        let direction: DirectionSpec = toml::from_str(&text)
            .unwrap_or_else(|error| panic!("a drawn link must be a valid one: {error}\n{text}"));
        LinkSpec { forward: direction.clone(), return_: direction }
    }
}

impl LinkPlan {
    fn draw(rng: &mut ChaCha8Rng, limits: &Limits) -> Self {
        let jitter =
            rng.random_bool(0.5).then(|| Duration::from_micros(rng.random_range(100..30_000)));
        Self {
            rate_bps: rng.random_range(1_000_000..6_000_000),
            delay: Duration::from_micros(rng.random_range(240_000..420_000)),
            loss: (rng.random_range(0.0..=limits.most_loss) * 1000.0_f64).round() / 1000.0,
            burst: if rng.random_bool(0.3) { rng.random_range(2..8) } else { 1 },
            jitter,
            reorders: limits.reorders && jitter.is_some() && rng.random_bool(0.5),
        }
    }

    /// Round-trip time: twice the delay and mean jitter.
    pub fn rtt(&self) -> Duration {
        2 * (self.delay + self.jitter.unwrap_or_default())
    }
}

impl Memory {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let kib = |choices: &[u64], rng: &mut ChaCha8Rng| {
            choices[rng.random_range(0..choices.len())] << 10
        };
        Self {
            receive_bytes: kib(&[1 << 10, 8 << 10, 512 << 10], rng),
            send_bytes: kib(&[256, 4 << 10, 256 << 10], rng),
            flow_send_bytes: kib(&[16, 64, 256], rng),
            flow_reserve_bytes: kib(&[16, 64], rng),
        }
    }
}

impl FlowPlan {
    fn draw(rng: &mut ChaCha8Rng, limits: &Limits) -> Self {
        let (mut air, mut ground) = (SidePlan::draw(rng, limits), SidePlan::draw(rng, limits));
        // Only one of them may wait for the other's end.
        match rng.random_range(0..4) {
            0 => air.ends_last = true,
            1 => ground.ends_last = true,
            _ => {}
        }
        match rng.random_range(0..10) {
            0 => air.breaks = Some(Break::draw(rng, air.bytes)),
            1 => ground.breaks = Some(Break::draw(rng, ground.bytes)),
            2 => {
                air.breaks = Some(Break::draw(rng, air.bytes));
                ground.breaks = Some(Break::draw(rng, ground.bytes));
            }
            _ => {}
        }
        if air.breaks == Some(Break::Leave) && !limits.air_leaves {
            air.breaks = None;
        }
        let first_bytes = rng.random_range(0..=air.bytes.min(1200));
        Self { opens_at: ms(rng, 0..15_000), first_bytes, air, ground }
    }
}

impl SidePlan {
    fn draw(rng: &mut ChaCha8Rng, limits: &Limits) -> Self {
        let bytes = match rng.random_range(0..10) {
            0 => 0,
            1 => limits.most_bytes,
            // Small and large sizes are equally likely.
            _ => (limits.most_bytes as f64).powf(rng.random_range(0.0..=1.0)) as u64,
        };
        let write_bytes = match rng.random_range(0..8) {
            0 if bytes < 5000 => 1,
            1 => rng.random_range(1..2000),
            _ => rng.random_range(1..=65_536),
        };
        let pauses = if rng.random_bool(0.2) { rng.random_range(1..4) } else { 0 };
        let mut pauses: Vec<_> = (0..pauses)
            .map(|_| (rng.random_range(0..limits.most_bytes / 4), ms(rng, 10..8000)))
            .collect();
        pauses.sort();
        Self { bytes, write_bytes, ends_last: false, pauses, breaks: None }
    }
}

impl Break {
    fn draw(rng: &mut ChaCha8Rng, bytes: u64) -> Self {
        let after = rng.random_range(0..=bytes);
        match rng.random_range(0..4) {
            0 => Self::Drop(after),
            1 => Self::Leave,
            _ => Self::Reset(after, ResetCode::ALL[rng.random_range(0..ResetCode::ALL.len())]),
        }
    }
}

fn ms(rng: &mut ChaCha8Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(range))
}
