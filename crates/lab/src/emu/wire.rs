//! The wire: one thread that carries packets between two TUN devices as the link model says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_channel::{Count, Counters, Direction, Fate};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::unistd::{read, write};

use super::capture::{Seen, Tap};
use super::ecn;
use super::error::EmuError;
use super::offload::{FRAME_BYTES, HEADER_BYTES, Segments};
use super::others::{self, Share};

/// Memory for packets under way in one direction: 128 MiB, which is 2 s of 500 Mbit/s. Beyond it
/// packets are lost outside the model, which [`WireCounters::overflowed`] shows.
pub const IN_FLIGHT_BYTES: usize = 128 << 20;

/// Frames fetched from one device before the other gets its turn: 64 full ones take about 1 ms.
const BATCH_FRAMES: usize = 64;

/// A delivery that misses its time by more counts as late: what the measurement tolerates of the
/// median ([`super::DELAY_TOLERANCE_S`]).
pub const LATE: Duration = Duration::from_millis(1);

/// A delivery that misses its time by more is as good as an outage: half of the shortest timer of the
/// kernel's TCP (200 ms).
pub const STALL: Duration = Duration::from_millis(100);

/// The wire's precedence: -20 would be the kernel's highest.
const WIRE_NICE: i32 = -15;

/// Buffers kept for reuse in one direction: 1,024 of 1.5 KB, 1.5 MB.
const SPARE_BUFFERS: usize = 1024;

/// Counters of one direction of an emulated link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Decisions of the model.
    pub model: Counters,
    /// Packets lost because more than [`IN_FLIGHT_BYTES`] were under way: the emulator's failing.
    pub overflowed: u64,
    /// Packets that the receiving kernel did not take: the emulator's failing too.
    pub refused: u64,
    /// Packets delivered more than [`LATE`] after their time.
    pub late: u64,
    /// Packets delivered more than [`STALL`] after their time.
    pub stalled: u64,
    /// By how much all deliveries together missed their times.
    pub lateness: Duration,
    /// By how much the latest delivery missed its time.
    pub worst_lateness: Duration,
    /// `true` if the wire runs at real-time priority. It does if that is allowed (to root, or
    /// within `ulimit -r`). Without it a busy machine delays packets by tens of milliseconds.
    pub realtime: bool,
    /// Offered packets of other users ([`super::World::others`]).
    pub others: Share,
    /// Offered packets below 80 bytes, without those of others.
    pub small: u64,
    /// Offered packets of 1280 to 1500 bytes, without those of others.
    pub large: u64,
}

impl WireCounters {
    /// Offered packets, without those of other users.
    pub fn own(&self) -> Share {
        let all = &self.model;
        let less = |all: Count, others: Count| Count {
            packets: all.packets.saturating_sub(others.packets),
            bytes: all.bytes.saturating_sub(others.bytes),
        };
        let add = |one: Count, two: Count| Count {
            packets: one.packets + two.packets,
            bytes: one.bytes + two.bytes,
        };
        let lost = add(add(all.lost, all.queue_dropped), all.too_long);
        Share {
            offered: less(all.offered, self.others.offered),
            lost: less(lost, self.others.lost),
        }
    }
}

/// Acknowledgements and the like.
const SMALL: std::ops::Range<usize> = 0..80;
/// Packets that are full, or nearly.
const LARGE: std::ops::RangeInclusive<usize> = 1280..=1500;

/// A running wire. Dropping it stops the thread and, with the descriptors, removes the devices.
#[derive(Debug)]
pub struct Wire {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    counters: [Arc<Mutex<WireCounters>>; 2],
    tap: Arc<Tap>,
}

