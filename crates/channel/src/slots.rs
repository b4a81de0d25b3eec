//! Sender in the slots of a [`DemandSpec`](crate::demand::DemandSpec).
//!
//! Every packet requests the slots that it still needs. Nothing offered later can change its
//! transmission, so its fate is known at once.

use std::collections::VecDeque;

use crate::capacity::{Work, work};
use crate::demand::DemandSpec;
use crate::series::nanos;
use crate::transmission::Transmission;

/// Maximum number of packets that wait for slots, whatever their size: 65,536 × 16 bytes = 1 MB. A
/// queue of 100 MB holds more packets of 1500 bytes than this.
const MAX_WAITING: usize = 65_536;

/// Slots of one direction.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    frame_ns: u64,
    slots: u64,
    free: u64,
    request_ns: u64,
    limit_bytes: u64,
    /// Capacity of one slot, in work × slots per frame, so that it is a whole number.
    slot_work: Work,
    /// Slot being filled, counted from time zero, and its remaining capacity.
    slot: u64,
    left: Work,
    /// Granted slots that have not passed, by frame, and their sum.
    grants: VecDeque<Grant>,
    granted: u64,
    waiting: VecDeque<QueuedPacket>,
    waiting_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    frame: u64,
    slots: u64,
    /// Number of its slots that have passed or are being filled.
    passed: u64,
}

#[derive(Debug, Clone, Copy)]
struct QueuedPacket {
    finish_ns: u64,
    bytes: u64,
}

