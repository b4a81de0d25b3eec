//! A model of flights: one aircraft, several hubs, an egress, and flows whose carriers are cut,
//! duplicated and delayed at random. Every byte has to arrive exactly once and in order. Users stop
//! reading, and either end resets flows: then the other end gets that reason and no other.

mod trouble;

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::end::{Attachment, End, Identity};
use crate::incoming::Occasion;
use crate::registry::{Caller, Registry};
use crate::ticket::{FlowId, TicketKey};
use crate::wire::{Control, MARK};

const AIRCRAFT: [u8; 32] = [1; 32];
const FLOWS: usize = 3;
const STEPS: usize = 400;

/// A byte stream with an unknown delay, which can be cut.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
}

impl Pipe {
    fn take(&mut self, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let most = self.bytes.len();
        let count = if most == 0 { 0 } else { rng.random_range(0..=most.min(400)) };
        self.bytes.drain(..count).collect()
    }
}

/// A carrier through a hub. The ends learn of a cut at different times.
struct Carrier {
    session: u64,
    /// Number of the flow's carriers, up to this one.
    carriers: u32,
    up: Pipe,
    down: Pipe,
    /// The hub is gone, or an end has reset the carrier: what is under way never arrives.
    cut: Option<ResetCode>,
    air: Option<Attachment>,
    egress: Egress,
    /// Record that the air began with, for replays.
    first: Vec<u8>,
    was_admitted: bool,
}

enum Egress {
    /// Waits for the first record, of which these bytes have come.
    Expects(Vec<u8>),
    Attached(usize, Attachment),
    Gone,
}

/// A flow: both ends, and what their users wrote and read.
struct Flow {
    identity: Identity,
    air: End,
    air_written: Vec<u8>,
    air_read: Vec<u8>,
    air_wants: usize,
    /// Carrier in use, and the one that is to replace it.
    carrier: Option<usize>,
    next: Option<usize>,
    ended: Option<ResetCode>,
    /// The passenger has reset the flow.
    is_left: bool,
}

/// The egress's half of a flow.
struct Far {
    id: FlowId,
    end: End,
    written: Vec<u8>,
    read: Vec<u8>,
    wants: usize,
    carrier: Option<usize>,
    /// The user is gone, and with it the flow, for this reason if it was not done.
    is_left: bool,
    reason: Option<ResetCode>,
}

