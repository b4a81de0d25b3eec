//! All flows of a session: what they may send next, what came for them, and when they end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bentpipe_schedule::{Class, ClassSettings, Handle, PerClass, Scheduler};

use super::backlog::{Backlog, Owner, PutOff, Ready};
use super::queues::Datagrams;
use super::{Pool, Pressure, Read, RecvFlow, SendFlow, Violation, Write};
use crate::claim::Claim;
use crate::code::ResetCode;
use crate::lane::{Lane, RangeSet};
use crate::settings::Lifetimes;
use crate::target::Target;
use crate::wire::frame::OpenDatagrams;

/// So many pieces that wait for earlier bytes, over all flows, are many: at some 100 bytes beside
/// their contents they are 6.5 MB. Then only each lane's oldest missing symbol is taken, until there
/// are fewer; a peer that makes twice as many all the same is no correct one.
const MANY_PIECES: usize = 1 << 16;

/// Agreement of the two ends, and bounds of this end.
#[derive(Debug, Clone)]
pub struct Terms {
    /// This end opens flows (the air); the other accepts them.
    pub opens: bool,
    pub max_flows: usize,
    /// Bytes of each flow that may always be in flight to us.
    pub reserve: u64,
    /// The same, at the peer.
    pub peer_reserve: u64,
    pub receive_memory: u64,
    pub flow_send_buffer: u64,
    /// For bytes that have not left yet.
    pub send_memory: u64,
    pub flow_idle: Duration,
    pub flow_unread: Duration,
    /// Limits of each class of what we send.
    pub classes: PerClass<ClassSettings>,
    /// For datagrams that wait to be read.
    pub datagram_memory: u64,
    pub datagram_idle: Duration,
    pub lifetimes: Lifetimes,
}

/// Something the owner of a flow should hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowEvent {
    /// The peer opened a flow.
    Opened {
        /// Its number.
        flow: u64,
        /// Destination.
        target: Target,
        /// Class.
        class: Class,
        /// Number of its passenger.
        passenger: u32,
    },
    /// The peer opened a flow of datagrams.
    OpenedDatagrams {
        /// Its number.
        flow: u64,
        /// Description of the flow to open.
        open: OpenDatagrams,
    },
    /// It may be worth reading, writing or asking again.
    Wake(u64),
}

#[derive(Debug)]
pub(super) struct Flow {
    /// Destination; `None` until its OPEN has arrived.
    pub(super) target: Option<Target>,
    pub(super) class: Class,
    pub(super) passenger: u32,
    /// Its place in the scheduler, once it had something to send.
    pub(super) turn: Option<Handle>,
    /// Unsent bytes as counted, and their class.
    pub(super) counted: (Class, u64),
    /// Backlog as counted, and its owner.
    pub(super) waiting: (Owner, Ready),
    pub(super) send: SendFlow,
    pub(super) recv: RecvFlow,
    /// Credit beyond the reserve, as the pool accounts for it.
    lent: u64,
    /// Unsent bytes beyond the share that every flow has, as the pool accounts for them.
    pub(super) lent_to_send: u64,
    /// STREAM may be sent: our OPEN has left, or the peer's has come.
    pub(super) opened: bool,
    pub(super) ended: Option<ResetCode>,
    /// Nobody holds the flow any more.
    pub(super) released: bool,
    pub(super) active: Duration,
    /// At the air what was claimed of it, at the ground what the air claims.
    pub(super) claim: Option<Claim>,
    /// The class that the ground gave it for its claim.
    pub(super) confirmed: Option<Class>,
    pub(super) control: Control,
}

/// Frames of a flow that wait for the next urgent symbol: an opening for the flow's turn, and all else
/// for the opening.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Encoded target of a stream; of datagrams the whole frame.
    pub(super) open: Option<Vec<u8>>,
    pub(super) claim: bool,
    pub(super) class: bool,
    pub(super) credit: bool,
    pub(super) stop: Option<ResetCode>,
    pub(super) reset: Option<ResetCode>,
    pub(super) queued: bool,
}

impl Control {
    pub(super) fn is_empty(&self) -> bool {
        let bits = self.claim || self.class || self.credit;
        self.open.is_none() && !bits && self.stop.is_none() && self.reset.is_none()
    }
}

