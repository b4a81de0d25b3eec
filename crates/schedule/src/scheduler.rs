//! Scheduler: choice of the flow whose bytes fill the next packet.

mod snapshot;

use std::time::Duration;

use bentpipe_units::ByteSize;

use crate::arena::{Arena, Handle};
use crate::budget::{Budget, DEFAULT_MEMORY};
use crate::counters::{Activity, ClassCounters, Counters, DelayHistogram, Payload};
use crate::drr::Drr;
use crate::paths::ClassPaths;
use crate::shares::{Limits, Shares};
use crate::subscribers::Subscribers;
use crate::{Class, Passenger};

pub use snapshot::{ClassActivity, FlowActivity, PassengerActivity, Snapshot, SnapshotLimits};

/// Identifier of a flow, chosen by the caller.
pub type FlowId = u64;

/// Settings of a class, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSettings {
    /// Rate limits.
    pub limits: Limits,
    /// Memory limit of its queued datagrams.
    pub memory: ByteSize,
    /// Paths that carry it.
    pub paths: ClassPaths,
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self { limits: Limits::default(), memory: DEFAULT_MEMORY, paths: ClassPaths::default() }
    }
}

/// Hierarchical scheduler: class, then passenger, then flow (see the crate's page).
///
/// The link pulls: it calls [`pick`](Self::pick) when a packet may leave, and
/// [`spent`](Self::spent) afterwards. The scheduler queues turns, not data. It allocates nothing
/// while no flow is added or removed. Calls are O(1), or O(log n) for memory; snapshots visit every
/// flow and passenger. A call with the handle of a removed flow does nothing.
#[derive(Debug, Default)]
pub struct Scheduler {
    shares: Shares,
    classes: [ClassState; Class::ALL.len()],
    subscribers: Subscribers,
    flows: Arena<Flow>,
    budget: Budget,
}

#[derive(Debug, Default)]
struct ClassState {
    /// Round robin of its passengers.
    drr: Drr,
    activity: Activity,
    /// Delays of sent data, since the beginning and since the last snapshot.
    delays: [DelayHistogram; 2],
    charged_bytes: u64,
    flows: usize,
}

#[derive(Debug)]
struct Flow {
    id: FlowId,
    class: Class,
    subscriber: u32,
    /// Time at which it became active; meaningless while it is inactive.
    since: Duration,
    /// Activity since it joined its class.
    activity: Activity,
}

impl Scheduler {
    /// Creates a scheduler without flows. Only memory is limited.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies settings to a class from `now` on.
    pub fn configure(&mut self, class: Class, settings: ClassSettings, now: Duration) {
        self.shares.configure(class, settings.limits, now);
        self.budget.limit(class, settings.memory);
    }

    /// Adds a flow that has nothing to send yet. The caller must [`remove`](Self::remove) it
    /// eventually.
    pub fn add(&mut self, id: FlowId, class: Class, passenger: Passenger) -> Handle {
        let subscriber = self.subscribers.enter(class, passenger);
        let (since, activity) = (Duration::ZERO, Activity::default());
        let flow = self.flows.insert(Flow { id, class, subscriber, since, activity });
        self.budget.enter(subscriber, flow);
        self.classes[class.index()].flows += 1;
        self.flows.handle(flow)
    }

