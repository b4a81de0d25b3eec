//! Congestion control for a path without a granted rate: CUBIC (RFC 9438) with HyStart++ (RFC
//! 9406), paced, and with Careful Resume (RFC 9959).
//!
//! It works on the *packets* in reports. A lost packet counts as a loss even if repairs recovered
//! it or it was retransmitted (RFC 9265, section 3: coding must not hide congestion). All packets
//! count: source symbols, repairs and retransmissions. The only exception are packets that nobody
//! acknowledges, such as a lone report (RFC 9002, section 2).
//!
//! Losses that the channel explains by itself are not congestion ([`Allowance`]). Without a proven
//! loss of the channel, every loss is.
//!
//! Pure: reports and the time in, a window and a pacing rate out.

mod allowance;
mod cubic;
mod hystart;
mod resume;

use std::time::Duration;

use bentpipe_units::BitRate;

pub use allowance::Allowance;
pub use cubic::Cubic;
use hystart::{Growth, HyStart};
use resume::{Phase, Report, Resume, Step};
pub use resume::{Saved, is_same_path};

/// Pacing rate in percent of a window per round trip, so that the window is used …
const GAIN_PERCENT: u64 = 125;
/// … and in slow start, where the window doubles each round trip.
const SLOW_START_GAIN_PERCENT: u64 = 200;
/// Packets that may be sent at once after a pause: the initial window (RFC 9002, section 7.7).
pub const BURST_PACKETS: usize = 10;
/// Probe timeouts without a delivery that make persistent congestion (RFC 9002, section 7.6.1).
pub const PERSISTENT_TIMEOUTS: u32 = 3;
/// Rate that losses without a queue do not lower, at most the initial window in a round trip: two
/// calls. Below it, the channel's own loss would not be learned for minutes.
const MIN_CLEAR_RATE: BitRate = BitRate::from_bps(160_000);
/// Time after which an unused window is halved (RFC 7661, section 4.1: 5 minutes).
const UNUSED_LIFETIME: Duration = Duration::from_secs(300);
/// One report of the peer about packets of this path.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportNews {
    /// Time of the report.
    pub now: Duration,
    /// Round trip of the newest packet, and the smoothed round trip.
    pub sample: Option<Duration>,
    pub srtt: Duration,
    /// The newest packet judged, its sending time, and the number of the next packet.
    pub largest: u64,
    pub largest_sent: Duration,
    pub next: u64,
    /// Bytes of delivered packets, and of lost ones. Their sum is no longer in flight.
    pub delivered_bytes: u64,
    pub lost_bytes: u64,
    /// Sending times of the newest packet that was lost, and of the newest one that was marked.
    pub lost_sent: Option<Duration>,
    pub marked_sent: Option<Duration>,
    /// Packets judged, and the lost ones among them, without MTU probes.
    pub judged: u64,
    pub lost: u64,
    /// Share of packets that the channel itself loses; zero if unknown.
    pub channel_loss: f64,
    /// The packets of this report met no queue.
    pub is_clear: bool,
    /// The newest packet met a queue of half a round trip or more.
    pub is_full: bool,
    /// Longest period in which everything sent was lost.
    pub starved: Duration,
    /// Duration of persistent congestion: [`PERSISTENT_TIMEOUTS`] probe timeouts.
    pub persistent: Duration,
}

/// Congestion controller of one path.
#[derive(Debug, Clone)]
pub struct Congestion {
    segment_bytes: u64,
    cubic: Cubic,
    allowance: Allowance,
    /// The channel's loss was known once.
    knows_channel: bool,
    /// `None` once slow start has ended by a queue or congestion.
    hystart: Option<HyStart>,
    resume: Resume,
    in_flight: u64,
    /// Time before which congestion among sent packets has been answered.
    recovery: Option<Duration>,
    /// Time at which the window last delayed a packet.
    limited_at: Option<Duration>,
    last_report: Duration,
    /// Packets that may be sent although the window is full (RFC 9002, section 7.5).
    probes: u32,
    min_rtt: Option<Duration>,
    ecn: Ecn,
}

/// ECN validation of our packets (RFC 9000, section 13.4.2). A path that marks everything looks
/// like a queue that stays full, so that its marks are believed. Otherwise we would take the share
/// of flows that react to their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ecn {
    /// No ECN-capable packet has been delivered yet.
    Untested,
    Capable,
    /// Nothing was delivered at first: the path may drop ECN-capable packets.
    Failed,
}