struct World {
    rng: ChaCha8Rng,
    carriers: Vec<Carrier>,
    flows: Vec<Flow>,
    far: Vec<Far>,
    registry: Registry<usize>,
    session: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let target: Target = "server.test:80".parse().unwrap();
        let flows = (0..FLOWS)
            .map(|number| Flow {
                identity: Identity::new([number as u8; 16], target.clone()),
                air: End::default(),
                air_written: Vec::new(),
                air_read: Vec::new(),
                air_wants: rng.random_range(0..3_000),
                carrier: None,
                next: None,
                ended: None,
                is_left: false,
            })
            .collect();
        let registry = Registry::new(TicketKey::new([7; 32], [1; 8]));
        let (carriers, far) = (Vec::new(), Vec::new());
        Self { rng, carriers, flows, far, registry, session: 1 }
    }

    /// Begins a carrier for a flow in the aircraft's present session.
    fn begin(&mut self, flow: usize) -> usize {
        let Flow { identity, air, .. } = &mut self.flows[flow];
        let (attachment, first) = identity.begin(air);
        let carriers = identity.carriers();
        let up = Pipe { bytes: first.iter().copied().collect() };
        self.carriers.push(Carrier {
            session: self.session,
            carriers,
            up,
            down: Pipe::default(),
            cut: None,
            air: Some(attachment),
            egress: Egress::Expects(Vec::new()),
            first,
            was_admitted: false,
        });
        self.carriers.len() - 1
    }

    /// The air's user writes, and its end gives what it can to its carrier.
    fn air_sends(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        if flow.ended.is_some() {
            return;
        }
        if flow.air.outgoing.stopped().is_some() {
            flow.air_wants = flow.air_written.len();
        }
        let left = flow.air_wants - flow.air_written.len();
        let chunk: Vec<u8> =
            (0..self.rng.random_range(0..=left.min(300))).map(|_| byte(&mut self.rng)).collect();
        let taken = flow.air.outgoing.write(&chunk);
        flow.air_written.extend(&chunk[..taken]);
        if flow.air_written.len() == flow.air_wants {
            flow.air.outgoing.finish();
        }
        if flow.carrier.is_none() && flow.next.is_none() {
            let carrier = self.begin(number);
            let flow = &mut self.flows[number];
            // Without a carrier in use there is nothing to go on with meanwhile.
            if self.carriers[carrier].air.as_ref().is_some_and(Attachment::may_send) {
                flow.carrier = Some(carrier);
            } else {
                flow.next = Some(carrier);
            }
        }
        let flow = &mut self.flows[number];
        let Some(carrier) = flow.carrier else { return };
        let carrier = &mut self.carriers[carrier];
        if carrier.air.as_ref().is_some_and(Attachment::may_send) {
            let most = self.rng.random_range(0..500);
            let sent = send(&mut flow.air, most);
            carrier.up.bytes.extend(sent);
        }
    }

    fn air_receives(&mut self, number: usize, is_next: bool) {
        let flow = &mut self.flows[number];
        let Some(index) = (if is_next { flow.next } else { flow.carrier }) else { return };
        if flow.ended.is_some() {
            return;
        }
        let carrier = &mut self.carriers[index];
        if let Some(code) = carrier.cut {
            return self.air_loses(number, is_next, code);
        }
        let Some(attachment) = &mut carrier.air else { return };
        let mut bytes = [attachment.left(), &carrier.down.take(&mut self.rng)].concat();
        let kept = attachment.decode(&mut flow.air, &mut bytes).unwrap();
        flow.air_read.extend(&bytes[..kept]);
        if let Some(code) = flow.air.ended {
            return self.air_loses(number, is_next, code);
        }
        if attachment.is_agreed() && is_next {
            (flow.carrier, flow.next) = (Some(index), None);
        }
        let is_dry: bool = self.rng.random();
        if attachment.is_agreed() {
            flow.air.confirm(occasion(is_dry), 0);
        }
    }

    /// The air notices the end of a carrier.
    fn air_loses(&mut self, number: usize, is_next: bool, code: ResetCode) {
        let flow = &mut self.flows[number];
        let lost = if is_next { flow.next.take() } else { flow.carrier.take() };
        if let Some(index) = lost {
            self.carriers[index].air = None;
        }
        let is_last = lost.is_some_and(|it| self.carriers[it].carriers == flow.identity.carriers());
        let decides = if is_next { flow.carrier.is_none() } else { is_last };
        if !is_next && flow.air.is_done() {
            return;
        }
        if code != ResetCode::Lost && decides {
            flow.ended = Some(code);
            let id = [number as u8; 16];
            let far = self.far.iter().find(|far| far.id == id).expect("a flow that was open");
            assert_eq!(far.reason, Some(code), "a reason that nobody gave");
        } else if !is_next {
            flow.air.outgoing.detach();
        }
    }

    /// The user of a flow at the egress is gone: the flow is done, or over for `reason`.
    fn egress_ends(&mut self, index: usize, reason: Option<ResetCode>) {
        let far = &mut self.far[index];
        (far.is_left, far.reason) = (true, reason);
        self.registry.end(AIRCRAFT, far.id, reason);
        let (Some(code), Some(carrier)) = (reason, far.carrier) else { return };
        far.carrier = None;
        self.carriers[carrier].egress = Egress::Gone;
        if far.end.outgoing.is_untouched() {
            far.end.outgoing.queue(&Control::End(code));
            self.carriers[carrier].down.bytes.extend(send(&mut far.end, usize::MAX));
        } else {
            self.carriers[carrier].cut.get_or_insert(code);
        }
    }

    fn egress_receives(&mut self, index: usize) {
        let carrier = &mut self.carriers[index];
        if let Some(code) = carrier.cut {
            let before = std::mem::replace(&mut carrier.egress, Egress::Gone);
            if let Egress::Attached(far, _) = before
                && self.far[far].carrier == Some(index)
            {
                self.far[far].carrier = None;
                self.far[far].end.outgoing.detach();
                if code != ResetCode::Lost && !self.far[far].is_left {
                    self.egress_ends(far, Some(code));
                }
            }
            return;
        }
        match &mut carrier.egress {
            Egress::Gone => {}
            Egress::Expects(came) => {
                came.extend(carrier.up.bytes.pop_front());
                if let Some((record, _)) = Control::first(came).unwrap() {
                    self.admit(index, record);
                }
            }
            Egress::Attached(far, attachment) => {
                let far = &mut self.far[*far];
                if far.carrier != Some(index) {
                    // Replaced: late packets are harmless, and the air is told.
                    carrier.egress = Egress::Gone;
                    carrier.cut = Some(ResetCode::Lost);
                    return;
                }
                let mut bytes = [attachment.left(), &carrier.up.take(&mut self.rng)].concat();
                let kept = attachment.decode(&mut far.end, &mut bytes).unwrap();
                far.read.extend(&bytes[..kept]);
                far.end.confirm(occasion(self.rng.random()), 0);
            }
        }
    }

    fn admit(&mut self, index: usize, record: Control) {
        let caller = Caller { aircraft: AIRCRAFT, session: self.carriers[index].session };
        let (now, next) = (Duration::ZERO, self.far.len());
        let (id, received, admitted) = match record {
            Control::Open { id, attempt, .. } => {
                let admitted = self.registry.open(&caller, id, attempt, || next);
                if let Ok((_, true)) = admitted {
                    let wants = self.rng.random_range(0..3_000);
                    let (written, read) = (Vec::new(), Vec::new());
                    self.far.push(Far {
                        id,
                        end: End::default(),
                        written,
                        read,
                        wants,
                        carrier: None,
                        is_left: false,
                        reason: None,
                    });
                }
                (id, 0, admitted.map(|(far, _)| far))
            }
            Control::Resume { id, attempt, ticket, received } => {
                (id, received, self.registry.resume(&caller, (id, attempt), &ticket, now))
            }
            other => panic!("{other:?}"),
        };
        let far = match admitted {
            Ok(far) => far,
            Err(refusal) => {
                self.carriers[index].egress = Egress::Gone;
                self.carriers[index].cut = Some(refusal.code());
                return;
            }
        };
        assert_eq!(self.far[far].id, id);
        let ticket = self.registry.ticket(&caller, &id, now);
        let attachment = self.far[far].end.accept(received, ticket).unwrap();
        self.far[far].carrier = Some(index);
        self.carriers[index].egress = Egress::Attached(far, attachment);
        self.carriers[index].was_admitted = true;
    }

    fn egress_sends(&mut self, index: usize) {
        let far = &mut self.far[index];
        if far.reason.is_some() {
            return;
        }
        // The orphan's time is over.
        if far.carrier.is_none() && self.flows[usize::from(far.id[0])].ended.is_some() {
            if !far.is_left {
                self.egress_ends(index, Some(ResetCode::Aborted));
            }
            return;
        }
        if far.end.outgoing.stopped().is_some() {
            far.wants = far.written.len();
        }
        let left = far.wants - far.written.len();
        let chunk: Vec<u8> =
            (0..self.rng.random_range(0..=left.min(300))).map(|_| byte(&mut self.rng)).collect();
        let taken = far.end.outgoing.write(&chunk);
        far.written.extend(&chunk[..taken]);
        if far.written.len() == far.wants {
            far.end.outgoing.finish();
        }
        let Some(carrier) = far.carrier else { return };
        let most = self.rng.random_range(0..500);
        self.carriers[carrier].down.bytes.extend(send(&mut far.end, most));
        if far.end.is_done() && !far.is_left && far.end.outgoing.output().is_empty() {
            let keeps_data = far.end.outgoing.unconfirmed_bytes() > 0;
            self.egress_ends(index, keeps_data.then_some(ResetCode::Aborted));
        }
    }

    fn step(&mut self, calm: bool) {
        if !calm && self.rng.random_range(0..20) == 0 {
            self.trouble();
        }
        let flow = self.rng.random_range(0..FLOWS);
        match self.rng.random_range(0..5) {
            0 => self.air_sends(flow),
            1 => self.air_receives(flow, true),
            2 => self.air_receives(flow, false),
            3 if !self.far.is_empty() => {
                let far = self.rng.random_range(0..self.far.len());
                self.egress_sends(far);
            }
            _ if !self.carriers.is_empty() => {
                for index in 0..self.carriers.len() {
                    if self.rng.random_range(0..3) > 0 {
                        self.egress_receives(index);
                    }
                }
            }
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.far.iter().all(|far| far.is_left)
            && (0..FLOWS).all(|number| {
                let flow = &self.flows[number];
                let is_known = self.far.iter().any(|far| far.id[0] == number as u8);
                flow.ended.is_some() || is_known && flow.air.is_done()
            })
    }

    fn check(&self) {
        for far in &self.far {
            let flow = &self.flows[usize::from(far.id[0])];
            assert!(flow.air_written.starts_with(&far.read), "up");
            assert!(far.written.starts_with(&flow.air_read), "down");
        }
    }
}