    /// Removes the flow and releases the memory of its queued datagrams.
    pub fn remove(&mut self, handle: Handle) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.budget.take(class, subscriber, flow, u64::MAX);
        self.leave(flow);
        self.flows.remove(flow);
    }

    /// Moves the flow to another class. It keeps its passenger and stays active if it was. Its
    /// counters restart at zero: its past activity stays with the previous class.
    pub fn reclass(&mut self, handle: Handle, class: Class, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class: before, subscriber, .. } = self.flows[flow].value;
        if class == before {
            return;
        }
        let passenger = self.subscribers.arena[subscriber].value.passenger;
        let (was_active, queued) = (self.flows[flow].member.active, self.budget.of(flow));
        self.budget.take(before, subscriber, flow, queued);
        self.leave(flow);
        let subscriber = self.subscribers.enter(class, passenger);
        self.budget.enter(subscriber, flow);
        let value = &mut self.flows[flow].value;
        (value.class, value.subscriber, value.activity) = (class, subscriber, Activity::default());
        self.classes[class.index()].flows += 1;
        if queued > 0 {
            self.budget.add(class, subscriber, flow, queued);
        }
        if was_active {
            self.activate(handle, now);
        }
    }

    /// Marks the flow as having data since `now`. A `now` in the future counts as no wait. Repeated
    /// calls change nothing.
    pub fn activate(&mut self, handle: Handle, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        if self.flows[flow].member.active {
            return;
        }
        let value = &mut self.flows[flow].value;
        value.since = now;
        let (class, subscriber) = (value.class, value.subscriber);
        let drr = &mut self.subscribers.arena[subscriber].value.drr;
        drr.activate(&mut self.flows, flow);
        self.classes[class.index()].drr.activate(&mut self.subscribers.arena, subscriber);
    }

    /// Marks the flow as having nothing to send.
    pub fn deactivate(&mut self, handle: Handle) {
        let Some(flow) = self.flows.find(handle) else { return };
        if self.flows[flow].member.active {
            self.pause(flow);
        }
    }

    /// Flow whose turn it is. Returns `None` if no flow has data, or if the flows that do are at
    /// their class's ceiling. The answer stays valid until something is sent or changes, or time
    /// passes.
    pub fn pick(&mut self, now: Duration) -> Option<FlowId> {
        let (_, subscriber) = self.pick_subscriber(now)?;
        let flow = self.subscribers.arena[subscriber].value.drr.next(&mut self.flows)?;
        Some(self.flows[flow].value.id)
    }

    /// Returns `true` if the passenger of [`pick`](Self::pick)'s flow is new: one who sends little
    /// or has just begun. New passengers are served before others of their class, for one quantum.
    pub fn picks_new(&mut self, now: Duration) -> bool {
        let subscriber = self.pick_subscriber(now);
        subscriber
            .is_some_and(|(class, subscriber)| self.classes[class.index()].drr.is_new(subscriber))
    }

    fn pick_subscriber(&mut self, now: Duration) -> Option<(Class, u32)> {
        let classes = &self.classes;
        let class = self.shares.choose(|class| !classes[class.index()].drr.is_idle(), now)?;
        let subscriber = self.classes[class.index()].drr.next(&mut self.subscribers.arena)?;
        Some((class, subscriber))
    }

    /// Returns `true` if a flow of the class has data, even if the class is at its ceiling.
    pub fn is_backlogged(&self, class: Class) -> bool {
        !self.classes[class.index()].drr.is_idle()
    }

    /// Returns `true` if a flow's bytes would go before data of `class` that is not new, such as a
    /// repair packet. The comparison uses the guaranteed rates and past service of the classes.
    pub fn precedes(&mut self, class: Class, now: Duration) -> bool {
        let classes = &self.classes;
        let is_backlogged = |other: Class| other == class || !classes[other.index()].drr.is_idle();
        self.shares.choose(is_backlogged, now).is_some_and(|first| first != class)
    }

    /// Earliest time at which a flow that waits for its class's ceiling may send.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        let classes = &self.classes;
        self.shares.next_ready(|class| !classes[class.index()].drr.is_idle(), now)
    }

    /// Records that the flow sent `bytes` of a stream after waiting for its turn.
    pub fn spent(&mut self, handle: Handle, bytes: usize, now: Duration) {
        let Some(flow) = self.flows.find(handle) else { return };
        let active = self.flows[flow].member.active;
        let since = if active { self.flows[flow].value.since } else { now };
        self.account(flow, bytes, now.saturating_sub(since), now);
    }

    /// Records that the flow sent a datagram of `bytes` that had been queued for `waited`.
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

    /// Charges `bytes` to the class that are not new data of a flow: repair packets,
    /// retransmissions, packet overhead. They count against its rate, its ceiling and its share.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        self.shares.charge(class, bytes, now);
        self.classes[class.index()].charged_bytes += bytes as u64;
        self.resync_if_idle();
    }

    // Memory of queued datagrams.

    /// Records that the flow queued a datagram. `bytes` should include all memory that belongs to
    /// the datagram, so that empty datagrams have a limit too. Then drop what
    /// [`drop_victim`](Self::drop_victim) demands.
    pub fn queued(&mut self, handle: Handle, bytes: usize) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.budget.add(class, subscriber, flow, bytes as u64);
    }

    /// Records that a datagram left its queue to be sent; `bytes` as when it was queued.
    pub fn unqueued(&mut self, handle: Handle, bytes: usize) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.budget.take(class, subscriber, flow, bytes as u64);
    }

    /// Records that a datagram was dropped from its queue; `bytes` as when it was queued.
    pub fn dropped(&mut self, handle: Handle, bytes: usize) {
        self.unqueued(handle, bytes);
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.flows[flow].value.activity.dropped(bytes as u64);
        self.subscribers.arena[subscriber].value.activity.dropped(bytes as u64);
        self.classes[class.index()].activity.dropped(bytes as u64);
    }

    /// Flow that must drop its oldest datagram: the largest flow of the passenger with the most
    /// queued bytes. Returns `None` if the datagrams of the class are within their memory limit.
    pub fn drop_victim(&self, class: Class) -> Option<FlowId> {
        self.budget.drop_victim(class).map(|flow| self.flows[flow].value.id)
    }

    // Counters.

    /// Counts payload that the flow carried in either direction. It does not affect scheduling.
    pub fn record_payload(&mut self, handle: Handle, payload: Payload) {
        let Some(flow) = self.flows.find(handle) else { return };
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.flows[flow].value.activity.record_payload(payload);
        self.subscribers.arena[subscriber].value.activity.record_payload(payload);
        self.classes[class.index()].activity.record_payload(payload);
    }

    /// Counters of a class.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        let ClassState { activity, charged_bytes, flows, .. } = &self.classes[class.index()];
        let (charged_bytes, flows) = (*charged_bytes, *flows);
        let queued_bytes = self.budget.bytes(class);
        ClassCounters { sent: activity.total, charged_bytes, flows, queued_bytes }
    }

    /// Counters of a flow, unless it was removed.
    pub fn flow_counters(&self, handle: Handle) -> Option<Counters> {
        self.flows.find(handle).map(|flow| self.flows[flow].value.activity.total)
    }

    fn account(&mut self, flow: u32, bytes: usize, waited: Duration, now: Duration) {
        let value = &mut self.flows[flow].value;
        value.activity.sent(bytes as u64, waited);
        value.since = now;
        let (class, subscriber) = (value.class, value.subscriber);
        let state = &mut self.subscribers.arena[subscriber].value;
        state.activity.sent(bytes as u64, waited);
        state.drr.spent(&mut self.flows, flow, bytes);
        let state = &mut self.classes[class.index()];
        state.activity.sent(bytes as u64, waited);
        state.delays.iter_mut().for_each(|delays| delays.add(waited));
        state.drr.spent(&mut self.subscribers.arena, subscriber, bytes);
        self.shares.spent(class, bytes, now);
        self.resync_if_idle();
    }

    /// Deactivates an active flow.
    fn pause(&mut self, flow: u32) {
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        let drr = &mut self.subscribers.arena[subscriber].value.drr;
        drr.deactivate(&mut self.flows, flow);
        if drr.is_idle() {
            self.classes[class.index()].drr.deactivate(&mut self.subscribers.arena, subscriber);
            self.resync_if_idle();
        }
    }

    /// Takes the flow from its subscriber, and forgets the oldest idle subscriber if there are too
    /// many.
    fn leave(&mut self, flow: u32) {
        if self.flows[flow].member.active {
            self.pause(flow);
        }
        let Flow { class, subscriber, .. } = self.flows[flow].value;
        self.subscribers.arena[subscriber].value.drr.remove(&mut self.flows, flow);
        self.classes[class.index()].flows -= 1;
        if let Some(oldest) = self.subscribers.leave(subscriber) {
            let class = self.subscribers.arena[oldest].value.class;
            self.classes[class.index()].drr.remove(&mut self.subscribers.arena, oldest);
            self.subscribers.forget(oldest);
        }
    }

    fn resync_if_idle(&mut self) {
        if self.classes.iter().all(|class| class.drr.is_idle()) {
            self.shares.resync();
        }
    }
}
