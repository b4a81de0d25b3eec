//! The wire: one thread that carries packets between two TUN devices as the link model decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bentpipe_channel::{Count, Counters, Direction, Fate, Packet};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::unistd::{read, write};
use parking_lot::{Mutex, MutexGuard};

use super::capture::{Seen, Tap};
use super::ecn;
use super::error::EmuError;
use super::observation::Observer;
use super::offload::{FRAME_BYTES, HEADER_BYTES, Segments};
use super::share::{self, Share};
use crate::record::{OTHERS_FLOW, OWN_FLOW, Passage};

/// Memory for packets in flight in one direction: 128 MiB, which is 2 s of 500 Mbit/s. Packets
/// beyond it are lost outside the model and counted in [`WireCounters::overflowed`].
pub const IN_FLIGHT_BYTES: usize = 128 << 20;

/// Frames fetched from one device before the other gets its turn. 64 full frames take about 1 ms.
const BATCH_FRAMES: usize = 64;

/// A delivery that misses its time by more than this counts as late. Equals the measurement's
/// tolerance for the median delay ([`super::DELAY_TOLERANCE_S`]).
pub const LATE: Duration = Duration::from_millis(1);

/// A delivery that misses its time by more than this counts as stalled. Half of the shortest timer
/// of the kernel's TCP (200 ms).
pub const STALL: Duration = Duration::from_millis(100);

/// Niceness of the wire's thread. The highest priority would be -20.
const WIRE_NICE: i32 = -15;
/// Niceness of a thread that yields to all others.
const LAST_NICE: i32 = 19;

/// Buffers kept for reuse in one direction: 1,024 × 1.5 KB = 1.5 MB.
const SPARE_BUFFERS: usize = 1024;

/// Counters of one direction of an emulated link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Decisions of the model.
    pub model: Counters,
    /// Packets lost because more than [`IN_FLIGHT_BYTES`] were in flight. This is an emulator
    /// failure.
    pub overflowed: u64,
    /// Packets that the receiving kernel refused. This too is an emulator failure.
    pub refused: u64,
    /// Packets delivered more than [`LATE`] after their due time.
    pub late: u64,
    /// Packets delivered more than [`STALL`] after their due time.
    pub stalled: u64,
    /// Total lateness of all deliveries.
    pub lateness: Duration,
    /// Largest lateness of a delivery.
    pub worst_lateness: Duration,
    /// `true` if the wire runs at real-time priority, which root and `ulimit -r` allow. Without it
    /// a busy machine delays packets by tens of milliseconds.
    pub realtime: bool,
    /// Packets offered by other users ([`super::Testbed::others`]).
    pub others: Share,
    /// Offered packets below 80 bytes, excluding those of other users.
    pub small: u64,
    /// Offered packets of 1280 to 1500 bytes, excluding those of other users.
    pub large: u64,
}

impl WireCounters {
    /// Offered packets, excluding those of other users.
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

/// IP bytes of acknowledgements and similar packets.
const SMALL: std::ops::Range<usize> = 0..80;
/// IP bytes of packets that are full or nearly full.
const LARGE: std::ops::RangeInclusive<usize> = 1280..=1500;

/// A running wire. Dropping it stops the thread, and removes the devices by closing their
/// descriptors.
#[derive(Debug)]
pub struct Wire {
    stop: Arc<EventFd>,
    /// Directions that lose everything.
    is_cut: Arc<[AtomicBool; 2]>,
    thread: Option<JoinHandle<()>>,
    counters: [Arc<Mutex<WireCounters>>; 2],
    observers: [Arc<Observer>; 2],
    tap: Arc<Tap>,
}

impl Wire {
    /// Starts carrying packets between the devices. The first direction applies from the first
    /// device to the second, and the second direction applies back. The model's time begins at
    /// `epoch`.
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
        let observers = [Arc::clone(&lanes[0].observer), Arc::clone(&lanes[1].observer)];
        let stopped = Arc::clone(&stop);
        let is_cut = Arc::<[AtomicBool; 2]>::default();
        let cut = Arc::clone(&is_cut);
        let thread = thread::Builder::new()
            .name(format!("wire {name}"))
            .spawn(move || carry(epoch, &devices, lanes, &cut, &stopped))
            .map_err(EmuError::Thread)?;
        Ok(Self { stop, is_cut, thread: Some(thread), counters, observers, tap })
    }

    /// Loses every packet offered from now on in these directions, and carries those of others again.
    /// Packets in flight still arrive.
    pub fn cut(&self, is_cut: [bool; 2]) {
        for (direction, is_cut) in self.is_cut.iter().zip(is_cut) {
            direction.store(is_cut, Ordering::Relaxed);
        }
    }