/// A byte of data. Marks are frequent, whole and in part.
fn byte(rng: &mut ChaCha8Rng) -> u8 {
    match rng.random_range(0..4) {
        0 => MARK[0],
        1 => MARK[1],
        _ => rng.random(),
    }
}

/// Takes up to about `most` bytes for the carrier.
fn send(end: &mut End, most: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    while sent.len() < most {
        let next = end.outgoing.output();
        if next.is_empty() {
            break;
        }
        let count = next.len().min(most - sent.len());
        sent.extend(&next[..count]);
        end.outgoing.written(count);
    }
    sent
}

fn occasion(is_dry: bool) -> Occasion {
    if is_dry { Occasion::Dry } else { Occasion::More }
}

fn fly(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step(false);
        world.check();
    }
    // Calm weather: everything has to arrive.
    for _ in 0..200_000 {
        if world.is_over() {
            break;
        }
        world.step(true);
    }
    assert!(world.is_over(), "seed {seed}: bytes are missing");
    for far in &world.far {
        let flow = &world.flows[usize::from(far.id[0])];
        if flow.is_left || far.reason.is_some() {
            continue;
        }
        if flow.air.outgoing.stopped().is_none() {
            assert_eq!(far.read, flow.air_written, "seed {seed}: up");
        }
        if far.end.outgoing.stopped().is_none() {
            assert_eq!(flow.air_read, far.written, "seed {seed}: down");
        }
    }
}

#[test]
fn every_byte_arrives_exactly_once_and_in_order() {
    for seed in 0..10_000 {
        fly(seed);
    }
}
