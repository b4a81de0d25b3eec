//! Flows in both directions. Both ends of a flow write a pattern, and check what they read.

use std::io;
use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Direction towards the aircraft, as an index.
pub const DOWN: usize = 0;
/// Direction away from the aircraft.
pub const UP: usize = 1;

/// Interval of the pieces of a paced flow.
pub const PACE: Duration = Duration::from_millis(500);
/// Bytes of a piece: 200 flows take half of 1.89 Mbit/s.
pub const PIECE_BYTES: usize = 300;
/// Bytes that a flow without pace writes at once.
const BLOCK_BYTES: usize = 4 << 10;

/// Rate at which flows write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// As fast as the link takes it.
    Bulk,
    /// A piece in each interval.
    Paced,
}

/// Bytes that arrived at an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// Time since the traffic began.
    pub at: Duration,
    /// Flow.
    pub flow: u16,
    /// Direction.
    pub way: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Course of the traffic.
pub struct Log {
    began: Instant,
    /// End of the writing.
    until: Duration,
    load: Load,
    course: Mutex<Course>,
}

/// Observations of all flows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// Everything that arrived, in order.
    pub arrivals: Vec<Arrival>,
    /// Each piece of the paced flows: when it was written, and the time until it had arrived.
    pub delays: Vec<(Duration, Duration)>,
    /// Flows that failed, with the time, the direction of the end's writing, and the reason.
    pub failures: Vec<(u16, Duration, usize, String)>,
    /// Ends that read everything which the other wrote.
    pub finished: usize,
    read: std::collections::BTreeMap<(u16, usize), u64>,
}

impl Log {
    /// Begins now. The flows write for `until`.
    pub fn new(load: Load, until: Duration) -> Self {
        Self { began: Instant::now(), until, load, course: Mutex::default() }
    }

    /// Time since the traffic began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until `at`.
    pub async fn reach(&self, at: Duration) {
        sleep_until(self.began + at).await;
    }

    /// Observations so far.
    pub fn course(&self) -> Course {
        self.course.lock().clone()
    }

    /// Returns `true` if this number of ends have finished or failed.
    pub fn is_over(&self, ends: usize) -> bool {
        let course = self.course.lock();
        course.finished + course.failures.len() >= ends
    }

    /// Notes a flow that could not be opened.
    pub fn failed(&self, number: u16, reason: String) {
        let now = self.now();
        self.course.lock().failures.push((number, now, UP, reason));
    }

    /// Plays the end of flow `number` at the passenger. Names the flow to the server first.
    pub async fn play_client(&self, number: u16, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let named = stream.write_all(&number.to_be_bytes()).await;
        self.play(number, UP, named, stream).await;
    }

    /// Plays the end of a flow at the server.
    pub async fn play_server(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut number = [0; 2];
        let named = stream.read_exact(&mut number).await.map(|_| ());
        self.play(u16::from_be_bytes(number), DOWN, named, stream).await;
    }

    async fn play(
        &self,
        number: u16,
        writes: usize,
        named: io::Result<()>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        let played = async {
            named?;
            let (reader, writer) = split(stream);
            tokio::try_join!(
                self.read(number, 1 - writes, reader),
                self.write(number, writes, writer)
            )
        };
        let ended = match self.load {
            Load::Paced => played.await,
            // What is under way then does not matter.
            Load::Bulk => match timeout_at(self.began + self.until, played).await {
                Ok(ended) => ended,
                Err(_) => return,
            },
        };
        let mut course = self.course.lock();
        match ended {
            Ok(((), ())) => course.finished += 1,
            Err(error) => {
                let now = self.now();
                let reason = format!("{:?}: {error}", error.kind());
                course.failures.push((number, now, writes, reason));
            }
        }
    }

    async fn write(
        &self,
        number: u16,
        way: usize,
        mut writer: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut offset = 0;
        let mut buffer = vec![0; if self.load == Load::Bulk { BLOCK_BYTES } else { PIECE_BYTES }];
        for piece in 0.. {
            if self.load == Load::Paced {
                let at = written_at(number, piece);
                if at >= self.until {
                    break;
                }
                self.reach(at).await;
            }
            for byte in &mut buffer {
                *byte = content(number, way, offset);
                offset += 1;
            }
            writer.write_all(&buffer).await?;
            writer.flush().await?;
        }
        writer.shutdown().await
    }