impl Congestion {
    /// Creates a controller for packets of at most `segment_bytes`, with what is remembered of the
    /// path.
    pub fn new(segment_bytes: usize, saved: Option<Saved>, now: Duration) -> Self {
        Self {
            segment_bytes: segment_bytes as u64,
            cubic: Cubic::new(segment_bytes),
            allowance: Allowance::default(),
            knows_channel: false,
            hystart: Some(HyStart::new()),
            resume: Resume::new(saved),
            in_flight: 0,
            recovery: None,
            limited_at: None,
            last_report: now,
            probes: 0,
            min_rtt: None,
            ecn: Ecn::Untested,
        }
    }

    /// Bytes that may be in flight.
    pub fn window_bytes(&self) -> u64 {
        self.cubic.window_bytes()
    }

    /// Returns `true` if a full packet may be sent.
    pub fn is_open(&self) -> bool {
        self.probes > 0 || self.in_flight + self.segment_bytes <= self.cubic.window_bytes()
    }

    /// Notes that the window delays a packet.
    pub fn held_back(&mut self, now: Duration) {
        self.limited_at = Some(now);
    }

    /// Returns `true` if packets should be sent as ECN-capable.
    pub fn marks_ect(&self) -> bool {
        self.ecn != Ecn::Failed
    }

