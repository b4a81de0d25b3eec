//! Reports: the path that carries them, and their contents.

use std::time::Duration;

use super::path::Path;
use super::report::Pace;
use super::{CONFIGURED_PATH, Session};
use crate::lane::RecvLane;
use crate::wire::curve::MAX_CURVE_BYTES;
use crate::wire::frame;
use crate::wire::report::{MAX_RUNS, Report};

/// Every report of a path in this many goes on the path itself if another one is shorter. At eight
/// reports in a round trip that is one in four round trips.
const OWN_REPORTS: u64 = 32;
/// Round trips for which contents are kept for repairs after everything before them has arrived. Reports
/// tell the sender within one and a half that it need not repair them; further ones cover lost reports.
const CODED_ROUND_TRIPS: u32 = 3;
/// The minimum time, for short paths.
const MIN_CODED_AGE: Duration = Duration::from_millis(500);
/// Room reserved next to a report: a LEASE or a DEMAND (41 bytes), a RESPONSE (9), a SLIDE (12) and
/// a PING (1); on standby, a STANDBY (1) too, and with news of a path, a DOWN.
const NEXT_TO_REPORT_BYTES: usize = 63;

impl Session {
    /// Path of which the path in hand should carry a report now: its own, or that of a path whose
    /// packets would arrive later.
    pub(super) fn report_due(&self, now: Duration) -> Option<u8> {
        if self.path.reports.is_due(now) {
            return Some(self.path.id);
        }
        let others = self.others.iter().map(|path| &**path);
        let mut due = others.filter(|path| path.reports.is_due(now));
        due.find(|path| self.is_reported_here(path)).map(|path| path.id)
    }

    /// Returns `true` if the path in hand should carry the reports of another path: its packets
    /// arrive earlier, or more of them do. Every [`OWN_REPORTS`]th report goes on its own path, to show its round trip.
    fn is_reported_here(&self, of: &Path) -> bool {
        // A lost report costs more than a late one.
        let order = |path: &Path| (path.is_standby, path.is_lossy(), path.rtt.get());
        let is_earlier = order(&self.path) < order(of);
        let is_dead = !of.is_live();
        self.path.is_live()
            && (is_dead || (is_earlier && !of.reports.sent_count().is_multiple_of(OWN_REPORTS)))
    }

    /// Time at which the path in hand should carry a report.
    pub(super) fn report_at(&self) -> Option<Duration> {
        let others = self.others.iter().filter(|path| self.is_reported_here(path));
        others.filter_map(|path| path.reports.due()).chain(self.path.reports.due()).min()
    }

    /// Puts the report of `path` into the empty packet. Returns its length.
    pub(super) fn put_report(&mut self, path: u8, now: Duration) -> Option<usize> {
        let here = self.path.id;
        self.select(path);
        let report = self.report(now);
        let learns = self.peer_learns() || self.path.id != CONFIGURED_PATH;
        let curve = report.as_ref().and_then(|it| self.path.recorder.curve(it.largest));
        let curve = curve.filter(|_| learns);
        self.select(here);
        let curve = curve.filter(|_| self.path.affords_full());
        let mut report = report?;
        frame::put_report(&mut self.plaintext, &report);
        let beside = curve.as_ref().map_or(0, |_| MAX_CURVE_BYTES) + NEXT_TO_REPORT_BYTES;
        let beside = beside + usize::from(self.path.is_standby) + self.down_bytes();
        let room = self.path.affordable_plaintext() - beside;
        if self.plaintext.len() > room {
            self.plaintext.clear();
            report.shorten(room - 1);
            frame::put_report(&mut self.plaintext, &report);
        }
        if let Some(curve) = curve {
            frame::put_curve(&mut self.plaintext, &curve);
        }
        Some(self.plaintext.len())
    }

    pub(super) fn reported(&mut self, path: u8, bytes: u64, now: Duration) {
        let here = self.path.id;
        self.select(path);
        let pace = self.pace();
        self.path.reports.sent(bytes, pace, now);
        self.path.arrivals.reported();
        self.path.recorder.reported();
        self.select(here);
        self.counters.reports_sent += 1;
        self.counters.report_bytes += bytes;
        let age = (self.longest_round_trip() * CODED_ROUND_TRIPS).max(MIN_CODED_AGE);
        self.recv.iter_mut().for_each(|lane| lane.free_older(age, now));
    }

    pub(super) fn pace(&self) -> Pace {
        let (our_rate, peers_rate) = (self.path.pacer.rate(), self.peers_rate());
        Pace { rtt: self.path.rtt.get(), our_rate, peers_rate }
    }

    fn report(&self, now: Duration) -> Option<Report> {
        let (largest, at) = self.path.arrivals.newest()?;
        let mut runs_left = MAX_RUNS;
        let mut lane_report = |lane: &RecvLane| {
            let report = lane.report(self.path.id, runs_left)?;
            runs_left -= report.runs.len();
            Some(report)
        };
        Some(Report {
            path: self.path.id,
            largest,
            age: now.saturating_sub(at),
            arrived: at,
            late_by: self.path.arrivals.late_by(now),
            packets: self.path.arrivals.to_report(),
            marked: self.path.marked,
            lanes: self.recv.iter().filter_map(&mut lane_report).collect(),
        })
    }
}
