//! Choice of the flow whose bytes fill the next packet.

mod look;

use std::time::Duration;

use bentpipe_units::ByteSize;

use crate::arena::{Arena, Handle};
use crate::budget::{Budget, DEFAULT_MEMORY};
use crate::counters::{Activity, Carried, ClassCounters, Counters, Waits};
use crate::ring::Ring;
use crate::seats::Seats;
use crate::shares::{Limits, Shares};
use crate::{Class, Passenger};

pub use look::{ClassActivity, FlowActivity, Most, SeatActivity, Seen};

/// Caller's identifier of a flow.
pub type FlowId = u64;

/// Bounds of a class, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSettings {
    /// Rate bounds.
    pub limits: Limits,
    /// Memory bound of its queued datagrams.
    pub memory: ByteSize,
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self { limits: Limits::default(), memory: DEFAULT_MEMORY }
    }
}

/// Class, then passenger, then flow: see the crate's own page.
///
/// The link pulls: it asks [`pick`](Self::pick) when a packet may leave, and says afterwards what
/// was [`spent`](Self::spent). Nothing is queued here, only turns. Nothing is allocated while flows
/// neither come nor go, and every call but those about passengers is O(1), or O(log n) for memory.
/// Calls with the handle of a flow that was removed do nothing.
#[derive(Debug, Default)]
pub struct Scheduler {
    shares: Shares,
    classes: [ClassState; Class::ALL.len()],
    seats: Seats,
    flows: Arena<Flow>,
    budget: Budget,
}

#[derive(Debug, Default)]
struct ClassState {
    /// Its passengers take turns here.
    ring: Ring,
    activity: Activity,
    /// Waiting times of what was sent, from the beginning and since the last look.
    waits: [Waits; 2],
    charged_bytes: u64,
    flows: usize,
}

#[derive(Debug)]
struct Flow {
    id: FlowId,
    class: Class,
    seat: u32,
    /// Since when it waits for its turn, if it does.
    since: Duration,
    /// While it is of its class.
    activity: Activity,
}

impl Scheduler {
    /// No flows, and no limits but those of memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// From `now` on the class has these settings.
    pub fn configure(&mut self, class: Class, settings: ClassSettings, now: Duration) {
        self.shares.configure(class, settings.limits, now);
        self.budget.limit(class, settings.memory);
    }

    /// A flow more, which has nothing to send yet. [`remove`](Self::remove) it some time.
    pub fn add(&mut self, id: FlowId, class: Class, passenger: Passenger) -> Handle {
        let seat = self.seats.enter(class, passenger);
        let (since, activity) = (Duration::ZERO, Activity::default());
        let flow = self.flows.insert(Flow { id, class, seat, since, activity });
        self.budget.enter(seat, flow);
        self.classes[class.index()].flows += 1;
        self.flows.handle(flow)
    }