impl Demand {
    pub fn new(spec: &DemandSpec, rate_bps: u64, limit_bytes: u64) -> Self {
        let frame_ns = nanos(spec.frame);
        Self {
            frame_ns,
            slots: u64::from(spec.slots),
            free: u64::from(spec.free_slots),
            request_ns: nanos(spec.request_delay),
            limit_bytes,
            slot_work: Work::from(rate_bps) * Work::from(frame_ns),
            slot: 0,
            left: 0,
            grants: VecDeque::new(),
            granted: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    pub fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        while let Some(first) = self.waiting.front().filter(|first| first.finish_ns <= now_ns) {
            self.waiting_bytes -= first.bytes;
            self.waiting.pop_front();
        }
        self.waiting_bytes
    }

    /// Time at which the last accepted packet that may still wait is sent; zero if none waits.
    pub fn finish_ns(&self) -> u64 {
        self.waiting.back().map_or(0, |last| last.finish_ns)
    }

    pub fn offer(&mut self, now_ns: u64, packet_bytes: usize) -> Option<Transmission> {
        let packet_bytes = packet_bytes as u64;
        let queued = self.queued_bytes(now_ns);
        let full = queued.saturating_add(packet_bytes) > self.limit_bytes;
        if queued > 0 && full || self.waiting.len() >= MAX_WAITING {
            return None;
        }
        let first = self.first_slot_from(now_ns);
        if first > self.slot {
            self.left = 0;
            self.pass_until(first);
        }
        // An empty packet still needs room in a slot.
        let packet_work = work(packet_bytes.max(1)) * Work::from(self.slots);
        self.request(packet_work, now_ns);
        let transmission = self.fill(packet_work);
        let transmission =
            Transmission { start_ns: transmission.start_ns.max(now_ns), ..transmission };
        self.waiting
            .push_back(QueuedPacket { finish_ns: transmission.finish_ns, bytes: packet_bytes });
        self.waiting_bytes += packet_bytes;
        Some(transmission)
    }

    /// Requests the slots that `packet_work` needs beyond those already granted.
    fn request(&mut self, packet_work: Work, now_ns: u64) {
        let available = self.left + Work::from(self.granted) * self.slot_work;
        let missing = packet_work.saturating_sub(available).div_ceil(self.slot_work);
        let mut missing = u64::try_from(missing).unwrap_or(u64::MAX);
        let room = self.slots - self.free;
        if room == 0 {
            return;
        }
        self.granted += missing;
        let first_frame = now_ns.saturating_add(self.request_ns).div_ceil(self.frame_ns);
        let mut frame = first_frame.max(self.slot / self.slots);
        while missing > 0 {
            let last = self.grants.back_mut().filter(|last| last.frame >= frame);
            let slots = match last {
                Some(last) => {
                    frame = last.frame + 1;
                    let slots = missing.min(room - last.slots);
                    last.slots += slots;
                    slots
                }
                None => {
                    let slots = missing.min(room);
                    self.grants.push_back(Grant { frame, slots, passed: 0 });
                    slots
                }
            };
            missing -= slots;
        }
    }

    /// Fills slots with the work, in at most one step per slot.
    fn fill(&mut self, mut packet_work: Work) -> Transmission {
        if self.left == 0 {
            self.open(self.slot);
        }
        let start_ns = self.start_of(self.slot);
        loop {
            let here = self.left.min(packet_work);
            self.left -= here;
            packet_work -= here;
            if packet_work == 0 {
                let finish_ns = self.start_of(self.slot + 1);
                if self.left == 0 {
                    self.pass_until(self.slot + 1);
                }
                return Transmission { start_ns, finish_ns };
            }
            self.open(self.slot + 1);
        }
    }

    /// Opens the first usable slot from `slot` on.
    fn open(&mut self, mut slot: u64) {
        loop {
            self.pass_until(slot);
            let (frame, index) = (slot / self.slots, slot % self.slots);
            let granted = self.grants.front_mut().filter(|grant| grant.frame == frame);
            if index < self.free {
                break;
            }
            if let Some(grant) = granted
                && index < self.free + grant.slots
            {
                grant.passed += 1;
                self.granted -= 1;
                break;
            }
            let next = self.grants.iter().find(|grant| grant.frame > frame);
            slot = match next {
                // Every packet requested what it lacks, so without free slots there are grants.
                Some(grant) if self.free == 0 => grant.frame * self.slots,
                _ => (frame + 1) * self.slots,
            };
        }
        self.left = self.slot_work;
    }

    /// Moves to `slot`. Earlier grants have passed.
    fn pass_until(&mut self, slot: u64) {
        self.slot = slot;
        let (frame, index) = (slot / self.slots, slot % self.slots);
        while let Some(first) = self.grants.front_mut().filter(|first| first.frame <= frame) {
            let passed = match first.frame == frame {
                true => index.saturating_sub(self.free).min(first.slots),
                false => first.slots,
            };
            self.granted -= passed.saturating_sub(first.passed);
            first.passed = first.passed.max(passed);
            if first.frame == frame {
                return;
            }
            self.grants.pop_front();
        }
    }

    /// Start of `slot`, rounded up to whole nanoseconds.
    fn start_of(&self, slot: u64) -> u64 {
        let ns = (Work::from(slot) * Work::from(self.frame_ns)).div_ceil(Work::from(self.slots));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// First slot that begins at `now_ns` or later.
    fn first_slot_from(&self, now_ns: u64) -> u64 {
        let slot =
            (Work::from(now_ns) * Work::from(self.slots)).div_ceil(Work::from(self.frame_ns));
        u64::try_from(slot).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Frames of 40 ms with 8 slots; at 128 kbit/s a slot is 5 ms and 80 bytes.
    fn demand(free: u32, request_ms: u64, limit_bytes: u64) -> Demand {
        let text = format!(
            "frame = '40 ms'\nslots = 8\nfree-slots = {free}\nrequest-delay = '{request_ms} ms'"
        );
        Demand::new(&toml::from_str(&text).unwrap(), 128_000, limit_bytes)
    }

    fn finish_ms(demand: &mut Demand, at_ms: u64, bytes: usize) -> u64 {
        demand.offer(at_ms * MS, bytes).unwrap().finish_ns / MS
    }

    #[test]
    fn a_packet_waits_for_its_grant() {
        let mut link = demand(0, 500, 10_000);
        // Requested at 10 ms and granted at 510 ms; the next frame begins at 520 ms. The packet
        // takes two of its slots.
        assert_eq!(finish_ms(&mut link, 10, 160), 530);
        // Requested at 21 ms and granted at 521 ms: the frame at 560 ms.
        assert_eq!(finish_ms(&mut link, 21, 160), 570);
    }

    #[test]
    fn free_slots_need_no_grant() {
        let mut link = demand(1, 500, 10_000);
        assert_eq!(finish_ms(&mut link, 0, 80), 5);
        // The free slot of the frame at 40 ms has begun; the next one is at 80 ms.
        assert_eq!(finish_ms(&mut link, 41, 80), 85);
        // Only a packet offered before a slot begins can use its second half.
        assert_eq!(finish_ms(&mut link, 100, 40), 125);
        assert_eq!(finish_ms(&mut link, 110, 40), 125);
        assert_eq!(finish_ms(&mut link, 121, 40), 165);
        // Twelve slots: the free ones from 200 to 600 ms, and the one at 520 ms that the very first
        // packet requested and did not need.
        assert_eq!(finish_ms(&mut link, 170, 960), 605);
    }

    #[test]
    fn the_rest_of_a_slot_expires() {
        let mut link = demand(1, 500, 10_000);
        assert_eq!([finish_ms(&mut link, 0, 40), finish_ms(&mut link, 1, 120)], [5, 85]);
    }

    #[test]
    fn a_frame_never_carries_more_than_its_slots() {
        let mut link = demand(2, 0, 100_000);
        let finish: Vec<u64> = (0..40).map(|_| finish_ms(&mut link, 0, 640)).collect();
        let whole_frames: Vec<u64> = (1..=40).map(|frame| frame * 40).collect();
        assert_eq!(finish, whole_frames);
    }

    #[test]
    fn with_only_free_slots_the_link_has_a_plain_rate() {
        let mut link = demand(8, 500, 100_000);
        assert_eq!(finish_ms(&mut link, 3, 80), 10);
        assert_eq!(finish_ms(&mut link, 3, 800), 60);
    }

    #[test]
    fn unused_grants_expire() {
        let mut link = demand(4, 200, 10_000);
        // Sent in free slots at once, although 4 more were requested.
        assert_eq!(finish_ms(&mut link, 0, 640), 60);
        // Much later the grants are gone: four free slots, then the next four.
        assert_eq!(finish_ms(&mut link, 1_000, 640), 1_060);
    }

    proptest! {

        #[test]
        fn packets_stay_in_order_and_wait_at_most_for_their_grant(
            free in 0u32..8,
            request_ms in 0u64..700,
            packets in prop::collection::vec((0u64..200, 1usize..1500), 1..100),
        ) {
            let mut link = demand(free, request_ms, u64::MAX);
            let (mut now_ms, mut last, mut ideal_ns) = (0, 0, 0u64);
            for (gap_ms, bytes) in packets {
                now_ms += gap_ms;
                let transmission = link.offer(now_ms * MS, bytes).unwrap();
                prop_assert!(transmission.start_ns >= now_ms * MS && transmission.finish_ns >= last);
                last = transmission.finish_ns;
                // Never faster than the rate of all slots.
                let sending_ns = bytes as u64 * 8 * 1_000_000_000 / 128_000;
                ideal_ns = ideal_ns.max(now_ms * MS) + sending_ns;
                prop_assert!(transmission.finish_ns >= ideal_ns);
                // Never later than if every slot were requested again: the request delay, the rest
                // of a frame, then frames of the slots that are not free.
                let frames = (link.queued_bytes(now_ms * MS).div_ceil(80)).div_ceil(8 - u64::from(free)) + 2;
                prop_assert!(transmission.finish_ns <= (now_ms + request_ms + 40 + frames * 40) * MS);
            }
        }

        #[test]
        fn a_standing_queue_gets_the_whole_rate(free in 0u32..=8, request_ms in 0u64..300) {
            let mut link = demand(free, request_ms, u64::MAX);
            // Ten seconds of traffic at once.
            let last = (0..160).map(|_| link.offer(0, 1000).unwrap().finish_ns).last().unwrap();
            let wait = if free == 8 { 0 } else { request_ms + 40 };
            prop_assert!(last <= (10_000 + wait + 80) * MS, "{last}");
        }
    }
}