    /// Tap that receives the wire's packets, with the directions in the order given to
    /// [`Wire::start`].
    pub(super) fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// Observer of a direction, by its place in those given to [`Wire::start`].
    pub(super) fn observer(&self, way: usize) -> &Arc<Observer> {
        &self.observers[way]
    }

    /// Counters so far, in the order of the directions given to [`Wire::start`].
    pub fn counters(&self) -> [WireCounters; 2] {
        [*lock(&self.counters[0]), *lock(&self.counters[1])]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // An eventfd refuses a one only if 2^64 ones are unread.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(counters: &Mutex<WireCounters>) -> MutexGuard<'_, WireCounters> {
    counters.lock()
}

/// Body of the thread: fetches offered frames, delivers due packets, and sleeps until either may
/// have changed.
fn carry(
    epoch: Instant,
    devices: &[OwnedFd; 2],
    mut lanes: [Lane; 2],
    is_cut: &[AtomicBool; 2],
    stop: &EventFd,
) {
    let realtime = be_punctual();
    for lane in &mut lanes {
        lane.tally.realtime = realtime;
    }
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        let mut drained = true;
        for (lane, (from, to)) in lanes.iter_mut().zip([(0, 1), (1, 0)]) {
            lane.model.set_mtu(is_cut[from].load(Ordering::Relaxed).then_some(0));
            let (from, to) = (devices[from].as_fd(), devices[to].as_fd());
            drained &= lane.fetch(epoch, from, to, &mut frame);
            lane.settle(epoch.elapsed());
            lane.deliver_due(epoch, to);
            lane.publish();
        }
        let next = lanes.iter().filter_map(Lane::next).min();
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

/// Makes the calling thread run as soon as it is due, whatever else this machine does. Returns
/// `true` if the thread got real-time priority. Intended for a thread that sleeps most of the time.
pub fn be_punctual() -> bool {
    // By default the kernel may wake a sleeper 50 us late to save power.
    let _ = prctl::set_timerslack(1);
    go_first();
    become_realtime()
}

/// Requests the lowest real-time priority. The wire sleeps most of the time, but its work is due at
/// once, even if others want the processor. (Niceness and a shorter slice do not help.)
#[allow(unsafe_code)]
fn become_realtime() -> bool {
    // The kernel's `struct sched_param` is this one number. The call bypasses the C library because
    // musl's wrapper always returns ENOSYS.
    let lowest: libc::c_int = 1;
    // SAFETY: zero is the calling thread. The kernel only reads `lowest`, which outlives the call.
    unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_RR, &raw const lowest) == 0
    }
}

/// Requests priority over this machine's other threads, so that packets are on time even with busy
/// gateways and browsers. Only root gets it. Without it, the measurement decides if the run is
/// valid.
#[allow(unsafe_code)]
fn go_first() {
    // SAFETY: takes three numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, WIRE_NICE) };
}

/// Makes the calling thread yield to all others of this machine. Used for an attacker, who in
/// reality has a separate computer.
#[allow(unsafe_code)]
pub fn give_way() {
    // SAFETY: takes three numbers; 0 is the calling thread. Every process may lower its priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LAST_NICE) };
}

/// Sleeps until a device has a frame, the timeout expires, or the wire is stopped. Returns `true`
/// if it was stopped.
fn wait(devices: &[OwnedFd; 2], stop: &EventFd, timeout: Option<Duration>) -> bool {
    let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut fds = [
        readable(devices[0].as_fd()),
        readable(devices[1].as_fd()),
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
    ];
    // After an interrupted or failed poll the caller just reads the devices again.
    let _ = ppoll(&mut fds, timeout.map(TimeSpec::from), None);
    fds[2].any().unwrap_or(false)
}

/// Flow of a packet in a record.
const fn flow_of(is_others: bool) -> u64 {
    if is_others { OTHERS_FLOW } else { OWN_FLOW }
}

/// One direction: its model and the packets in flight.
struct Lane {
    model: Direction,
    way: usize,
    tap: Arc<Tap>,
    /// Ordered by delivery time, then by the order in which they were offered.
    under_way: BinaryHeap<Reverse<UnderWay>>,
    /// Packets in the queue under an AQM.
    waiting: BTreeMap<u64, Queued>,
    offered: u64,
    in_flight_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Arrival time of each packet of a frame, and `true` if it gets an ECN mark. `None` for a lost
    /// packet.
    fates: Vec<Option<(Duration, bool)>>,
    tally: WireCounters,
    counters: Arc<Mutex<WireCounters>>,
    observer: Arc<Observer>,
}

