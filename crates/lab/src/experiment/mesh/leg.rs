//! Transports between hub and egress over a terrestrial path that loses and reorders.
//!
//! NetForecast's path lost packets, and delivered packet 3 after packet 7
//! ([0017](../../../../../docs/decisions/0017-between-hub-and-egress.md)).

use std::io;
use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_link::{LeaseMode, Settings};
use bentpipe_masque::{Congestion, Transport};
use bentpipe_results::outcome::table;
use bentpipe_units::BitRate;

use super::seeds::Seeds;
use crate::experiment::findings::Findings;
use crate::sim::parallel;
use crate::sim::share::{self, Race, Sender, Shares};

/// Above any rate of the path, which is learned.
pub const CEILING: BitRate = BitRate::from_bps(1_000_000_000);
/// Round trip of the path.
const RTT: Duration = Duration::from_millis(150);
/// Rates of the path in Mbit/s.
const RATES_MBPS: [u64; 2] = [10, 50];
/// The neighbour starts later by this.
const STAGGER: Duration = Duration::from_secs(5);
/// Measured time.
const LENGTH: Duration = Duration::from_secs(30);
/// Least part of the rate that one flow gets.
const MIN_USED: f64 = 0.95;
/// Least rate of a neighbour with CUBIC, as a part of its rate beside another one.
const MIN_KEPT: f64 = 0.7;

/// A transport of the leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// QUIC with CUBIC.
    Cubic,
    /// The same, with losses after 64 packets.
    Patient,
    /// The same with BBR.
    Bbr,
    /// The radio transport with a learned rate.
    Learned,
}

impl Carrier {
    /// All transports.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::Patient, Self::Bbr, Self::Learned];

    fn name(self) -> &'static str {
        match self {
            Self::Cubic => "QUIC, CUBIC",
            Self::Patient => "same, threshold 64",
            Self::Bbr => "same, BBR",
            Self::Learned => "radio transport",
        }
    }

    fn sender(self) -> Sender {
        if self == Self::Learned { Sender::Link } else { Sender::Tuned }
    }

    fn transport(self) -> Transport {
        let quic = Transport { initial_rtt: RTT, ..Transport::default() };
        match self {
            Self::Cubic | Self::Learned => quic,
            Self::Patient => Transport { packet_threshold: 64, ..quic },
            Self::Bbr => Transport { packet_threshold: 64, congestion: Congestion::Bbr, ..quic },
        }
    }
}

/// One direction of a terrestrial path that loses and reorders 0.1 %. Four packets of a flow of
/// `flow_mbps` overtake a late one.
pub fn path(rate: &str, queue: &str, one_way: Duration, flow_mbps: u64) -> DirectionSpec {
    let (delay_ms, late_ms) = (one_way.as_secs_f64() * 1e3, 4.5 * 12.0 / flow_mbps as f64);
    let text = format!(
        "rate = '{rate}'\ndelay = '{delay_ms} ms'\nqueue = '{queue}'\nloss = '0.1 %'\n\
         reordering = {{ share = '0.1 %', delay = '{late_ms} ms' }}"
    );
    toml::from_str(&text).expect("the text is a direction")
}

/// Means over all seeds of a transport on a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Rate of the path in Mbit/s.
    pub mbps: u64,
    /// The transport.
    pub carrier: Carrier,
    /// Part of the rate that one flow gets.
    pub used: f64,
    /// Part of its packets that the queue drops.
    pub dropped: f64,
    /// Its rate beside the neighbour, and the neighbour's, in Mbit/s.
    pub beside: [f64; 2],
    /// The neighbour's rate ÷ its rate beside another one.
    pub kept: f64,
}

/// Races all transports on paths of `rates_mbps`, alone and beside a neighbour.
pub fn measure(rates_mbps: &[u64], seeds: Seeds) -> io::Result<Vec<Found>> {
    let mut races = Vec::new();
    for (mbps, carrier) in both(rates_mbps) {
        for senders in [vec![carrier.sender()], vec![carrier.sender(), Sender::Quic]] {
            races.extend(seeds.all().map(|seed| race(mbps, carrier, senders.clone(), seed)));
        }
    }
    let shares = parallel::map(&races, share::run).into_iter().collect::<io::Result<Vec<_>>>()?;
    let runs = seeds.runs as usize;
    let mean = |of: &[Shares], read: &dyn Fn(&Shares) -> f64| {
        of.iter().map(read).sum::<f64>() / runs as f64
    };
    let mbit = |shares: &Shares, sender: usize| shares.goodput_bps[sender] * 1e-6;
    let mut found: Vec<Found> = Vec::new();
    for ((mbps, carrier), of_both) in both(rates_mbps).zip(shares.chunks(2 * runs)) {
        let (alone, beside) = of_both.split_at(runs);
        let drops = |it: &Shares| it.queue[0].dropped as f64 / it.queue[0].packets as f64;
        let beside = [0, 1].map(|sender| mean(beside, &|it| mbit(it, sender)));
        let its_like = found.iter().find(|it| it.mbps == mbps).map_or(beside[1], |it| it.beside[1]);
        found.push(Found {
            mbps,
            carrier,
            used: mean(alone, &|it| mbit(it, 0)) / mbps as f64,
            dropped: mean(alone, &drops),
            beside,
            kept: beside[1] / its_like,
        });
    }
    Ok(found)
}

/// Paths and transports. CUBIC is the first on each path.
fn both(rates_mbps: &[u64]) -> impl Iterator<Item = (u64, Carrier)> {
    rates_mbps.iter().flat_map(|mbps| Carrier::ALL.map(|carrier| (*mbps, carrier)))
}

fn race(mbps: u64, carrier: Carrier, senders: Vec<Sender>, seed: u64) -> Race {
    let settings = Settings { rate: CEILING, lease: LeaseMode::Learned, ..Settings::default() };
    Race {
        link: share::symmetric(&path(&format!("{mbps} Mbit/s"), "1 BDP", RTT / 2, mbps)),
        senders,
        stagger: STAGGER,
        length: LENGTH,
        settings,
        transport: carrier.transport(),
        seed,
    }
}

/// Compares the transports. The bounds are for the one that was chosen.
pub fn play(seeds: Seeds, findings: &mut Findings) -> io::Result<()> {
    let found = measure(&RATES_MBPS, seeds)?;
    let mut lines =
        table::table(&["Mbit/s", "transport", "alone", "drops", "beside", "CUBIC", "kept"]);
    for one in &found {
        lines.add_row([
            one.mbps.to_string(),
            one.carrier.name().into(),
            format!("{:.3}", one.used),
            format!("{:.1} %", 100.0 * one.dropped),
            format!("{:.2}", one.beside[0]),
            format!("{:.2}", one.beside[1]),
            format!("{:.2}", one.kept),
        ]);
    }
    table::align(&mut lines, &[0, 2, 3, 4, 5, 6]);
    let rtt = RTT.as_millis();
    findings.say(&format!("Between hub and egress, {rtt} ms, means of {} runs:", seeds.runs));
    findings.say(&format!("{}\n", lines.trim_fmt()));
    for one in found.iter().filter(|it| it.carrier == Carrier::Learned) {
        findings.at_least(&format!("part of {} Mbit/s", one.mbps), one.used, MIN_USED);
        let what = format!("CUBIC on {} Mbit/s, of its share", one.mbps);
        findings.at_least(&what, one.kept, MIN_KEPT);
    }
    Ok(())
}
