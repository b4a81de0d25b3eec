//! Latency and loss along flight tracks.

use std::collections::BTreeMap;

use super::Analysis;
use crate::loss::WINDOW_S;
use crate::statistics::quantile;
use crate::track::{Phase, Position};

/// A window of pings with its position.
#[derive(Clone, Debug)]
pub struct Place {
    /// Middle of the window, in microseconds since 1970.
    pub wall_us: i64,
    /// Position at that time.
    pub position: Position,
    /// Median round-trip time in microseconds, if there was a reply.
    pub median_us: Option<u64>,
    /// Loss as a share.
    pub loss: Option<f64>,
}

/// Figures of a phase of flight.
#[derive(Clone, Debug, Default)]
pub struct PhaseFigures {
    /// Windows.
    pub windows: u64,
    /// Round-trip times in microseconds.
    pub rtts_us: Vec<u64>,
    /// Pings sent, and those lost.
    pub pings: (u64, u64),
}

impl Analysis {
    /// Windows of the main target that lie on a track, in order of time. The first track that covers a time
    /// counts.
    pub fn along(&self) -> Vec<Place> {
        let mut places = self.on_tracks(|wall_us, position, window| {
            let mut sorted = window.rtts_us.clone();
            sorted.sort_unstable();
            let (median_us, loss) = (quantile(&sorted, 0.5), window.counts.loss());
            Place { wall_us, position, median_us, loss }
        });
        places.sort_by_key(|place| place.wall_us);
        places
    }

    /// Figures of the main target by phase of flight; `None` is for positions without an altitude.
    pub fn phases(&self) -> BTreeMap<Option<Phase>, PhaseFigures> {
        let mut phases: BTreeMap<Option<Phase>, PhaseFigures> = BTreeMap::new();
        self.on_tracks(|_, position, window| {
            let figures = phases.entry(position.phase).or_default();
            figures.windows += 1;
            figures.rtts_us.extend(&window.rtts_us);
            figures.pings.0 += u64::from(window.counts.sent);
            figures.pings.1 += u64::from(window.counts.lost);
        });
        phases
    }

    fn on_tracks<T>(
        &self,
        mut take: impl FnMut(i64, Position, &super::WindowFigures) -> T,
    ) -> Vec<T> {
        let Some((_, figures)) = self.pings.main() else { return Vec::new() };
        let mut taken = Vec::new();
        for window in figures.windows.values() {
            let middle = window.wall_us.saturating_add(WINDOW_S as i64 * 500_000);
            let position = self.tracks.iter().find_map(|track| track.position(middle));
            taken.extend(position.map(|position| take(middle, position, window)));
        }
        taken
    }
}