/// Every flow of a session.
#[derive(Debug)]
pub struct FlowTable {
    pub(super) terms: Terms,
    pub(super) flows: BTreeMap<u64, Flow>,
    pub(super) datagrams: Datagrams,
    /// Pieces that wait for earlier bytes, over all flows.
    pieces: usize,
    /// Received bytes that were not read yet, over all flows.
    received_bytes: u64,
    /// Numbers of flows that were ever here.
    pub(super) seen: RangeSet,
    pub(super) scheduler: Scheduler,
    /// The most favoured class that the peer's flows may have.
    pub(super) highest_class: Class,
    pub(super) control: VecDeque<u64>,
    pub(super) refusals: VecDeque<(u64, ResetCode)>,
    /// Bytes of control that went before the flows since one of them had its turn.
    pub(super) led_bytes: usize,
    /// Lanes that accept another symbol …
    pub(super) rooms: [bool; Lane::ALL.len()],
    /// … and the flows that wait until theirs does.
    pub(super) held: [BTreeMap<u64, Class>; Lane::ALL.len()],
    /// Number of these, by class.
    pub(super) held_of: PerClass<usize>,
    pool: Pool,
    /// Unsent bytes that every flow may always hold; all of them together half of the send memory.
    pub(super) send_share: u64,
    pub(super) send_pool: Pool,
    /// Window that fills the link towards us: eight bandwidth-delay products.
    want_window: u64,
    /// Bytes in flight to the peer at a time when the link is full.
    pub(super) in_flight_bytes: u64,
    /// A flow that was quiet for so long is sparse again.
    pub(super) quiet: Duration,
    pub(super) unsent_bytes: usize,
    /// The same by class: what [`Flow::counted`] says of each flow.
    pub(super) unsent: PerClass<u64>,
    /// The same by passenger and class, of what could leave: what [`Flow::waiting`] says of each flow.
    pub(super) backlog: Backlog,
    pub(super) put_off: PutOff,
    /// Writers wait for memory that another flow's bytes take.
    pub(super) starved: bool,
    pub(super) events: VecDeque<FlowEvent>,
    /// Beginning of the session, and time of the last look at its traffic.
    pub(super) began: Duration,
    pub(super) looked: Duration,
}

impl FlowTable {
    pub fn new(terms: Terms, now: Duration) -> Self {
        let flows = terms.max_flows.max(1) as u64;
        let shared = terms.receive_memory.saturating_sub(flows * terms.reserve);
        let send_share = (terms.send_memory / 2 / flows).min(terms.flow_send_buffer);
        let mut table = Self {
            flows: BTreeMap::new(),
            datagrams: Datagrams::default(),
            pieces: 0,
            received_bytes: 0,
            seen: RangeSet::default(),
            scheduler: Scheduler::new(),
            highest_class: Class::Operator,
            control: VecDeque::new(),
            refusals: VecDeque::new(),
            led_bytes: 0,
            rooms: [true; Lane::ALL.len()],
            held: Default::default(),
            held_of: PerClass::default(),
            pool: Pool::new(shared),
            send_share,
            send_pool: Pool::new(terms.send_memory - send_share * flows),
            want_window: terms.reserve,
            in_flight_bytes: u64::MAX,
            quiet: Duration::from_secs(1),
            unsent_bytes: 0,
            unsent: PerClass::default(),
            backlog: Backlog::default(),
            put_off: PutOff::default(),
            starved: false,
            events: VecDeque::new(),
            began: now,
            looked: now,
            terms,
        };
        table.set_classes(table.terms.classes, now);
        table
    }

    /// Tells the table what fills the link towards us, and what counts as a pause.
    pub fn tune(&mut self, want_window: u64, round_trip: Duration) {
        self.want_window = want_window.max(self.terms.reserve);
        self.quiet = round_trip;
    }

    /// Tells the table how many bytes leave within a round trip.
    pub fn tell_in_flight(&mut self, bytes: u64) {
        self.in_flight_bytes = bytes;
    }

    /// Flows that the peer opens have no class more favoured than `highest`.
    pub fn grant(&mut self, highest: Class) {
        self.highest_class = highest;
    }