    /// Pacing rate at a smoothed round trip of `srtt`.
    pub fn pacing_rate(&self, srtt: Duration) -> BitRate {
        let percent = match self.resume.phase() {
            Phase::Unvalidated { .. } => 100, // the jump is spread over a round trip
            _ if self.cubic.in_slow_start() => SLOW_START_GAIN_PERCENT,
            _ => GAIN_PERCENT,
        };
        let bits = u128::from(self.cubic.window_bytes()) * 8 * u128::from(percent) / 100;
        let bps = bits * 1_000_000_000 / srtt.as_nanos().max(1_000_000);
        BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    /// Counts a sent packet.
    pub fn sent(&mut self, bytes: usize) {
        self.in_flight += bytes as u64;
        self.probes = self.probes.saturating_sub(1);
    }

    /// Discounts a packet so old that its record was dropped.
    pub fn forgotten(&mut self, bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(bytes as u64);
    }

    /// Permits `packets` packets in spite of the window, after a probe timeout.
    pub fn allow_probes(&mut self, packets: u32) {
        self.probes = packets;
    }

    /// Handles a retransmission timeout: the peer is silent although much was sent (RFC 9438,
    /// section 4.8).
    pub fn on_timeout(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        if self.ecn == Ecn::Untested {
            self.ecn = Ecn::Failed;
        }
        self.collapse();
    }

    /// Handles the end of a silence, which has already answered all losses until now.
    pub fn on_peer_returned(&mut self, now: Duration) {
        self.recovery = Some(now);
    }

    /// Handles a report.
    pub fn reported(&mut self, news: &ReportNews) {
        let before = self.in_flight;
        let judged = news.delivered_bytes + news.lost_bytes;
        self.in_flight = self.in_flight.saturating_sub(judged);
        self.min_rtt = [self.min_rtt, news.sample].into_iter().flatten().min();
        if self.ecn == Ecn::Untested && news.delivered_bytes > 0 {
            self.ecn = Ecn::Capable;
        }
        let limited = self.account_for_idleness(news, before);
        let congested = self.is_congested(news);
        let step = self.resume.reported(&self.seen(news, congested, limited));
        if congested && news.starved >= news.persistent {
            self.collapse();
            self.recovery = Some(news.now);
        } else {
            self.follow(step, congested, limited, news);
        }
        self.resume_slow_start(congested, news);
        self.last_report = news.now;
    }

    /// Returns `true` if a packet was marked, if more were lost than the channel explains, or if there
    /// is a long queue on a channel with losses, and this is not answered yet.
    fn is_congested(&mut self, news: &ReportNews) -> bool {
        let packets = self.cubic.window_bytes() as f64 / self.segment_bytes as f64;
        let exceeds = self.allowance.exceeds(news.judged, news.lost, news.channel_loss, packets);
        let lost = news.lost_sent.filter(|_| exceeds);
        // Without an answer to most losses, a long queue would always be full.
        let queued = (news.is_full && news.channel_loss > 0.0).then_some(news.largest_sent);
        lost.max(news.marked_sent).max(queued).is_some_and(|sent| self.is_new(sent))
    }

    /// Returns to slow start once the channel's loss is known: losses that ended it before were not
    /// congestion. The queue is short then, because only a short queue shows the channel's loss.
    fn resume_slow_start(&mut self, congested: bool, news: &ReportNews) {
        if news.channel_loss == 0.0 || self.knows_channel {
            return;
        }
        self.knows_channel = true;
        if !congested && self.resume.phase() == Phase::Normal {
            self.cubic.resume_slow_start();
            self.hystart = Some(HyStart::new());
        }
    }

    fn seen(&self, news: &ReportNews, congested: bool, limited: bool) -> Report {
        Report {
            now: news.now,
            rtt: self.min_rtt,
            largest: news.largest,
            next: news.next,
            delivered_bytes: news.delivered_bytes,
            congested,
            in_flight: self.in_flight,
            window_bytes: self.cubic.window_bytes(),
            limited,
            initial_bytes: self.cubic.initial_bytes(),
        }
    }

    fn follow(&mut self, step: Step, congested: bool, limited: bool, news: &ReportNews) {
        let judged = news.delivered_bytes + news.lost_bytes;
        match step {
            Step::Normal if congested => {
                self.recovery = Some(news.now);
                self.hystart = None;
                // Bytes in flight when the loss would have shown packet by packet: it is somewhere
                // in the report, in its middle on average.
                self.cubic.reduce(self.in_flight + judged / 2);
                if news.is_clear && news.marked_sent.is_none() {
                    let floor = MIN_CLEAR_RATE.bytes_in(news.srtt).min(self.cubic.initial_bytes());
                    self.cubic.keep_window(floor);
                }
            }
            Step::Normal => self.grow(limited, news),
            Step::Hold => {}
            Step::Window(bytes) => self.cubic.set_window(bytes),
            Step::Retreat(bytes) => {
                self.recovery = Some(news.now);
                self.hystart = None;
                self.cubic.set_window(bytes);
            }
            Step::Settle(pipe_bytes) => self.cubic.set_threshold(pipe_bytes),
        }
    }

    fn grow(&mut self, limited: bool, news: &ReportNews) {
        // Packets sent before the window was lowered say nothing about the lower window.
        if !limited || !self.is_new(news.largest_sent) {
            return;
        }
        if !self.cubic.in_slow_start() {
            return self.cubic.avoid(news.delivered_bytes, news.srtt, news.now);
        }
        let growth = match &mut self.hystart {
            Some(hystart) => hystart.reported(news.largest, news.next, news.sample),
            None => Growth::By(1),
        };
        match growth {
            Growth::By(divisor) => self.cubic.grow_exponentially(news.delivered_bytes, divisor),
            Growth::Over => {
                self.hystart = None;
                self.cubic.leave_slow_start();
            }
        }
    }

    /// Returns `true` if the window limited us within the last round trip. Otherwise it may not
    /// grow (RFC 9002, section 7.8), its clock stops, and after a long time it is halved.
    fn account_for_idleness(&mut self, news: &ReportNews, in_flight: u64) -> bool {
        let full = in_flight + self.segment_bytes > self.cubic.window_bytes();
        if full {
            self.limited_at = Some(news.now);
        }
        let since = news.now.saturating_sub(self.limited_at.unwrap_or_default());
        if self.limited_at.is_some() && since <= news.srtt {
            return true;
        }
        self.cubic.pause(news.now.saturating_sub(self.last_report));
        let unused = self.limited_at.get_or_insert(news.now);
        if news.now.saturating_sub(*unused) > UNUSED_LIFETIME {
            *unused = news.now.saturating_sub(news.srtt * 2);
            self.cubic.halve_unused();
        }
        false
    }

    fn is_new(&self, sent: Duration) -> bool {
        self.recovery.is_none_or(|recovery| sent > recovery)
    }

    fn collapse(&mut self) {
        self.cubic.collapse();
        self.resume.give_up();
        self.hystart = None;
    }
}

#[cfg(test)]
mod tests;
