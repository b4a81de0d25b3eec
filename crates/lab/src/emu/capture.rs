//! Capture of an emulated link as a pcapng file: time, length and headers of each packet, and the
//! model's decision.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bentpipe_channel::Fate;
use parking_lot::{Mutex, MutexGuard};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, Endianness, PcapError};

use super::offload::{HEADER_BYTES, Segments};

/// Captured bytes of each packet, from its IP header on. They hold the headers of every protocol
/// used here and little payload.
pub const SNAP_BYTES: usize = 128;

/// Maximum size of the packets in a file: at least 150,000 packets, or 225 MB of traffic in
/// full-size packets. Packets beyond it are only counted.
pub const CAPTURE_BYTES: usize = 32 << 20;

/// Maximum packets that wait for the writing thread (0.7 MB), because the wire must not wait for a
/// disk. The next packet of a direction that is written reports the packets skipped before it. The
/// end of the file reports all of them.
const WAITING: usize = 4096;

/// Maximum size of a packet's block in the file: 32 bytes, the captured bytes, and at most 60 bytes
/// of options.
const MAX_BLOCK_BYTES: usize = 32 + SNAP_BYTES + 60;

/// Timestamp resolution in the encoding of pcapng: nanoseconds.
const RESOLUTION: u8 = 9;

/// Names of the directions in the file, in the order of the ends that send the packets.
const DIRECTIONS: [&str; 2] = ["from the aircraft", "towards the aircraft"];

/// A packet offered to the link.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Direction: an index into [`DIRECTIONS`].
    pub way: usize,
    /// Time on the link's own clock.
    pub at: Duration,
    /// Length of the packet.
    pub bytes: usize,
    /// First bytes.
    pub head: Vec<u8>,
    /// Decision of the model.
    pub fate: Fate,
}

/// Slot into which a wire puts its packets while a capture runs.
#[derive(Debug, Default)]
pub(super) struct Tap(Mutex<Option<Flow>>);

#[derive(Debug)]
struct Flow {
    to: SyncSender<(Seen, u64)>,
    ways: [Tally; 2],
    /// `true` once the file is full. Packets are then only counted, not copied.
    is_full: Arc<AtomicBool>,
}

/// Packets offered in a direction since the capture began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    offered: u64,
    /// Packets skipped because the queue or the file was full.
    missed: u64,
    /// Skipped packets since the last captured one. The next captured packet reports them.
    since: u64,
}

/// Result of the writing thread: the file, and the number of packets of each direction that it left
/// out.
type Writing = JoinHandle<Result<(PcapNgWriter<BufWriter<File>>, [u64; 2]), PcapError>>;

/// A running capture. Dropping it completes the file.
#[derive(Debug)]
pub struct Capture {
    tap: Arc<Tap>,
    writing: Option<Writing>,
    /// Start of the link's time, on the wall clock.
    began: Duration,
    epoch: Instant,
}

impl Seen {
    /// Describes packet `index` of a device's `frame`, which `segments` divides into packets.
    pub fn of(
        frame: &[u8],
        segments: Option<Segments>,
        index: usize,
        way: usize,
        at: Duration,
        fate: Fate,
    ) -> Self {
        let mut cut = Vec::new();
        let frame = segments.map_or(frame, |segments| {
            segments.cut(frame, index, &mut cut);
            &cut
        });
        let packet = &frame[HEADER_BYTES..];
        let head = packet[..packet.len().min(SNAP_BYTES)].to_vec();
        Self { way, at, bytes: packet.len(), head, fate }
    }
}

impl Tap {
    fn lock(&self) -> MutexGuard<'_, Option<Flow>> {
        self.0.lock()
    }

    /// Hands the packet that `seen` describes, of direction `way`, to the capture, if one runs.
    pub fn leave(&self, way: usize, seen: impl FnOnce() -> Seen) {
        let mut flow = self.lock();
        let Some(Flow { to, ways, is_full }) = &mut *flow else { return };
        let tally = &mut ways[way];
        tally.offered += 1;
        if is_full.load(Ordering::Relaxed) {
            tally.missed += 1;
            return;
        }
        match to.try_send((seen(), tally.since)) {
            Ok(()) => tally.since = 0,
            Err(TrySendError::Full(_)) => {
                tally.missed += 1;
                tally.since += 1;
            }
            // The writing thread ended because the disk is full.
            Err(TrySendError::Disconnected(_)) => *flow = None,
        }
    }
}