impl Wire {
    /// Starts carrying packets between the devices: from the first to the second as the first
    /// direction says, and back as the second does. The model's time begins at `epoch`.
    pub fn start(
        name: &str,
        epoch: Instant,
        devices: [OwnedFd; 2],
        directions: [Direction; 2],
    ) -> Result<Self, EmuError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = EventFd::from_flags(flags).map_err(|errno| EmuError::Thread(errno.into()))?;
        let stop = Arc::new(stop);
        let tap = Arc::new(Tap::default());
        let [near, far] = directions;
        let lanes = [Lane::new(near, 0, tap.clone()), Lane::new(far, 1, tap.clone())];
        let counters = [Arc::clone(&lanes[0].counters), Arc::clone(&lanes[1].counters)];
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name(format!("wire {name}"))
            .spawn(move || carry(epoch, &devices, lanes, &stopped))
            .map_err(EmuError::Thread)?;
        Ok(Self { stop, thread: Some(thread), counters, tap })
    }

    /// Tap in which it leaves its packets, the directions in the order given to [`Wire::start`].
    pub(super) fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// Counters so far, in the order of the directions given to [`Wire::start`].
    pub fn counters(&self) -> [WireCounters; 2] {
        [*lock(&self.counters[0]), *lock(&self.counters[1])]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // An eventfd refuses a one only when 2^64 of them are unread.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(counters: &Mutex<WireCounters>) -> MutexGuard<'_, WireCounters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread: fetch what is offered, deliver what is due, sleep until either may have changed.
fn carry(epoch: Instant, devices: &[OwnedFd; 2], mut lanes: [Lane; 2], stop: &EventFd) {
    let realtime = be_punctual();
    for lane in &mut lanes {
        lane.tally.realtime = realtime;
    }
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        let mut drained = true;
        for (lane, (from, to)) in lanes.iter_mut().zip([(0, 1), (1, 0)]) {
            let (from, to) = (devices[from].as_fd(), devices[to].as_fd());
            drained &= lane.fetch(epoch, from, to, &mut frame);
            lane.deliver_due(epoch, to);
            lane.publish();
        }
        let next = lanes.iter().filter_map(Lane::next_due).min();
        let timeout = match next {
            _ if !drained => Some(Duration::ZERO),
            Some(due) => Some(due.saturating_sub(epoch.elapsed())),
            None => None,
        };
        if wait(devices, stop, timeout) {
            return;
        }
    }
}

/// Makes the calling thread run when it is due, beside whatever this machine does: at real-time
/// priority where that is allowed, which is returned. For who sleeps most of the time.
pub fn be_punctual() -> bool {
    // By default the kernel may wake a sleeper 50 us late to save power.
    let _ = prctl::set_timerslack(1);
    go_first();
    become_realtime()
}

/// Asks for the lowest real-time priority: the wire sleeps most of the time, but what it has to do
/// is due at once, whoever else wants the processor. (Neither niceness nor a shorter slice helps.)
#[allow(unsafe_code)]
fn become_realtime() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: zero is the calling thread, and the kernel only reads `lowest`, which outlives the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &lowest) == 0 }
}

/// Asks for precedence over this machine's other threads, so that packets are on time beside busy
/// gateways and browsers. Only root gets it; the measurement decides whether it goes without.
#[allow(unsafe_code)]
fn go_first() {
    // SAFETY: takes three numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, WIRE_NICE) };
}

/// Sleeps until a device has a frame, the time is over, or the wire is stopped (then `true`).
fn wait(devices: &[OwnedFd; 2], stop: &EventFd, timeout: Option<Duration>) -> bool {
    let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut fds = [
        readable(devices[0].as_fd()),
        readable(devices[1].as_fd()),
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
    ];
    // An interrupted or failed poll only means another look at the devices.
    let _ = ppoll(&mut fds, timeout.map(TimeSpec::from), None);
    fds[2].any().unwrap_or(false)
}

/// One direction: its model, and the packets under way.
struct Lane {
    model: Direction,
    way: usize,
    tap: Arc<Tap>,
    /// Ordered by delivery time, then by order of offering.
    under_way: BinaryHeap<Reverse<UnderWay>>,
    offered: u64,
    in_flight_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Arrival time of each packet of a frame, and its mark.
    fates: Vec<Option<(Duration, bool)>>,
    tally: WireCounters,
    counters: Arc<Mutex<WireCounters>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    at: Duration,
    order: u64,
    frame: Vec<u8>,
}

impl Lane {
    fn new(model: Direction, way: usize, tap: Arc<Tap>) -> Self {
        Self {
            model,
            way,
            tap,
            under_way: BinaryHeap::new(),
            offered: 0,
            in_flight_bytes: 0,
            spare: Vec::new(),
            fates: Vec::new(),
            tally: WireCounters::default(),
            counters: Arc::default(),
        }
    }

