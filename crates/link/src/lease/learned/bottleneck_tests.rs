//! A learner in front of a bottleneck. It must not send much more than the path carries to peers that lie
//! about arrivals, and must not forget the rate while little is sent.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::BitRate;

use super::{ArrivalSample, Learner};
use crate::lease::Observation;

const PACKET: u64 = 1500;
const MS: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(300);
const QUEUE: Duration = Duration::from_millis(500);
const LINK_BPS: f64 = 8e6;
const REPORT_EVERY: u64 = 75;

/// A lie about a packet sent at the first time that arrived at the second one.
type Lie = fn(Duration, Duration) -> Duration;

struct Packet {
    sent: Duration,
    arrived: Option<Duration>,
    total_bytes: u64,
}

/// A drop-tail bottleneck, a learner in front of it, and a peer that lies.
struct Rig {
    learner: Learner,
    /// Rate at which data comes.
    demand_bps: f64,
    lie: Lie,
    /// Share of the packets that the peer admits at most.
    admitted: f64,
    now: Duration,
    free_at: Duration,
    under_way: VecDeque<Packet>,
    sent_bytes: u64,
    credit_bytes: f64,
    admitted_packets: f64,
}

impl Rig {
    fn new(lie: Lie, admitted: f64) -> Self {
        let (cap, now) = (BitRate::from_bps(100_000_000_000), Duration::from_secs(1));
        Self {
            learner: Learner::new(cap, 0, None, 2 * DELAY, now),
            demand_bps: f64::INFINITY,
            lie,
            admitted,
            now,
            free_at: now,
            under_way: VecDeque::new(),
            sent_bytes: 0,
            credit_bytes: 0.0,
            admitted_packets: 0.0,
        }
    }

    /// Bytes sent in `seconds` ÷ those that the link carries.
    fn run(&mut self, seconds: u64) -> f64 {
        let before = self.sent_bytes;
        for ms in 0..seconds * 1000 {
            self.now += MS;
            self.learner.handle_timeout(self.now);
            self.send();
            if ms % REPORT_EVERY == 0 {
                self.report();
            }
        }
        8.0 * (self.sent_bytes - before) as f64 / (LINK_BPS * seconds as f64)
    }

    fn send(&mut self) {
        let rate = (self.learner.rate(self.now).bps() as f64).min(self.demand_bps);
        self.credit_bytes = (self.credit_bytes + rate / 8e3).min(rate / 8e3 + PACKET as f64);
        while self.credit_bytes >= PACKET as f64 && !self.learner.holds_data() {
            self.credit_bytes -= PACKET as f64;
            self.sent_bytes += PACKET;
            let begins = self.free_at.max(self.now);
            let is_dropped = begins - self.now > QUEUE;
            if !is_dropped {
                self.free_at = begins + Duration::from_secs_f64(8.0 * PACKET as f64 / LINK_BPS);
            }
            let arrived = (!is_dropped).then_some(self.free_at + DELAY);
            let (sent, total_bytes) = (self.now, self.sent_bytes);
            self.under_way.push_back(Packet { sent, arrived, total_bytes });
            self.learner.sent(PACKET as usize, self.now);
        }
    }

    /// Reports what arrived at least one way before now.
    fn report(&mut self) {
        let arrived_by = self.now - DELAY;
        let is_old = |packet: &Packet| packet.arrived.is_some_and(|at| at <= arrived_by);
        let Some(newest) = self.under_way.iter().rposition(is_old) else { return };
        let (mut samples, mut lost, mut bytes) = (Vec::new(), 0, 0);
        let packets: Vec<Packet> = self.under_way.drain(..=newest).collect();
        let judged = packets.len() as u64;
        for packet in packets {
            bytes += PACKET;
            self.admitted_packets += self.admitted;
            let admits = self.admitted_packets >= 1.0;
            match packet.arrived.filter(|_| admits) {
                None => lost += 1,
                Some(arrived) => {
                    self.admitted_packets -= 1.0;
                    let arrived = (self.lie)(packet.sent, arrived);
                    let Packet { sent, total_bytes, .. } = packet;
                    samples.push(ArrivalSample { sent, arrived, total_bytes });
                }
            }
        }
        let Some(last) = samples.last().copied() else { return };
        let step = samples.len().div_ceil(16);
        let samples: Vec<ArrivalSample> =
            samples.iter().rev().step_by(step).rev().copied().collect();
        let seen = Observation {
            now: self.now,
            rtt: 2 * DELAY,
            sent_at: last.sent,
            arrived: last.arrived,
            judged,
            lost,
            judged_bytes: bytes,
            in_flight_bytes: self.sent_bytes - last.total_bytes,
            longest_loss: 1,
        };
        self.learner.observe(&seen, &samples);
    }
}

fn truth(_: Duration, arrived: Duration) -> Duration {
    arrived
}

/// Lies begin once the rate is known.
const HONEST: Duration = Duration::from_secs(4);

fn no_queue(sent: Duration, arrived: Duration) -> Duration {
    if sent < HONEST { arrived } else { sent + DELAY }
}

fn slow_clock(_: Duration, arrived: Duration) -> Duration {
    arrived / 1000
}

fn clock_that_slows_down(sent: Duration, arrived: Duration) -> Duration {
    if sent < HONEST { arrived } else { HONEST + DELAY + (arrived - HONEST) / 1000 }
}

fn stopped_clock(sent: Duration, arrived: Duration) -> Duration {
    if sent < HONEST { arrived } else { HONEST + 2 * DELAY }
}

#[test]
fn a_lie_about_times_gains_little() {
    for (name, lie, most) in [
        ("truth", truth as Lie, 1.02),
        ("no queue", no_queue, 1.4),
        ("slow clock", slow_clock, 1.4),
        ("a clock that slows down", clock_that_slows_down, 1.4),
        ("stopped clock", stopped_clock, 1.4),
    ] {
        let mut rig = Rig::new(lie, 1.0);
        let first = rig.run(10);
        let later = rig.run(110);
        println!("{name}: {first:.3}, then {later:.3}");
        assert!(later <= most && first <= 2.0 * most, "{name}: {first:.3}, then {later:.3}");
    }
}

#[test]
fn a_lie_about_losses_gains_what_it_hides() {
    for admitted in [0.8, 0.5, 0.2] {
        let mut rig = Rig::new(no_queue, admitted);
        let first = rig.run(10);
        let later = rig.run(110);
        println!("{admitted} admitted: {first:.3}, then {later:.3}");
        assert!(later <= 3.4, "{admitted} admitted: {later:.3}");
    }
}

/// The path is later by more than a queue that is tolerated in one second of five.
fn sometimes_late(sent: Duration, arrived: Duration) -> Duration {
    let is_late = sent >= HONEST * 3 && sent.as_secs().is_multiple_of(5);
    if is_late { arrived + Duration::from_millis(40) } else { arrived }
}

#[test]
fn a_path_that_is_late_while_little_is_sent_has_the_rate_of_before() {
    for demand_bps in [8e3, 50e3, 500e3, 2e6] {
        let mut rig = Rig::new(sometimes_late, 1.0);
        rig.run(10);
        rig.demand_bps = demand_bps;
        rig.run(60);
        let kept = rig.learner.capacity().unwrap().bps() as f64 / LINK_BPS;
        assert!(kept > 0.9, "{kept:.3} of the rate are left after {demand_bps} bit/s");
    }
}