impl Capture {
    /// Starts writing the packets that pass `tap` into a new file. `epoch` is the start of the
    /// link's time.
    pub(super) fn start(tap: Arc<Tap>, epoch: Instant, path: &Path) -> io::Result<Self> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = began.saturating_sub(epoch.elapsed());
        let mut pcap = open(BufWriter::new(File::create(path)?)).map_err(io::Error::other)?;
        let (to, seen) = sync_channel(WAITING);
        let is_full = Arc::new(AtomicBool::new(false));
        let full = is_full.clone();
        let writing = thread::Builder::new().name("capture".into());
        let write = move || {
            let left_out = write(&mut pcap, &seen, began, CAPTURE_BYTES, &full)?;
            Ok((pcap, left_out))
        };
        let writing = Some(writing.spawn(write)?);
        *tap.lock() = Some(Flow { to, ways: Default::default(), is_full });
        Ok(Self { tap, writing, began, epoch })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let flow = self.tap.lock().take();
        let at = self.began + self.epoch.elapsed();
        // Dropping the sender ends the writing thread.
        let ways = flow.map(|flow| flow.ways).unwrap_or_default();
        let written = self.writing.take().map(JoinHandle::join);
        // Any other result means a full disk; the file then ends without statistics.
        if let Some(Ok(Ok((mut pcap, left_out)))) = written {
            let _ = close(&mut pcap, ways, left_out, at);
        }
    }
}

/// A file with both directions declared.
fn open<W: Write>(file: W) -> Result<PcapNgWriter<W>, PcapError> {
    // The crate writes the timestamps of statistics blocks correctly only in big-endian byte order.
    let mut pcap = PcapNgWriter::with_endianness(file, Endianness::Big)?;
    for name in DIRECTIONS {
        let options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfTsResol(RESOLUTION),
        ];
        let snaplen = SNAP_BYTES as u32;
        pcap.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen,
            options,
        })?;
    }
    Ok(pcap)
}

/// Writes packets until the channel closes, and at most `most` bytes. Sets `is_full` when another
/// packet would not fit. Returns the number of packets of each direction that arrived after that
/// and were left out.
fn write<W: Write>(
    pcap: &mut PcapNgWriter<W>,
    seen: &Receiver<(Seen, u64)>,
    began: Duration,
    most: usize,
    is_full: &AtomicBool,
) -> Result<[u64; 2], PcapError> {
    let (mut left, mut left_out) = (most, [0; 2]);
    for (Seen { way, at, bytes, head, fate }, missed) in seen {
        if left < MAX_BLOCK_BYTES {
            is_full.store(true, Ordering::Relaxed);
            left_out[way] += 1;
            continue;
        }
        let mut options = Vec::new();
        if let Some(comment) = comment(fate) {
            options.push(EnhancedPacketOption::Comment(comment.into()));
        }
        if missed > 0 {
            options.push(EnhancedPacketOption::DropCount(missed));
        }
        left -= pcap.write_pcapng_block(EnhancedPacketBlock {
            interface_id: way as u32,
            timestamp: began + at,
            original_len: bytes as u32,
            data: Cow::Owned(head),
            options,
        })?;
    }
    Ok(left_out)
}

/// Writes the statistics blocks at the end of a file: for each direction, the packets offered and
/// the packets missing from the file.
fn close<W: Write>(
    pcap: &mut PcapNgWriter<W>,
    ways: [Tally; 2],
    left_out: [u64; 2],
    at: Duration,
) -> Result<(), PcapError> {
    for (way, (tally, left_out)) in (0..).zip(ways.into_iter().zip(left_out)) {
        let options = vec![
            InterfaceStatisticsOption::IsbIfRecv(tally.offered),
            InterfaceStatisticsOption::IsbIfDrop(tally.missed + left_out),
        ];
        let nanoseconds = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let block = InterfaceStatisticsBlock { interface_id: way, timestamp: nanoseconds, options };
        pcap.write_pcapng_block(block)?;
    }
    Ok(())
}

