//! Radios that die and return, and cells with edges.

use std::time::Duration;

use bentpipe_link::{Class, Settings};

use super::bundle::{Death, EDGES};
use super::stage::{NEIGHBOUR, PATIENCE, READER, STEADY, Stage};
use crate::profile::Profile;
use crate::traffic::ENDLESS;

/// Time from a request to the death of a path.
const DEATH: Duration = Duration::from_millis(200);
/// Interval at which gaps are looked for, time for which, and the latest beginning of a gap that the
/// death causes. Later ones are those of the losses of a single path.
const TICK: Duration = Duration::from_millis(5);
const WATCHED: Duration = Duration::from_secs(10);
const CAUSED: Duration = Duration::from_secs(2);
/// Time for which a path is dead before it returns.
const DEAD: Duration = Duration::from_secs(20);
/// Time in which a path that returned should be in use again.
const RETURNED: Duration = Duration::from_secs(30);
/// Packet times in which two packets show that a path carries data again, and the share of its rate
/// over a round trip that counts as all of it.
const DATA_PACKET_TIMES: f64 = 4.0;
const FULL_SHARE: f64 = 0.9;
/// Bytes of the object whose path dies.
const REQUESTED_BYTES: u64 = 10_000;

/// Samples of a session and the bytes that it delivered; `None` if it broke.
type Samples = Option<(Vec<Option<f64>>, u64)>;

/// Longest time without a byte of a download that begins soon after now.
fn longest_gap(stage: &mut dyn Stage, flow: usize) -> Duration {
    let (mut read, mut at) = (stage.bytes_read(flow), stage.now());
    let (end, caused) = (at + WATCHED, at + CAUSED);
    let mut longest = Duration::ZERO;
    while stage.now() < end {
        stage.pass(TICK);
        let now = stage.now();
        if at <= caused {
            longest = longest.max(now - at);
        }
        if stage.bytes_read(flow) > read {
            (read, at) = (stage.bytes_read(flow), now);
        }
    }
    longest
}

/// Longest time without a byte that begins soon after an edge between two cells.
pub fn edges(stage: &mut dyn Stage) -> Samples {
    let flow = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    let mut longest = Duration::ZERO;
    for edge in EDGES {
        let wait = edge.checked_sub(stage.now())?;
        stage.pass(wait);
        longest = longest.max(longest_gap(stage, flow));
    }
    Some((vec![Some(longest.as_secs_f64())], stage.bytes_read(flow)))
}

/// Longest time without a byte of a download in `length` of a flight.
pub fn in_flight(stage: &mut dyn Stage, length: Duration) -> Samples {
    let flow = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    let (mut read, mut at) = (stage.bytes_read(flow), stage.now());
    let (end, mut longest) = (at + length, Duration::ZERO);
    while stage.now() < end {
        stage.pass(TICK);
        let now = stage.now();
        longest = longest.max(now - at);
        if stage.bytes_read(flow) > read {
            (read, at) = (stage.bytes_read(flow), now);
        }
    }
    Some((vec![Some(longest.as_secs_f64())], read))
}

/// Time that an object takes whose path dies after the request.
pub fn dies_after_request(stage: &mut dyn Stage, class: Class) -> Samples {
    let flow = stage.start(class, READER, REQUESTED_BYTES)?;
    let began = stage.now();
    stage.pass(DEATH);
    stage.kill(0, Death::Silent);
    let end = began + PATIENCE;
    while stage.bytes_read(flow) < REQUESTED_BYTES && stage.now() < end {
        stage.pass(TICK);
    }
    let came = stage.bytes_read(flow) >= REQUESTED_BYTES;
    let took = (stage.now() - began).as_secs_f64();
    Some((vec![came.then_some(took)], stage.bytes_read(flow)))
}

/// Longest time without a byte that begins soon after the death of a path.
pub fn dies_under_bulk(stage: &mut dyn Stage, path: usize, death: Death) -> Samples {
    let flow = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    stage.kill(path, death);
    let longest = longest_gap(stage, flow);
    Some((vec![Some(longest.as_secs_f64())], stage.bytes_read(flow)))
}

/// The return of a path.
#[derive(Debug, Default)]
pub struct Return {
    /// Time until it carried data.
    pub used_s: f64,
    /// Round trips from then until it carried its full rate.
    pub full_rtts: Option<f64>,
    /// Longest time without a byte of the download.
    pub gap_s: f64,
}

/// A figure of the return of a path that was dead for a while under a download.
pub fn returned(
    stage: &mut dyn Stage,
    (path, death): (usize, Death),
    link: &Profile,
    figure: impl Fn(&Return) -> Option<f64>,
) -> Samples {
    let flow = stage.start(Class::BestEffort, NEIGHBOUR, ENDLESS)?;
    stage.pass(STEADY);
    stage.kill(path, death);
    stage.pass(DEAD);
    let bps = link.link.forward.rate()?.bps() as f64;
    let packet_s = 8.0 * link_mtu() / bps;
    let (began, rtt_s) = (stage.now(), link.rtt().as_secs_f64());
    let offered = |stage: &mut dyn Stage| stage.sent_bytes(path) as f64;
    // Bytes offered to the path, by tick. The emulator takes time to set a carrier.
    let mut sent = vec![offered(stage)];
    stage.revive(path, death);
    let set = stage.now() - began;
    sent.resize(1 + (set.as_secs_f64() / TICK.as_secs_f64()) as usize, sent[0]);
    let (mut read, mut at, mut gap) = (stage.bytes_read(flow), began, Duration::ZERO);
    while stage.now() < began + RETURNED {
        stage.pass(TICK);
        sent.push(offered(stage));
        let now = stage.now();
        if now < began + WATCHED {
            gap = gap.max(now - at);
        }
        if stage.bytes_read(flow) > read {
            (read, at) = (stage.bytes_read(flow), now);
        }
    }
    let within = |from: usize, time_s: f64| {
        let end = from + (time_s / TICK.as_secs_f64()).ceil() as usize;
        sent.get(end).map(|bytes| bytes - sent[from])
    };
    let is_data = |from: &usize| {
        within(*from, DATA_PACKET_TIMES * packet_s).is_some_and(|it| it > 1.5 * link_mtu())
    };
    let used = (0..sent.len()).find(is_data)?;
    let is_full = |from: &usize| {
        within(*from, rtt_s).is_some_and(|bytes| 8.0 * bytes >= FULL_SHARE * bps * rtt_s)
    };
    let full = (used..sent.len()).find(is_full);
    let ticks_s = |ticks: usize| ticks as f64 * TICK.as_secs_f64();
    let full_rtts = full.map(|full| ticks_s(full - used) / rtt_s);
    let found = Return { used_s: ticks_s(used), full_rtts, gap_s: gap.as_secs_f64() };
    Some((vec![figure(&found)], read))
}

/// Bytes of a full packet.
fn link_mtu() -> f64 {
    Settings::default().mtu_bytes as f64
}
