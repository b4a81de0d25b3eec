//! The whole controller, over the reports of a simulated path.

use super::*;

const SEGMENT: usize = 1000;
const RTT: Duration = Duration::from_millis(600);

/// A controller, and the packets it sent, as a path records them.
struct Rig {
    control: Congestion,
    sent: Vec<Duration>,
    judged: usize,
    now: Duration,
    channel_loss: f64,
}

impl Rig {
    fn new(saved: Option<Saved>) -> Self {
        let control = Congestion::new(SEGMENT, saved, Duration::ZERO);
        Self { control, sent: Vec::new(), judged: 0, now: Duration::ZERO, channel_loss: 0.0 }
    }

    /// Sends up to `packets` packets, as many as the window permits. Returns their number.
    fn send(&mut self, packets: usize) -> usize {
        let before = self.sent.len();
        while self.sent.len() - before < packets && self.control.is_open() {
            self.control.sent(SEGMENT);
            self.sent.push(self.now);
        }
        if !self.control.is_open() {
            self.control.held_back(self.now);
        }
        self.sent.len() - before
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
    }

    /// Reports the next `packets` packets: the oldest `lost` were lost, and `marked` of the others
    /// were marked.
    fn report(&mut self, packets: usize, lost: usize, marked: usize) {
        let first = self.judged;
        self.judged += packets;
        let largest = self.judged - 1;
        self.control.reported(&ReportNews {
            now: self.now,
            sample: Some(RTT),
            srtt: RTT,
            largest: largest as u64,
            largest_sent: self.sent[largest],
            next: self.sent.len() as u64,
            delivered_bytes: ((packets - lost) * SEGMENT) as u64,
            lost_bytes: (lost * SEGMENT) as u64,
            lost_sent: (lost > 0).then(|| self.sent[first + lost - 1]),
            marked_sent: (marked > 0).then(|| self.sent[first + marked - 1]),
            judged: packets as u64,
            lost: lost as u64,
            channel_loss: self.channel_loss,
            is_clear: false,
            is_full: false,
            starved: if packets - lost == 1 && lost > 1 {
                self.sent[largest - 1] - self.sent[first]
            } else {
                Duration::ZERO
            },
            persistent: RTT * 3,
        });
    }

    /// Plays a round trip without losses, reported in eighths.
    fn round(&mut self) {
        let mut left = self.sent.len() - self.judged;
        for part in (1..=8).rev() {
            self.pass(RTT / 8);
            let packets = left.div_ceil(part);
            if packets > 0 {
                self.report(packets, 0, 0);
                left -= packets;
            }
            self.send(usize::MAX);
        }
    }

    fn window(&self) -> usize {
        self.control.window_bytes() as usize / SEGMENT
    }
}

/// Returns a rig whose window was filled for some round trips.
fn running() -> Rig {
    let mut rig = Rig::new(None);
    assert_eq!(rig.send(usize::MAX), 10, "the initial window");
    for _ in 0..4 {
        rig.round();
    }
    rig
}

#[test]
fn slow_start_doubles_and_the_flight_never_exceeds_the_window() {
    let mut rig = Rig::new(None);
    rig.send(usize::MAX);
    for doublings in 1..6 {
        rig.round();
        assert_eq!(rig.window(), 10 << doublings);
        assert_eq!(rig.sent.len() - rig.judged, rig.window(), "all of it is used");
    }
}

#[test]
fn many_losses_of_one_round_trip_are_one_event_and_the_next_is_another() {
    let mut rig = running();
    let before = rig.window();
    rig.pass(RTT);
    rig.report(40, 3, 0);
    let lowered = (before - 20) * 7 / 10;
    assert_eq!(rig.window(), lowered, "0.7 of what was in flight in the middle of the report");
    rig.report(40, 5, 0);
    assert_eq!(rig.window(), lowered, "sent before the window was lowered");
    rig.report(rig.sent.len() - rig.judged, 0, 0);
    assert_eq!(rig.window(), lowered, "earlier packets do not raise it either");
    rig.pass(Duration::from_millis(1));
    rig.send(usize::MAX);
    rig.pass(RTT);
    rig.report(10, 1, 0);
    assert_eq!(rig.window(), (lowered - 5) * 7 / 10);
}

#[test]
fn losses_that_the_channel_explains_are_not_congestion() {
    let mut rig = running();
    rig.channel_loss = 0.05;
    rig.round();
    let before = rig.window();
    rig.pass(RTT);
    rig.report(40, 2, 0);
    assert!(rig.window() >= before, "as many as the channel loses");
    rig.report(40, 20, 0);
    assert!(rig.window() < before * 8 / 10, "many more");
}

#[test]
fn a_mark_is_congestion_whatever_the_channel_loses() {
    let mut rig = running();
    rig.channel_loss = 0.05;
    rig.round();
    let before = rig.window();
    rig.pass(RTT);
    rig.report(40, 0, 1);
    assert!(rig.window() < before * 8 / 10);
}

#[test]
fn slow_start_resumes_once_its_end_shows_to_be_the_channels() {
    let mut rig = running();
    rig.pass(RTT);
    rig.report(40, 1, 0);
    rig.pass(Duration::from_millis(1));
    rig.send(usize::MAX);
    let lowered = rig.window();
    rig.round();
    assert!(rig.window() < lowered * 11 / 10, "congestion avoidance");
    rig.channel_loss = 0.02;
    rig.round();
    rig.round();
    assert!(rig.window() > lowered * 2, "{} from {lowered}", rig.window());
}

