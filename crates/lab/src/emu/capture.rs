//! What is offered to an emulated link, as a pcapng file: when, how long, the headers, and what the
//! model made of it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bentpipe_channel::Fate;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

use super::offload::{HEADER_BYTES, Segments};

/// Bytes kept of each packet, from its IP header on: the headers of all that crosses a link here, and
/// not much of what they carry.
pub const SNAP_BYTES: usize = 128;

/// The largest file: at least 150,000 packets, 225 MB of full ones. What comes behind is left out.
pub const CAPTURE_BYTES: usize = 32 << 20;

/// Packets that wait to be written, 0.7 MB: the wire waits for no disk. The next packet in the file
/// says how many were beyond; of those behind the last one it has, it says nothing.
const WAITING: usize = 4096;

/// A packet in the file: 32 bytes, what is kept of it, and options of 60 at most.
const MOST_BLOCK_BYTES: usize = 32 + SNAP_BYTES + 60;

/// Nanoseconds, as pcapng writes it.
const RESOLUTION: u8 = 9;

/// What the file calls the directions, by the end that a packet leaves.
const DIRECTIONS: [&str; 2] = ["from the aircraft", "towards the aircraft"];

/// A packet that was offered.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Which way: an index of [`DIRECTIONS`].
    pub way: usize,
    /// When, in the link's own time.
    pub at: Duration,
    /// Its length.
    pub bytes: usize,
    /// What it begins with.
    pub head: Vec<u8>,
    /// What the model made of it.
    pub fate: Fate,
}

/// Where a wire leaves what it sees, while somebody wants it.
#[derive(Debug, Default)]
pub(super) struct Tap(Mutex<Option<Flow>>);

#[derive(Debug)]
struct Flow {
    to: SyncSender<(Seen, u64)>,
    /// Packets for which there was no room since the last one: told with the next, if one comes.
    missed: u64,
}

/// A capture, until it is dropped; the file is whole then.
#[derive(Debug)]
pub struct Capture {
    tap: Arc<Tap>,
    writing: Option<JoinHandle<()>>,
}

impl Seen {
    /// Packet `index` of a device's `frame`, which is to be cut as `segments` say.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves what `seen` gives, if anybody wants it.
    pub fn leave(&self, seen: impl FnOnce() -> Seen) {
        let mut flow = self.lock();
        let Some(open) = &mut *flow else { return };
        match open.to.try_send((seen(), open.missed)) {
            Ok(()) => open.missed = 0,
            Err(TrySendError::Full(_)) => open.missed += 1,
            // The file is as large as it may be.
            Err(TrySendError::Disconnected(_)) => *flow = None,
        }
    }
}

impl Capture {
    /// Writes what is left at `tap` from now on into a new file; the link's time began at `epoch`.
    pub(super) fn start(tap: Arc<Tap>, epoch: Instant, path: &Path) -> io::Result<Self> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = began.saturating_sub(epoch.elapsed());
        let mut pcap = open(BufWriter::new(File::create(path)?)).map_err(io::Error::other)?;
        let (to, seen) = sync_channel(WAITING);
        let writing = thread::Builder::new().name("capture".into());
        // An error is a full disk: the file ends there.
        let writing = writing.spawn(move || drop(write(&mut pcap, &seen, began, CAPTURE_BYTES)))?;
        *tap.lock() = Some(Flow { to, missed: 0 });
        Ok(Self { tap, writing: Some(writing) })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        *self.tap.lock() = None;
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}

/// A file with both directions declared.
fn open<W: Write>(file: W) -> Result<PcapNgWriter<W>, PcapError> {
    let mut pcap = PcapNgWriter::new(file)?;
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

/// Writes until nothing more comes, or there is no room for another in `most` bytes.
fn write<W: Write>(
    pcap: &mut PcapNgWriter<W>,
    seen: &Receiver<(Seen, u64)>,
    began: Duration,
    most: usize,
) -> Result<(), PcapError> {
    let mut left = most;
    for (Seen { way, at, bytes, head, fate }, missed) in seen {
        let mut options = Vec::new();
        if let Some(comment) = comment(fate) {
            options.push(EnhancedPacketOption::Comment(comment.into()));
        }
        if missed > 0 {
            options.push(EnhancedPacketOption::DropCount(missed));
        }
        if left < MOST_BLOCK_BYTES {
            break;
        }
        left -= pcap.write_pcapng_block(EnhancedPacketBlock {
            interface_id: way as u32,
            timestamp: began + at,
            original_len: bytes as u32,
            data: Cow::Owned(head),
            options,
        })?;
    }
    Ok(())
}

/// What the file says of a packet that did not come out of the link.
fn comment(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Delivered { .. } => None,
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

    /// What the file at `path` has of packets.
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
        tap.leave(|| panic!("nobody wants it yet"));
        let capture = Capture::start(tap.clone(), Instant::now(), &path).unwrap();
        let delivered = Fate::Delivered { at: Duration::from_secs(2) };
        tap.leave(|| seen(0, 1500, delivered));
        tap.leave(|| seen(1, 40, Fate::Lost));
        drop(capture);
        tap.leave(|| panic!("nobody wants it any more"));
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
        write(&mut pcap, &from, Duration::ZERO, 2000).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!((1500..2200).contains(&bytes), "{bytes}");
        let count = packets(&path).len();
        assert!((10..100).contains(&count), "{count}");
    }

    #[test]
    fn what_there_was_no_room_for_is_counted() {
        let (tap, (to, from)) = (Tap::default(), sync_channel(1));
        *tap.lock() = Some(Flow { to, missed: 0 });
        for _ in 0..3 {
            tap.leave(|| seen(0, 1500, Fate::Lost));
        }
        assert_eq!(from.recv().unwrap().1, 0);
        tap.leave(|| seen(0, 1500, Fate::Lost));
        assert_eq!(from.recv().unwrap().1, 2);
    }
}