    async fn read(
        &self,
        number: u16,
        way: usize,
        mut reader: impl AsyncRead + Unpin,
    ) -> io::Result<()> {
        let (mut offset, mut buffer) = (0, vec![0; 16 << 10]);
        loop {
            let bytes = reader.read(&mut buffer).await?;
            if bytes == 0 {
                return self.whole(number, offset);
            }
            for byte in &buffer[..bytes] {
                if *byte != content(number, way, offset) {
                    let wrong = format!("byte {offset} is not the one that was sent");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
                }
                offset += 1;
            }
            self.arrived(number, way, bytes);
        }
    }

    /// Checks that a paced flow ended after its last piece.
    fn whole(&self, number: u16, read: u64) -> io::Result<()> {
        let pieces = (0..).take_while(|piece| written_at(number, *piece) < self.until).count();
        match read == (pieces * PIECE_BYTES) as u64 {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "bytes are missing")),
        }
    }

    fn arrived(&self, flow: u16, way: usize, bytes: usize) {
        let at = self.now();
        let mut course = self.course.lock();
        course.arrivals.push(Arrival { at, flow, way, bytes });
        if self.load == Load::Bulk {
            return;
        }
        let size = PIECE_BYTES as u64;
        let read = course.read.entry((flow, way)).or_default();
        let pieces = *read / size..(*read + bytes as u64) / size;
        *read += bytes as u64;
        course.delays.extend(pieces.map(|piece| {
            let written = written_at(flow, piece as u32);
            (written, at.saturating_sub(written))
        }));
    }
}

/// Time at which a paced flow writes a piece. The flows take turns.
fn written_at(flow: u16, piece: u32) -> Duration {
    PACE * piece + PACE * u32::from(flow) / u32::from(super::bounds::FLOWS)
}

fn content(flow: u16, way: usize, offset: u64) -> u8 {
    let mixed =
        (offset ^ u64::from(flow) << 32 ^ (way as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

impl Course {
    /// Bytes that arrived in a direction during `window`.
    pub fn bytes(&self, way: usize, window: &Range<Duration>) -> usize {
        self.within(way, window).map(|arrival| arrival.bytes).sum()
    }

    /// Longest time in `window` in which nothing arrived in a direction, of any flow.
    pub fn gap(&self, way: usize, window: &Range<Duration>) -> Duration {
        self.gap_of(way, window, |_| true)
    }

    /// Longest time in `window` in which nothing arrived in a direction, of the flows that `counts`.
    pub fn gap_of(
        &self,
        way: usize,
        window: &Range<Duration>,
        counts: impl Fn(u16) -> bool,
    ) -> Duration {
        let mut times = vec![window.start];
        let counted = self.within(way, window).filter(|arrival| counts(arrival.flow));
        times.extend(counted.map(|arrival| arrival.at));
        times.push(window.end);
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Longest delay of a piece that was written in `window`. `None` if one has not arrived.
    pub fn delay(&self, window: &Range<Duration>) -> Option<Duration> {
        let within = self.delays.iter().filter(|(written, _)| window.contains(written));
        within.map(|(_, delay)| *delay).max()
    }

    /// Mean delay of the pieces.
    pub fn mean_delay(&self) -> Duration {
        let sum: Duration = self.delays.iter().map(|(_, delay)| *delay).sum();
        sum / (self.delays.len() as u32).max(1)
    }

    /// First arrival after `at`, of any flow.
    pub fn first_after(&self, at: Duration) -> Option<Duration> {
        self.arrivals.iter().map(|arrival| arrival.at).find(|arrived| *arrived > at)
    }

    /// Time at which something has arrived after `at` in both directions of all `flows`.
    pub fn all_after(&self, at: Duration, flows: impl Iterator<Item = u16>) -> Option<Duration> {
        let first = |flow, way| {
            let is_it = |it: &&Arrival| it.flow == flow && it.way == way && it.at > at;
            self.arrivals.iter().find(is_it).map(|arrival| arrival.at)
        };
        flows
            .flat_map(|flow| [first(flow, DOWN), first(flow, UP)])
            .try_fold(Duration::ZERO, |latest, next| Some(latest.max(next?)))
    }

    fn within(&self, way: usize, window: &Range<Duration>) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(move |it| it.way == way && window.contains(&it.at))
    }
}