/// Comment for a packet that the link did not deliver.
fn comment(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Delivered { .. } => None,
        Fate::Waiting(_) => Some("queued: its fate was decided later"),
        Fate::Policed => Some("dropped: over the policer's rate"),
        Fate::Lost => Some("lost on the link"),
        Fate::QueueDropped => Some("dropped: the queue was full"),
        Fate::TooLong => Some("dropped: too long"),
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    fn seen(way: usize, bytes: usize, fate: Fate) -> Seen {
        Seen { way, at: Duration::from_micros(1_500_001), bytes, head: vec![0x45; 40], fate }
    }

    /// Packets in the file at `path`.
    fn packets(path: &Path) -> Vec<EnhancedPacketBlock<'static>> {
        let mut pcap = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = pcap.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                packets.push(packet.into_owned());
            }
        }
        packets
    }

    #[test]
    fn a_file_says_when_which_way_how_long_and_what_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (tap, path) = (Arc::new(Tap::default()), folder.path().join("1.pcapng"));
        tap.leave(0, || panic!("nobody wants it yet"));
        let capture = Capture::start(tap.clone(), Instant::now(), &path).unwrap();
        let delivered = Fate::Delivered { at: Duration::from_secs(2) };
        tap.leave(0, || seen(0, 1500, delivered));
        tap.leave(1, || seen(1, 40, Fate::Lost));
        drop(capture);
        tap.leave(0, || panic!("nobody wants it any more"));
        let found = packets(&path);
        let of = |one: &EnhancedPacketBlock<'_>| (one.interface_id, one.original_len);
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [(0, 1500), (1, 40)]);
        assert!(found.iter().all(|one| one.data.len() == 40));
        assert!(found[0].options.is_empty());
        let lost = EnhancedPacketOption::Comment("lost on the link".into());
        assert_eq!(found[1].options, [lost]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let since = (now + Duration::from_micros(1_500_001)).saturating_sub(found[0].timestamp);
        assert!(since < Duration::from_secs(60), "{since:?}");
        assert_eq!(found[0].timestamp, found[1].timestamp);
    }

    #[test]
    fn a_file_does_not_grow_beyond_its_bound_and_ends_with_a_whole_packet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.pcapng");
        let (to, from) = sync_channel(100);
        for _ in 0..100 {
            to.send((seen(0, 1500, Fate::Lost), 0)).unwrap();
        }
        drop(to);
        let mut pcap = open(File::create(&path).unwrap()).unwrap();
        let is_full = AtomicBool::new(false);
        let left_out = write(&mut pcap, &from, Duration::ZERO, 2000, &is_full).unwrap();
        assert!(is_full.into_inner());
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!((1500..2200).contains(&bytes), "{bytes}");
        let count = packets(&path).len();
        assert!((10..100).contains(&count), "{count}");
        assert_eq!(left_out, [100 - count as u64, 0]);
    }

    #[test]
    fn skipped_packets_are_counted_by_direction_to_the_end() {
        let (tap, (to, from)) = (Tap::default(), sync_channel(1));
        let is_full = Arc::new(AtomicBool::new(false));
        *tap.lock() = Some(Flow { to, ways: Default::default(), is_full: is_full.clone() });
        let leave = |way| tap.leave(way, || seen(way, 1500, Fate::Lost));
        let ways = || tap.lock().as_ref().unwrap().ways;
        for way in [0, 0, 0, 1] {
            leave(way);
        }
        assert_eq!(from.recv().unwrap().1, 0);
        leave(0);
        assert_eq!(from.recv().unwrap().1, 2);
        leave(1);
        assert_eq!(from.recv().unwrap().1, 1);
        for way in [0, 0, 1] {
            leave(way);
        }
        assert_eq!(ways()[0], Tally { offered: 6, missed: 3, since: 1 });
        assert_eq!(ways()[1], Tally { offered: 3, missed: 2, since: 1 });
        // With a full file, packets are counted but not copied.
        is_full.store(true, Ordering::Relaxed);
        tap.leave(0, || panic!("the file is full"));
        assert_eq!((ways()[0].offered, ways()[0].missed), (7, 4));
    }

    #[test]
    fn a_file_ends_with_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let (tap, path) = (Arc::new(Tap::default()), folder.path().join("1.pcapng"));
        let capture = Capture::start(tap.clone(), Instant::now(), &path).unwrap();
        tap.leave(0, || seen(0, 1500, Fate::Lost));
        // Simulates a wire that was faster than the disk.
        if let Some(flow) = &mut *tap.lock() {
            flow.ways =
                [(2, 1), (1, 1)].map(|(offered, missed)| Tally { offered, missed, since: 1 });
        }
        drop(capture);
        assert_eq!(packets(&path).len(), 1);
        let mut pcap = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
        let mut ends = Vec::new();
        while let Some(block) = pcap.next_block() {
            if let Block::InterfaceStatistics(end) = block.unwrap() {
                ends.push((end.interface_id, end.into_owned().options));
            }
        }
        let of = |offered, missed| {
            vec![
                InterfaceStatisticsOption::IsbIfRecv(offered),
                InterfaceStatisticsOption::IsbIfDrop(missed),
            ]
        };
        assert_eq!(ends, [(0, of(2, 1)), (1, of(1, 1))]);
    }
}