/// A packet whose fate an AQM has not decided yet.
struct Queued {
    at: Duration,
    bytes: usize,
    is_others: bool,
    frame: Vec<u8>,
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
            waiting: BTreeMap::new(),
            offered: 0,
            in_flight_bytes: 0,
            spare: Vec::new(),
            fates: Vec::new(),
            tally: WireCounters::default(),
            counters: Arc::default(),
            observer: Arc::default(),
        }
    }

    /// Takes up to a batch of frames from the sending host. Returns `true` if there were no more.
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

    /// Offers every packet of the frame to the model.
    fn admit(&mut self, now: Duration, frame: &[u8], to: BorrowedFd) {
        let segments = Segments::of(frame);
        let count = segments.map_or(1, |segments| segments.count());
        let capable = ecn::is_capable(frame);
        let is_others = share::is_others(frame);
        let flow = share::flow(frame);
        let mut fates = std::mem::take(&mut self.fates);
        fates.clear();
        for index in 0..count {
            let bytes = segments.map_or(frame.len() - HEADER_BYTES, |s| s.packet_bytes(index));
            let packet = Packet { bytes, flow, is_ect: capable };
            let waited = self.observer.is_on().then(|| self.model.backlog(now));
            let (fate, marked) = self.model.offer_packet(now, packet);
            if let Fate::Waiting(number) = fate {
                if let Some(frame) = self.copy(frame, segments, index) {
                    self.waiting.insert(number, Queued { at: now, bytes, is_others, frame });
                }
            } else if let Some(waited) = waited {
                self.observer.see(Passage {
                    flow: flow_of(is_others),
                    at: now,
                    bytes,
                    waited,
                    fate,
                });
            }
            self.tap.leave(self.way, || Seen::of(frame, segments, index, self.way, now, fate));
            if is_others {
                self.tally.others.add(bytes, fate);
            } else {
                self.tally.small += u64::from(SMALL.contains(&bytes));
                self.tally.large += u64::from(LARGE.contains(&bytes));
            }
            fates.push(match fate {
                Fate::Delivered { at } => Some((at, marked)),
                _ => None,
            });
        }
        // Publish before anybody can see the packets arrive.
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

    /// Puts one packet in flight.
    fn send_off(
        &mut self,
        (at, marked): (Duration, bool),
        frame: &[u8],
        segments: Option<Segments>,
        index: usize,
    ) {
        let Some(mut copy) = self.copy(frame, segments, index) else { return };
        if marked {
            ecn::mark(&mut copy);
        }
        self.offered += 1;
        self.under_way.push(Reverse(UnderWay { at, order: self.offered, frame: copy }));
    }

    /// Copies one packet of a frame. `None` if there is no memory for it.
    fn copy(&mut self, frame: &[u8], segments: Option<Segments>, index: usize) -> Option<Vec<u8>> {
        let mut copy = self.spare.pop().unwrap_or_default();
        match segments {
            Some(segments) => segments.cut(frame, index, &mut copy),
            None => {
                copy.clear();
                copy.extend_from_slice(frame);
            }
        }
        if self.in_flight_bytes + copy.capacity() > IN_FLIGHT_BYTES {
            self.tally.overflowed += 1;
            return None;
        }
        self.in_flight_bytes += copy.capacity();
        Some(copy)
    }

    /// Puts in flight what an AQM has let pass by `now`.
    fn settle(&mut self, now: Duration) {
        while let Some(decision) = self.model.decide(now) {
            let Some(queued) = self.waiting.remove(&decision.number) else { continue };
            let Queued { at: came, bytes, is_others, mut frame } = queued;
            if self.observer.is_on() {
                let (flow, fate, waited) =
                    (flow_of(is_others), decision.fate, now.saturating_sub(came));
                self.observer.see(Passage { flow, at: came, bytes, waited, fate });
            }
            let Fate::Delivered { at } = decision.fate else {
                self.in_flight_bytes -= frame.capacity();
                continue;
            };
            if decision.marked {
                ecn::mark(&mut frame);
            }
            self.offered += 1;
            self.under_way.push(Reverse(UnderWay { at, order: self.offered, frame }));
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.under_way.peek().map(|Reverse(packet)| packet.at)
    }

    /// Next time at which a packet is due, or leaves a queue under an AQM.
    fn next(&self) -> Option<Duration> {
        [self.next_due(), self.model.next_decision()].into_iter().flatten().min()
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

    /// Hands a frame of `packets` packets to the receiving kernel, which processes it at once.
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
