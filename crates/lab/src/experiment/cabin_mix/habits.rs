//! Behaviour of passengers, each kind with its parameters and their sources.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_link::Class;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::result::Sample;
use crate::traffic::{Carry, ENDLESS, REQUEST_BYTES, Traffic};
use crate::workload::content::{Object, page_paths};

/// Number of a page's objects, which have the lengths of the lab's own pages: 490 KB.
pub const PAGE_OBJECTS: usize = 25;
/// Connections to one host, as in Chromium, Firefox and Safari.
const PAGE_CONNECTIONS: usize = 6;
/// Mean time from a page's end to the next request, exponentially distributed. The value is ours.
const PAGE_READING: Duration = Duration::from_secs(30);
/// Length of a video segment. Apple's HLS authoring specification asks for about 6 s.
const SEGMENT: Duration = Duration::from_secs(6);
/// Bytes of a segment: 1 Mbit/s, standard definition on a small screen. The value is ours.
pub const SEGMENT_BYTES: u64 = 750_000;
/// Mean time between two messages, exponentially distributed. The value is ours.
const MESSAGE_GAP: Duration = Duration::from_secs(20);
/// Size of a short text in its envelope and TLS record. The value is ours.
pub const MESSAGE_BYTES: u64 = 1_000;
/// Size of the confirmation of its arrival. The value is ours.
pub const RECEIPT_BYTES: u64 = 300;
/// Number of a heavy user's connections.
pub const HOG_CONNECTIONS: usize = 32;

/// Kind of passenger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads one page after another.
    Pages,
    /// Watches a film in segments.
    Video,
    /// Writes a message from time to time.
    Messages,
    /// Makes a call over UDP.
    Call,
    /// Downloads endlessly on one connection.
    Download,
    /// Downloads endlessly on [`HOG_CONNECTIONS`] connections.
    Hog,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Pages, Self::Video, Self::Messages, Self::Call, Self::Download, Self::Hog];

    /// Number of passengers of this kind among the fifty: our choice.
    pub const fn passengers(self) -> u32 {
        match self {
            Self::Pages => 22,
            Self::Video => 8,
            Self::Messages => 12,
            Self::Call => 4,
            Self::Download => 3,
            Self::Hog => 1,
        }
    }

    /// Name in tables and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Video => "video",
            Self::Messages => "messages",
            Self::Call => "call",
            Self::Download => "download",
            Self::Hog => "hog",
        }
    }

    /// Returns `true` if there is always data to send to the passenger.
    pub const fn is_backlogged(self) -> bool {
        matches!(self, Self::Download | Self::Hog)
    }
}

/// A passenger. A job is everything requested in one go: a page or a segment.
pub struct Passenger {
    pub kind: Kind,
    number: u32,
    rng: ChaCha8Rng,
    /// Start of the next job, unless one is in progress.
    next_at: Duration,
    job: Option<Job>,
    /// All streams so far.
    pub streams: Vec<usize>,
    /// Duration of every job that began during the measurement.
    pub took: Vec<Sample>,
    /// Time for which the film stalled during the measurement.
    pub stalled: Duration,
    /// Number of late segments.
    pub late: usize,
    /// Time at which the next segment is due, once the first has arrived.
    due: Option<Duration>,
}

/// Job in progress.
struct Job {
    began: Duration,
    /// Sizes of objects not requested yet. The first object of a page is requested alone.
    waiting: VecDeque<u64>,
    open: Vec<usize>,
    is_measured: bool,
    /// Maximum concurrent streams.
    parallel: usize,
}

impl Passenger {
    /// Starts at a random moment of its habit's interval.
    pub fn new(kind: Kind, number: u32, mut rng: ChaCha8Rng) -> Self {
        let gap = match kind {
            Kind::Pages => PAGE_READING,
            Kind::Messages => MESSAGE_GAP,
            Kind::Video => SEGMENT,
            Kind::Call | Kind::Download | Kind::Hog => Duration::ZERO,
        };
        let next_at = gap.mul_f64(rng.random());
        Self {
            kind,
            number,
            rng,
            next_at,
            job: None,
            streams: Vec::new(),
            took: Vec::new(),
            stalled: Duration::ZERO,
            late: 0,
            due: None,
        }
    }

