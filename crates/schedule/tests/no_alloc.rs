//! A scheduler in steady state allocates nothing.

#![allow(unsafe_code)] // implementing an allocator requires unsafe; this one counts and delegates

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bentpipe_schedule::{Class, ClassSettings, DatagramQueue, Limits, Params, Payload, Scheduler};
use bentpipe_units::BitRate;

struct Counting;

thread_local! {
    // Per thread, because the test harness allocates on its own threads.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system allocator unchanged. Counting allocates nothing,
// because the counter has a constant initialiser and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, so from the system, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FLOWS: u64 = 1000;
const PACKETS: u64 = 100_000;
/// Maximum number of queued datagrams per flow: a queue keeps the memory of its longest length.
const MAX_QUEUED: usize = 16;

#[test]
fn a_packet_allocates_nothing() {
    let mut scheduler = Scheduler::new();
    let limits = |rate, ceil| Limits {
        rate: Some(BitRate::from_bps(rate)),
        ceil: Some(BitRate::from_bps(ceil)),
    };
    for class in Class::ALL {
        let settings =
            ClassSettings { limits: limits(1_000_000, 50_000_000), ..Default::default() };
        scheduler.configure(class, settings, Duration::ZERO);
    }
    let params = Params::new(Duration::from_millis(600), None, 1500, Duration::from_secs(1));
    let mut flows: Vec<_> = (0..FLOWS)
        .map(|id| {
            let class = Class::ALL[id as usize % Class::ALL.len()];
            (scheduler.add(id, class, (id / 40) as u32), DatagramQueue::new())
        })
        .collect();
    for (handle, queue) in flows.iter_mut().step_by(2) {
        for flow in 0..MAX_QUEUED as u64 {
            queue.push(flow, 1200, Duration::ZERO);
            scheduler.queued(*handle, 1200);
        }
        scheduler.activate(*handle, Duration::ZERO);
    }
    let (mut now, mut sent, mut dropped) = (Duration::ZERO, 0, 0);
    let mut packets = |count: u64| {
        for packet in 0..count {
            // Half of the flows carry datagrams. Two are queued for each one sent, so CoDel drops
            // some.
            for flow in [packet * 7 % FLOWS, packet * 13 % FLOWS] {
                let (handle, queue) = &mut flows[flow as usize];
                scheduler.activate(*handle, now);
                if flow % 2 == 0 && queue.len() < MAX_QUEUED {
                    queue.push(flow, 1200, now);
                    scheduler.queued(*handle, 1200);
                }
            }
            now += Duration::from_micros(300);
            scheduler.charge(Class::BestEffort, 60, now);
            let Some(id) = scheduler.pick(now) else { continue };
            sent += 1;
            let (handle, queue) = &mut flows[id as usize];
            scheduler.record_payload(*handle, Payload { sent_bytes: 1200, received_bytes: 300 });
            if id % 2 == 1 {
                scheduler.spent(*handle, 1300, now);
                scheduler.deactivate(*handle);
                continue;
            }
            let popped = queue.pop(now, &params, |gone| {
                dropped += 1;
                scheduler.dropped(*handle, gone.bytes);
            });
            if let Some(popped) = popped {
                scheduler.unqueued(*handle, popped.bytes);
                scheduler.spent_datagram(*handle, popped.bytes, popped.waited, now);
            }
            if queue.is_empty() {
                scheduler.deactivate(*handle);
            }
        }
        (sent, dropped)
    };
    let (warm, _) = packets(PACKETS);
    let before = ALLOCATIONS.get();
    let (sent, dropped) = packets(PACKETS);
    let allocated = ALLOCATIONS.get() - before;
    assert!(sent - warm > PACKETS / 2 && dropped > 0, "{sent} sent and {dropped} dropped");
    assert_eq!(allocated, 0, "for {} packets", sent - warm);
}