    pub fn len(&self) -> usize {
        self.flows.len() + self.datagrams.flows.len()
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub fn next_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    /// Bytes that wait in flows, either way.
    pub fn held_bytes(&self) -> u64 {
        self.unsent_bytes as u64 + self.datagrams.held_bytes() + self.received_bytes
    }

    /// Flows are lent nothing more while `pressure` is on.
    pub fn heed(&mut self, pressure: &Pressure) {
        self.pool.heed(pressure.clone());
        self.send_pool.heed(pressure.clone());
    }

    /// So much waits for earlier bytes that only the oldest symbols should be taken.
    pub fn is_shattered(&self) -> bool {
        self.pieces >= MANY_PIECES
    }

    /// A flow's pieces and received bytes were `before`; they may have changed.
    pub(super) fn count_pieces(
        &mut self,
        id: u64,
        (before, bytes): (usize, u64),
    ) -> Result<(), Violation> {
        let (now, held) =
            self.flows.get(&id).map_or((0, 0), |flow| (flow.recv.pieces(), flow.recv.held_bytes()));
        self.received_bytes = self.received_bytes - bytes + held;
        self.pieces = self.pieces - before + now;
        if self.pieces > 2 * MANY_PIECES {
            Err(Violation("flows in too many pieces"))
        } else {
            Ok(())
        }
    }

    /// Opens a flow; `None` at the limit. `target` is encoded.
    pub fn open(
        &mut self,
        target: Vec<u8>,
        class: Class,
        passenger: u32,
        now: Duration,
    ) -> Option<u64> {
        if self.len() >= self.terms.max_flows {
            return None;
        }
        let id = self.seen.end();
        self.seen.insert(id);
        let lent = self.pool.offer(passenger, self.want_window - self.terms.reserve, 0);
        self.pool.settle(passenger, 0, lent);
        let mut flow = self.flow(class, passenger, self.terms.peer_reserve, now);
        flow.recv.grant(self.terms.reserve + lent);
        flow.lent = lent;
        flow.target = Target::decode(&target).ok().map(|(target, _)| target);
        flow.control.open = Some(target);
        self.flows.insert(id, flow);
        self.refresh(id, now);
        Some(id)
    }

    pub(super) fn flow(
        &self,
        class: Class,
        passenger: u32,
        send_limit: u64,
        now: Duration,
    ) -> Flow {
        Flow {
            target: None,
            class,
            passenger,
            turn: None,
            counted: (class, 0),
            waiting: ((passenger, class), Ready::default()),
            send: SendFlow::new(send_limit),
            recv: RecvFlow::new(self.terms.reserve),
            lent: 0,
            lent_to_send: 0,
            opened: false,
            ended: None,
            released: false,
            active: now,
            claim: None,
            confirmed: None,
            control: Control::default(),
        }
    }

    // What the flow's owner does.

    pub fn write(&mut self, id: u64, data: &[u8], now: Duration) -> Write {
        let Some(flow) = self.flows.get_mut(&id) else { return Write::Reset(ResetCode::Aborted) };
        if let Some(code) = flow.ended {
            return Write::Reset(code);
        }
        let (unsent, most) = (flow.send.unsent_bytes() as u64, self.terms.flow_send_buffer);
        let offer = self.send_pool.offer(flow.passenger, most - self.send_share, flow.lent_to_send);
        let allowed = self.send_share + offer.max(flow.lent_to_send);
        let room = usize::try_from(allowed.saturating_sub(unsent)).unwrap_or(usize::MAX);
        let written = flow.send.write(data, room);
        match written {
            Write::Taken(bytes) => {
                self.unsent_bytes += bytes;
                flow.active = now;
            }
            Write::Blocked if unsent < most => self.starved = true,
            _ => {}
        }
        self.settle_unsent(id);
        self.refresh(id, now);
        written
    }

    /// Bytes written to the flow that have not left yet.
    pub fn unsent_bytes_of(&self, id: u64) -> usize {
        self.flows.get(&id).map_or(0, |flow| flow.send.unsent_bytes())
    }

    pub fn read(&mut self, id: u64, out: &mut [u8], now: Duration) -> Read {
        let Some(flow) = self.flows.get_mut(&id) else { return Read::Reset(ResetCode::Aborted) };
        if let Some(code) = flow.ended {
            return Read::Reset(code);
        }
        let before = flow.recv.held_bytes();
        let read = flow.recv.read(out, now);
        self.received_bytes = self.received_bytes - before + flow.recv.held_bytes();
        if let Read::Taken(bytes) = read {
            flow.active = now;
            self.count_received(id, bytes);
            self.adjust_credit(id);
        }
        read
    }

    /// No more will be written.
    pub fn finish(&mut self, id: u64) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.finish();
            // Nobody minds how long an end waits that is all there is to send.
            self.take_turn(id, Duration::MAX);
        }
    }

    /// Ends both directions at once and tells the peer why.
    pub fn reset(&mut self, id: u64, code: ResetCode) {
        self.reset_datagrams(id, code);
        if self.flows.get(&id).is_none_or(|flow| flow.ended.is_some()) {
            return;
        }
        self.end(id, code);
        // Even where the OPEN has not left: a number that never came would be waited for.
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.control.reset = Some(code);
            self.queue_control(id);
        }
        self.events.push_back(FlowEvent::Wake(id));
        self.remove_if_over(id);
    }

    /// The owner reads no more; the other direction goes on.
    pub fn stop_reading(&mut self, id: u64, code: ResetCode) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.ended.is_some() || flow.recv.is_done() {
            return;
        }
        let told = flow.recv.wants_credit();
        self.pieces -= flow.recv.pieces();
        self.received_bytes -= flow.recv.held_bytes();
        flow.recv.stop();
        if told {
            flow.control.stop = Some(code);
            self.queue_control(id);
        }
        self.adjust_credit(id);
    }

    /// Nobody holds the flow any more: what is finished goes on to its end, the rest is reset.
    pub fn release(&mut self, id: u64) {
        self.release_datagrams(id);
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.released = true;
        if flow.ended.is_none() {
            if flow.send.is_finishing() {
                self.stop_reading(id, ResetCode::Aborted);
            } else {
                self.reset(id, ResetCode::Aborted);
            }
        }
        self.remove_if_over(id);
    }

    /// Ends every flow, as when the peer is not the instance it was.
    pub fn end_all(&mut self, code: ResetCode) {
        self.end_all_datagrams(code);
        let ids: Vec<_> = self.flows.keys().copied().collect();
        for id in ids {
            self.end(id, code);
            self.events.push_back(FlowEvent::Wake(id));
            self.remove_if_over(id);
        }
    }

    /// Resets flows that nobody uses; call it now and then.
    pub fn reap(&mut self, now: Duration) {
        self.reap_datagrams(now);
        let idle = |flow: &Flow| {
            // Bytes that came before their OPEN have nobody to read them, perhaps for a whole outage.
            let since = flow.recv.unread_since.filter(|_| flow.opened);
            let unread =
                since.is_some_and(|since| now.saturating_sub(since) >= self.terms.flow_unread);
            flow.ended.is_none()
                && (unread || now.saturating_sub(flow.active) >= self.terms.flow_idle)
        };
        let ids: Vec<_> =
            self.flows.iter().filter(|(_, flow)| idle(flow)).map(|(&id, _)| id).collect();
        for id in ids {
            self.reset(id, ResetCode::Idle);
        }
    }

    // What keeps the pieces in step.

    /// Gives back what the flow no longer needs, and lends it more when the reader keeps up.
    pub(super) fn adjust_credit(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let wants = flow.recv.wants_credit() && flow.ended.is_none();
        let lent = if wants { flow.recv.window().saturating_sub(self.terms.reserve) } else { 0 };
        // A window shrinks as its bytes are read; it never grows by itself.
        let lent = lent.min(flow.lent);
        self.pool.settle(flow.passenger, flow.lent, lent);
        flow.lent = lent;
        if !wants {
            return;
        }
        let want = self.want_window - self.terms.reserve;
        let offer = self.pool.offer(flow.passenger, want, lent).max(lent);
        let window = self.terms.reserve + offer;
        if window >= flow.recv.window() + window / 4 {
            flow.recv.grant(window);
            self.pool.settle(flow.passenger, lent, offer);
            flow.lent = offer;
            flow.control.credit = true;
            self.queue_control(id);
        }
    }

    /// The flow is over for us: its buffers and credit go back.
    pub(super) fn end(&mut self, id: u64, code: ResetCode) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.ended.is_some() {
            return;
        }
        flow.ended = Some(code);
        flow.control = Control { queued: flow.control.queued, ..Control::default() };
        self.pieces -= flow.recv.pieces();
        self.received_bytes -= flow.recv.held_bytes();
        flow.recv.stop();
        let forgotten = flow.send.stop(code);
        if let Some(turn) = flow.turn.take() {
            self.scheduler.remove(turn);
        }
        self.sent_or_forgotten(id, forgotten);
        // It has none left, whenever that is.
        self.count_ready(id, Duration::ZERO);
        self.adjust_credit(id);
    }

    pub(super) fn remove_if_over(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else { return };
        let done = flow.ended.is_some() || (flow.send.is_done() && flow.recv.is_done());
        if flow.released && done && flow.control.is_empty() {
            if let Some(turn) = flow.turn {
                self.scheduler.remove(turn);
            }
            self.pool.settle(flow.passenger, flow.lent, 0);
            let (class, counted) = flow.counted;
            self.unsent[class] -= counted;
            let waiting = flow.waiting;
            self.count_none(waiting);
            self.flows.remove(&id);
            self.unhold(id);
        }
    }
}