    /// The flow is over, and what it had queued is dropped.
    pub fn remove(&mut self, handle: Handle) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.budget.take(class, seat, flow, u64::MAX);
        self.leave(flow);
        self.flows.remove(flow);
    }

    /// The flow is of another class from now on; it stays its passenger's, and goes on if it has
    /// something to send. Its counters begin anew: what it did before stays with the class before.
    pub fn reclass(&mut self, handle: Handle, class: Class, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class: before, seat, .. } = self.flows[flow].value;
        if class == before {
            return;
        }
        let passenger = self.seats.arena[seat].value.passenger;
        let (was_active, queued) = (self.flows[flow].member.is_active(), self.budget.of(flow));
        self.budget.take(before, seat, flow, queued);
        self.leave(flow);
        let seat = self.seats.enter(class, passenger);
        self.budget.enter(seat, flow);
        let value = &mut self.flows[flow].value;
        (value.class, value.seat, value.activity) = (class, seat, Activity::default());
        self.classes[class.index()].flows += 1;
        if queued > 0 {
            self.budget.add(class, seat, flow, queued);
        }
        if was_active {
            self.activate(handle, now);
        }
    }

    /// The flow has something to send since `now`; it counts as no wait where that is yet to come.
    /// Saying it again changes nothing.
    pub fn activate(&mut self, handle: Handle, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        if self.flows[flow].member.is_active() {
            return;
        }
        let value = &mut self.flows[flow].value;
        value.since = now;
        let (class, seat) = (value.class, value.seat);
        let ring = &mut self.seats.arena[seat].value.ring;
        ring.activate(&mut self.flows, flow);
        self.classes[class.index()].ring.activate(&mut self.seats.arena, seat);
    }

    /// The flow has nothing to send.
    pub fn deactivate(&mut self, handle: Handle) {
        let Some(flow) = self.flows.find(handle) else { return };
        if self.flows[flow].member.is_active() {
            self.pause(flow);
        }
    }

    /// The flow whose turn it is; `None` when none has anything to send, or those that have are at
    /// their class's ceiling. The answer stands until something is spent or changes, or time passes.
    pub fn pick(&mut self, now: Duration) -> Option<FlowId> {
        let (_, seat) = self.pick_seat(now)?;
        let flow = self.seats.arena[seat].value.ring.next(&mut self.flows)?;
        Some(self.flows[flow].value.id)
    }

    /// Returns `true` if the passenger of [`pick`](Self::pick)'s flow is new: one who asks for
    /// little or has just begun. New passengers go before the others of their class, for one
    /// quantum.
    pub fn picks_new(&mut self, now: Duration) -> bool {
        let seat = self.pick_seat(now);
        seat.is_some_and(|(class, seat)| self.classes[class.index()].ring.is_new(seat))
    }

    fn pick_seat(&mut self, now: Duration) -> Option<(Class, u32)> {
        let classes = &self.classes;
        let class = self.shares.choose(|class| !classes[class.index()].ring.is_idle(), now)?;
        let seat = self.classes[class.index()].ring.next(&mut self.seats.arena)?;
        Some((class, seat))
    }

    /// Returns `true` if a flow of the class has something to send, even if the class is at its
    /// ceiling.
    pub fn waits(&self, class: Class) -> bool {
        !self.classes[class.index()].ring.is_idle()
    }

    /// Returns `true` if a flow's bytes would go before something of `class` that is not new data
    /// of a flow, such as a repair. The comparison uses the guaranteed rates and past service of
    /// the classes.
    pub fn precedes(&mut self, class: Class, now: Duration) -> bool {
        let classes = &self.classes;
        let waits = |other: Class| other == class || !classes[other.index()].ring.is_idle();
        self.shares.choose(waits, now).is_some_and(|first| first != class)
    }

    /// Time at which some flow that waits for its class's ceiling may send.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        let classes = &self.classes;
        self.shares.next_ready(|class| !classes[class.index()].ring.is_idle(), now)
    }

    /// The flow sent `bytes` of a stream, having waited for its turn.
    pub fn spent(&mut self, handle: Handle, bytes: usize, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        let active = self.flows[flow].member.is_active();
        let since = if active { self.flows[flow].value.since } else { now };
        self.account(flow, bytes, now.saturating_sub(since), now);
    }

    /// The flow sent a datagram of `bytes` that had been queued for `waited`.
    pub fn spent_datagram(
        &mut self,
        handle: Handle,
        bytes: usize,
        waited: Duration,
        now: Duration,
    ) {
        let Some(flow) = self.flows.find(handle) else { return };
        self.account(flow, bytes, waited, now);
    }

    /// The class used `bytes` that are no flow's new data: repairs, retransmissions, what packets
    /// add. They count against its rate, its ceiling and its share.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        self.shares.charge(class, bytes, now);
        self.classes[class.index()].charged_bytes += bytes as u64;
        self.forgive_if_idle();
    }

    // What datagrams take while they are queued.

    /// The flow queued a datagram. Let `bytes` be what it takes with all that is kept about it, so
    /// that empty ones have a limit too. Then drop what [`overflow`](Self::overflow) asks for.
    pub fn queued(&mut self, handle: Handle, bytes: usize) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.budget.add(class, seat, flow, bytes as u64);
    }

    /// A datagram of the flow left its queue to be sent; `bytes` as when it was queued.
    pub fn unqueued(&mut self, handle: Handle, bytes: usize) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.budget.take(class, seat, flow, bytes as u64);
    }

    /// A datagram of the flow was dropped from its queue; `bytes` as when it was queued.
    pub fn dropped(&mut self, handle: Handle, bytes: usize) {
        self.unqueued(handle, bytes);
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.flows[flow].value.activity.dropped(bytes as u64);
        self.seats.arena[seat].value.activity.dropped(bytes as u64);
        self.classes[class.index()].activity.dropped(bytes as u64);
    }

    /// While the class's datagrams take more than they may: of the passenger with most queued the
    /// flow with most, which must give up its oldest.
    pub fn overflow(&self, class: Class) -> Option<FlowId> {
        self.budget.pays(class).map(|flow| self.flows[flow].value.id)
    }

    // What was done.

    /// The flow carried contents, in either direction: for the counters alone.
    pub fn carried(&mut self, handle: Handle, carried: Carried) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.flows[flow].value.activity.carried(carried);
        self.seats.arena[seat].value.activity.carried(carried);
        self.classes[class.index()].activity.carried(carried);
    }

    /// Counters of a class.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        let ClassState { activity, charged_bytes, flows, .. } = &self.classes[class.index()];
        let (charged_bytes, flows) = (*charged_bytes, *flows);
        let queued_bytes = self.budget.bytes(class);
        ClassCounters { sent: activity.total, charged_bytes, flows, queued_bytes }
    }

    /// Counters of a flow that was not removed.
    pub fn flow_counters(&self, handle: Handle) -> Option<Counters> {
        self.flows.find(handle).map(|flow| self.flows[flow].value.activity.total)
    }

    fn account(&mut self, flow: u32, bytes: usize, waited: Duration, now: Duration) {
        let value = &mut self.flows[flow].value;
        value.activity.sent(bytes as u64, waited);
        value.since = now;
        let (class, seat) = (value.class, value.seat);
        let state = &mut self.seats.arena[seat].value;
        state.activity.sent(bytes as u64, waited);
        state.ring.spent(&mut self.flows, flow, bytes);
        let state = &mut self.classes[class.index()];
        state.activity.sent(bytes as u64, waited);
        state.waits.iter_mut().for_each(|waits| waits.add(waited));
        state.ring.spent(&mut self.seats.arena, seat, bytes);
        self.shares.spent(class, bytes, now);
        self.forgive_if_idle();
    }

    /// An active flow has nothing more to send.
    fn pause(&mut self, flow: u32) {
        let Flow { class, seat, .. } = self.flows[flow].value;
        let ring = &mut self.seats.arena[seat].value.ring;
        ring.deactivate(&mut self.flows, flow);
        if ring.is_idle() {
            self.classes[class.index()].ring.deactivate(&mut self.seats.arena, seat);
            self.forgive_if_idle();
        }
    }

    /// The flow leaves its seat, and a seat that nobody needs is given up.
    fn leave(&mut self, flow: u32) {
        if self.flows[flow].member.is_active() {
            self.pause(flow);
        }
        let Flow { class, seat, .. } = self.flows[flow].value;
        self.seats.arena[seat].value.ring.remove(&mut self.flows, flow);
        self.classes[class.index()].flows -= 1;
        if let Some(oldest) = self.seats.leave(seat) {
            let class = self.seats.arena[oldest].value.class;
            self.classes[class.index()].ring.remove(&mut self.seats.arena, oldest);
            self.seats.forget(oldest);
        }
    }

    fn forgive_if_idle(&mut self) {
        if self.classes.iter().all(|class| class.ring.is_idle()) {
            self.shares.forgive();
        }
    }
}