    /// Takes up to a batch of frames from the sending host; whether there were no more.
    fn fetch(
        &mut self,
        epoch: Instant,
        from: BorrowedFd,
        to: BorrowedFd,
        frame: &mut [u8],
    ) -> bool {
        for _ in 0..BATCH_FRAMES {
            match read(from, frame) {
                Ok(bytes) if bytes > HEADER_BYTES => {
                    self.admit(epoch.elapsed(), &frame[..bytes], to);
                }
                _ => return true,
            }
        }
        false
    }

    /// Asks the model about every packet of the frame.
    fn admit(&mut self, now: Duration, frame: &[u8], to: BorrowedFd) {
        let segments = Segments::of(frame);
        let count = segments.map_or(1, |segments| segments.count());
        let capable = ecn::is_capable(frame);
        let is_others = others::is_others(frame);
        let mut fates = std::mem::take(&mut self.fates);
        fates.clear();
        for index in 0..count {
            let bytes = segments.map_or(frame.len() - HEADER_BYTES, |s| s.packet_bytes(index));
            let (fate, marked) = if capable {
                self.model.offer_ect(now, bytes)
            } else {
                (self.model.offer(now, bytes), false)
            };
            self.tap.leave(self.way, || Seen::of(frame, segments, index, self.way, now, fate));
            if is_others {
                self.tally.others.add(bytes, fate);
            } else {
                self.tally.small += u64::from(SMALL.contains(&bytes));
                self.tally.large += u64::from(LARGE.contains(&bytes));
            }
            fates.push(match fate {
                Fate::Delivered { at } => Some((at, marked)),
                Fate::Lost | Fate::QueueDropped | Fate::TooLong => None,
            });
        }
        // Before anybody can see the packets arrive.
        self.publish();
        let at_once =
            |fate: &Option<(Duration, bool)>| fate.is_some_and(|(at, marked)| at <= now && !marked);
        if self.under_way.is_empty() && fates.iter().all(at_once) {
            self.deliver(frame, count, to);
        } else {
            for (index, fate) in fates.iter().enumerate() {
                if let Some(fate) = *fate {
                    self.send_off(fate, frame, segments, index);
                }
            }
        }
        self.fates = fates;
    }

    /// Puts one packet under way.
    fn send_off(
        &mut self,
        (at, marked): (Duration, bool),
        frame: &[u8],
        segments: Option<Segments>,
        index: usize,
    ) {
        let mut copy = self.spare.pop().unwrap_or_default();
        match segments {
            Some(segments) => segments.cut(frame, index, &mut copy),
            None => {
                copy.clear();
                copy.extend_from_slice(frame);
            }
        }
        if marked {
            ecn::mark(&mut copy);
        }
        if self.in_flight_bytes + copy.capacity() > IN_FLIGHT_BYTES {
            self.tally.overflowed += 1;
            return;
        }
        self.in_flight_bytes += copy.capacity();
        self.offered += 1;
        self.under_way.push(Reverse(UnderWay { at, order: self.offered, frame: copy }));
    }

    fn next_due(&self) -> Option<Duration> {
        self.under_way.peek().map(|Reverse(packet)| packet.at)
    }

    fn deliver_due(&mut self, epoch: Instant, to: BorrowedFd) {
        let mut now = epoch.elapsed();
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            let Some(Reverse(packet)) = self.under_way.pop() else { return };
            let lateness = now - due;
            self.tally.late += u64::from(lateness > LATE);
            self.tally.stalled += u64::from(lateness > STALL);
            self.tally.lateness += lateness;
            self.tally.worst_lateness = self.tally.worst_lateness.max(lateness);
            self.in_flight_bytes -= packet.frame.capacity();
            self.deliver(&packet.frame, 1, to);
            if self.spare.len() < SPARE_BUFFERS {
                self.spare.push(packet.frame);
            }
            now = epoch.elapsed();
        }
    }

    /// Hands a frame of `packets` packets to the receiving kernel, which takes it in at once.
    fn deliver(&mut self, frame: &[u8], packets: usize, to: BorrowedFd) {
        match write(to, frame).map_err(io::Error::from) {
            Ok(_) => {}
            Err(_) => self.tally.refused += packets as u64,
        }
    }

    fn publish(&mut self) {
        self.tally.model = self.model.counters();
        *lock(&self.counters) = self.tally;
    }
}
