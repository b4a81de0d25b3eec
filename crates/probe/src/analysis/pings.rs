//! Latency and loss of each target.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::clock::Moment;
use crate::loss::{WINDOW_S, Window};
use crate::ping::Ping;
use crate::target::{Method, Side};

/// A target as its pings reached it. Each method is a row of its own, because a proxy may answer one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetKey {
    /// Name.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// Method.
    pub method: Method,
}

/// Pings of all targets.
#[derive(Debug, Default)]
pub struct Pings {
    /// Figures by target and method.
    pub targets: BTreeMap<TargetKey, TargetFigures>,
    /// Smallest round-trip time of ICMP and UDP to far targets, in microseconds.
    pub minimum_us: Option<u64>,
    /// The same in quiet windows.
    pub quiet_minimum_us: Option<u64>,
    /// Replies to pings that had been counted as lost.
    pub stragglers: u64,
}

/// Figures of one target and method.
#[derive(Debug)]
pub struct TargetFigures {
    /// Position.
    pub side: Side,
    /// Round-trip times in microseconds, in order of arrival.
    pub rtts_us: Vec<u64>,
    /// All pings, counted by their fate.
    pub total: Window,
    /// Windows by session and number.
    pub windows: BTreeMap<(usize, u64), WindowFigures>,
    /// Largest delay of a send after its time, in microseconds.
    pub start_error_us: u64,
}

/// A window with its round-trip times.
#[derive(Clone, Debug, Default)]
pub struct WindowFigures {
    /// Pings, counted by their fate.
    pub counts: Window,
    /// Wall clock at the first ping, in microseconds since 1970.
    pub wall_us: i64,
    /// Round-trip times in microseconds.
    pub rtts_us: Vec<u64>,
}

impl Pings {
    pub(super) fn add(
        &mut self,
        session: usize,
        since_start_us: u64,
        side: Side,
        quiet: bool,
        began: Moment,
        ping: &Ping,
    ) {
        if ping.scout {
            return;
        }
        let (name, address, method) = (ping.target.clone(), ping.address, ping.method);
        let figures =
            self.targets.entry(TargetKey { name, address, method }).or_insert_with(|| {
                let (rtts_us, windows) = (Vec::new(), BTreeMap::new());
                TargetFigures {
                    side,
                    rtts_us,
                    total: Window::default(),
                    windows,
                    start_error_us: 0,
                }
            });
        figures.total.count(&ping.outcome);
        figures.start_error_us = figures.start_error_us.max(ping.start_error_us);
        let number = since_start_us / (WINDOW_S * 1_000_000);
        let window = figures.windows.entry((session, number)).or_insert_with(|| WindowFigures {
            wall_us: began.wall_us,
            ..WindowFigures::default()
        });
        window.counts.count(&ping.outcome);
        let Some(rtt_us) = ping.outcome.rtt_us() else { return };
        figures.rtts_us.push(rtt_us);
        window.rtts_us.push(rtt_us);
        if side == Side::Far && !matches!(method, Method::Tcp { .. }) {
            let lower = |known: Option<u64>| Some(known.map_or(rtt_us, |known| known.min(rtt_us)));
            self.minimum_us = lower(self.minimum_us);
            if quiet {
                self.quiet_minimum_us = lower(self.quiet_minimum_us);
            }
        }
    }

    /// The target that stands for the access: the far one with the most replies.
    pub fn main(&self) -> Option<(&TargetKey, &TargetFigures)> {
        let far = self.targets.iter().filter(|(_, figures)| figures.side == Side::Far);
        far.max_by_key(|(_, figures)| figures.rtts_us.len()).filter(|(_, f)| !f.rtts_us.is_empty())
    }
}

impl TargetFigures {
    /// Round-trip times in order of size.
    pub fn sorted(&self) -> Vec<u64> {
        let mut sorted = self.rtts_us.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Loss of each window with pings, as a share, in order of size.
    pub fn window_losses(&self) -> Vec<f64> {
        let mut losses: Vec<f64> =
            self.windows.values().filter_map(|window| window.counts.loss()).collect();
        losses.sort_by(f64::total_cmp);
        losses
    }
}