#[test]
fn a_mark_counts_like_a_loss() {
    let mut rig = running();
    let lowered = (rig.window() - 20) * 7 / 10;
    rig.pass(RTT);
    rig.report(40, 0, 7);
    assert_eq!(rig.window(), lowered);
    rig.report(40, 0, 9);
    assert_eq!(rig.window(), lowered);
}

#[test]
fn an_unused_window_does_not_grow_and_is_halved_later() {
    let mut rig = running();
    rig.round();
    let window = rig.window();
    let left = rig.sent.len() - rig.judged;
    rig.pass(RTT);
    rig.report(left, 0, 0);
    let window_at_rest = rig.window();
    assert!(window_at_rest <= window * 2);
    for _ in 0..100 {
        rig.pass(RTT * 2);
        rig.send(2);
        rig.pass(RTT);
        rig.report(2, 0, 0);
    }
    assert_eq!(rig.window(), window_at_rest, "3 minutes with two packets each second");
    rig.pass(UNUSED_LIFETIME);
    rig.send(2);
    rig.pass(RTT);
    rig.report(2, 0, 0);
    assert_eq!(rig.window(), window_at_rest / 2);
}

#[test]
fn a_silence_restarts_from_two_packets_and_its_losses_count_once() {
    let mut rig = running();
    let before = rig.window();
    rig.pass(RTT * 4);
    rig.control.on_timeout();
    assert_eq!(rig.window(), 2);
    assert!(!rig.control.is_open());
    rig.control.allow_probes(1);
    assert_eq!(rig.send(10), 1, "a probe is sent nevertheless");
    rig.pass(RTT);
    rig.control.on_peer_returned(rig.now);
    let left = rig.sent.len() - rig.judged;
    rig.report(left, left - 1, 0);
    assert_eq!(rig.window(), 2);
    rig.pass(Duration::from_millis(1));
    rig.send(usize::MAX);
    for _ in 0..8 {
        rig.round();
    }
    assert!(rig.window() > before * 7 / 10, "back to where it was lowered to, then on");
    assert!(rig.window() < before * 8 / 10);
}

#[test]
fn persistent_congestion_restarts_from_two_packets() {
    let mut rig = running();
    rig.pass(RTT);
    rig.report(1, 0, 0);
    for _ in 0..5 {
        rig.control.allow_probes(1);
        rig.send(1);
        rig.pass(RTT);
    }
    let left = rig.sent.len() - rig.judged;
    rig.report(left, left - 1, 0);
    assert_eq!(rig.window(), 2);
}

#[test]
fn the_pace_follows_the_window() {
    let mut rig = running();
    let window_bps = |rig: &Rig| rig.window() as u64 * 8000 * 10 / 6;
    let pace = |rig: &Rig| rig.control.pacing_rate(RTT).bps();
    assert!(pace(&rig).abs_diff(window_bps(&rig) * 2) < 10_000);
    rig.pass(RTT);
    rig.report(40, 1, 0);
    assert!(pace(&rig).abs_diff(window_bps(&rig) * 5 / 4) < 20_000);
    assert!(rig.control.pacing_rate(Duration::ZERO).bps() > 0);
}

#[test]
fn a_path_that_drops_ecn_capable_packets_gets_no_more_of_them() {
    let mut rig = Rig::new(None);
    assert!(rig.control.marks_ect());
    rig.send(10);
    rig.control.on_timeout();
    assert!(!rig.control.marks_ect());
    let mut rig = running();
    rig.control.on_timeout();
    assert!(rig.control.marks_ect(), "it has proved itself");
}

#[test]
fn the_window_jumps_to_half_of_the_remembered_one_paced_over_a_round_trip() {
    let until = Duration::from_secs(900);
    let saved = Saved { window_bytes: 400_000, rtt: RTT, until };
    let mut rig = Rig::new(Some(saved));
    rig.send(usize::MAX);
    rig.pass(RTT);
    rig.report(10, 0, 0);
    assert_eq!(rig.window(), 200);
    assert!(rig.control.pacing_rate(RTT).bps().abs_diff(200 * 8000 * 10 / 6) < 10_000);
    assert_eq!(rig.send(usize::MAX), 200);
    for _ in 0..2 {
        rig.round();
    }
    assert!(rig.window() > 200, "validated, it goes on in slow start");
}

#[test]
fn a_jump_too_far_is_taken_back() {
    let until = Duration::from_secs(900);
    let saved = Saved { window_bytes: 400_000, rtt: RTT, until };
    let mut rig = Rig::new(Some(saved));
    rig.send(usize::MAX);
    rig.pass(RTT);
    rig.report(10, 0, 0);
    assert_eq!(rig.send(usize::MAX), 200);
    rig.pass(RTT);
    rig.report(50, 30, 0);
    assert_eq!(rig.window(), 10, "half of the 20 that came through, or the initial window");
    rig.report(150, 110, 0);
    assert_eq!(rig.window(), 10);
    rig.pass(Duration::from_millis(1));
    rig.send(usize::MAX);
    for _ in 0..4 {
        rig.round();
    }
    // 60 were delivered: slow start ends at 0.7 of them.
    assert!((42..50).contains(&rig.window()), "{}", rig.window());
}