    /// Opens endless downloads.
    pub fn settle(&mut self, cabin: &mut dyn Traffic) {
        let connections = match self.kind {
            Kind::Download => 1,
            Kind::Hog => HOG_CONNECTIONS,
            _ => return,
        };
        for _ in 0..connections {
            self.open(REQUEST_BYTES, ENDLESS, cabin);
        }
        self.next_at = Duration::MAX;
    }

    /// Time of its next spontaneous action.
    pub fn next_at(&self) -> Option<Duration> {
        let idle = self.job.is_none() && !self.kind.is_backlogged() && self.kind != Kind::Call;
        idle.then_some(self.next_at)
    }

    /// Does everything that is due now. A job that begins while `measured` is `true` counts.
    pub fn act(&mut self, cabin: &mut dyn Traffic, measured: bool) {
        let now = cabin.now();
        if self.next_at().is_some_and(|at| at <= now) {
            self.job = Some(self.begin(now, measured));
        }
        let Some(mut job) = self.job.take() else { return };
        job.open.retain(|&stream| !cabin.course(stream).is_done());
        if job.open.is_empty() && job.waiting.is_empty() {
            return self.end(&job, now);
        }
        let up = if self.kind == Kind::Messages { MESSAGE_BYTES } else { REQUEST_BYTES };
        if job.open.is_empty() {
            // The objects of a page are known once its document has arrived.
            job.parallel = if job.parallel == 0 { 1 } else { PAGE_CONNECTIONS };
        }
        while job.open.len() < job.parallel
            && let Some(down) = job.waiting.pop_front()
        {
            job.open.push(self.open(up, down, cabin));
        }
        self.job = Some(job);
    }

    /// Returns `true` if a job that counts is in progress.
    pub fn is_busy(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_measured)
    }

    /// Stops. A job in progress counts as cut off.
    pub fn stop(&mut self, now: Duration) {
        if let Some(job) = self.job.take().filter(|job| job.is_measured) {
            self.took.push(Sample::Cut((now - job.began).as_secs_f64()));
        }
    }

    fn begin(&mut self, began: Duration, is_measured: bool) -> Job {
        let waiting = match self.kind {
            Kind::Video => VecDeque::from([SEGMENT_BYTES]),
            Kind::Messages => VecDeque::from([RECEIPT_BYTES]),
            _ => {
                let paths = [format!("/page/{PAGE_OBJECTS}")].into_iter();
                let bytes = |path: String| Object::at(&path).map(|object| object.bytes());
                paths.chain(page_paths(PAGE_OBJECTS)).filter_map(bytes).collect()
            }
        };
        Job { began, waiting, open: Vec::new(), is_measured, parallel: 0 }
    }

    fn open(&mut self, up: u64, down: u64, cabin: &mut dyn Traffic) -> usize {
        let (class, passenger) = (Class::BestEffort, self.number);
        let stream = cabin.open(Carry { class, passenger, up, down });
        self.streams.push(stream);
        stream
    }

    fn end(&mut self, job: &Job, now: Duration) {
        if job.is_measured {
            self.took.push(Sample::Finished((now - job.began).as_secs_f64()));
        }
        self.next_at = match self.kind {
            Kind::Video => {
                self.show(job, now);
                now.max(job.began + SEGMENT)
            }
            Kind::Messages => now + self.pause(MESSAGE_GAP),
            _ => now + self.pause(PAGE_READING),
        };
    }

    /// Continues the film. It stalled if the segment arrived after the previous one had ended.
    fn show(&mut self, job: &Job, now: Duration) {
        let due = self.due.unwrap_or(now);
        if now > due && job.is_measured {
            self.stalled += now - due;
            self.late += 1;
        }
        self.due = Some(due.max(now) + SEGMENT);
    }

    fn pause(&mut self, mean: Duration) -> Duration {
        let uniform: f64 = self.rng.random();
        mean.mul_f64(-(1.0 - uniform).ln())
    }
}
