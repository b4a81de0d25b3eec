//! A model of flights: one aircraft, several hubs, an egress, and flows whose carriers are cut,
//! duplicated and delayed at random. Every byte has to arrive exactly once and in order.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_flow::Target;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::end::{Attachment, End, Identity};
use crate::registry::{Caller, Registry};
use crate::ticket::{FlowId, TicketKey};
use crate::wire::{Control, Decoder, Malformed, Sink};

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
    up: Pipe,
    down: Pipe,
    /// The hub is gone: what is under way never arrives.
    is_cut: bool,
    air: Option<Attachment>,
    egress: Egress,
    /// Record that the air began with, for replays.
    first: Vec<u8>,
    was_admitted: bool,
}

enum Egress {
    /// Waits for the first record.
    Expects(Decoder),
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
}

/// The egress's half of a flow.
struct Far {
    id: FlowId,
    end: End,
    written: Vec<u8>,
    read: Vec<u8>,
    wants: usize,
    carrier: Option<usize>,
}

struct World {
    rng: ChaCha8Rng,
    carriers: Vec<Carrier>,
    flows: Vec<Flow>,
    far: Vec<Far>,
    registry: Registry<usize>,
    session: u64,
}

/// Takes the first record of a carrier.
#[derive(Default)]
struct FirstRecord(Option<Control>);

impl Sink for FirstRecord {
    fn data(&mut self, _: usize) -> Result<usize, Malformed> {
        Err(Malformed("data first"))
    }

    fn control(&mut self, record: Control) -> Result<(), Malformed> {
        self.0 = Some(record);
        Ok(())
    }
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
        let up = Pipe { bytes: first.iter().copied().collect() };
        self.carriers.push(Carrier {
            session: self.session,
            up,
            down: Pipe::default(),
            is_cut: false,
            air: Some(attachment),
            egress: Egress::Expects(Decoder::default()),
            first,
            was_admitted: false,
        });
        self.carriers.len() - 1
    }

    /// The air's user writes, and its end gives what it can to its carrier.
    fn air_sends(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        let left = flow.air_wants - flow.air_written.len();
        let chunk: Vec<u8> =
            (0..self.rng.random_range(0..=left.min(300))).map(|_| self.rng.random()).collect();
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
        let carrier = &mut self.carriers[index];
        if carrier.is_cut {
            // The air notices.
            carrier.air = None;
            if is_next {
                flow.next = None;
            } else {
                flow.carrier = None;
                flow.air.outgoing.detach();
            }
            return;
        }
        let mut bytes = carrier.down.take(&mut self.rng);
        let Some(attachment) = &mut carrier.air else { return };
        let kept = attachment.decode(&mut flow.air, &mut bytes).unwrap();
        flow.air_read.extend(&bytes[..kept]);
        if attachment.is_agreed() && is_next {
            (flow.carrier, flow.next) = (Some(index), None);
        }
        let is_dry = self.rng.random();
        if attachment.is_agreed() {
            flow.air.confirm(is_dry, 0);
        }
    }

    fn egress_receives(&mut self, index: usize) {
        let carrier = &mut self.carriers[index];
        if carrier.is_cut {
            if let Egress::Attached(far, _) = carrier.egress
                && self.far[far].carrier == Some(index)
            {
                self.far[far].carrier = None;
                self.far[far].end.outgoing.detach();
            }
            carrier.egress = Egress::Gone;
            return;
        }
        match &mut carrier.egress {
            Egress::Gone => {}
            Egress::Expects(decoder) => {
                let Some(byte) = carrier.up.bytes.pop_front() else { return };
                let mut first = FirstRecord::default();
                decoder.decode(&mut [byte], &mut first).unwrap();
                if let Some(record) = first.0 {
                    self.admit(index, record);
                }
            }
            Egress::Attached(far, attachment) => {
                let far = &mut self.far[*far];
                if far.carrier != Some(index) {
                    // Replaced: late packets are harmless, and the air is told.
                    carrier.egress = Egress::Gone;
                    carrier.is_cut = true;
                    return;
                }
                let mut bytes = carrier.up.take(&mut self.rng);
                let kept = attachment.decode(&mut far.end, &mut bytes).unwrap();
                far.read.extend(&bytes[..kept]);
                far.end.confirm(self.rng.random(), 0);
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
                    });
                }
                (id, 0, admitted.map(|(far, _)| far))
            }
            Control::Resume { id, attempt, ticket, received } => {
                (id, received, self.registry.resume(&caller, (id, attempt), &ticket, now))
            }
            other => panic!("{other:?}"),
        };
        let Ok(far) = admitted else {
            // The refusal reaches the air as a cut; it tries again.
            self.carriers[index].egress = Egress::Gone;
            self.carriers[index].is_cut = true;
            return;
        };
        assert_eq!(self.far[far].id, id);
        let ticket = self.registry.ticket(&caller, &id, now);
        let attachment = self.far[far].end.accept(received, ticket).unwrap();
        self.far[far].carrier = Some(index);
        self.carriers[index].egress = Egress::Attached(far, attachment);
        self.carriers[index].was_admitted = true;
    }

    fn egress_sends(&mut self, far: usize) {
        let far = &mut self.far[far];
        let left = far.wants - far.written.len();
        let chunk: Vec<u8> =
            (0..self.rng.random_range(0..=left.min(300))).map(|_| self.rng.random()).collect();
        let taken = far.end.outgoing.write(&chunk);
        far.written.extend(&chunk[..taken]);
        if far.written.len() == far.wants {
            far.end.outgoing.finish();
        }
        let Some(carrier) = far.carrier else { return };
        let most = self.rng.random_range(0..500);
        self.carriers[carrier].down.bytes.extend(send(&mut far.end, most));
    }

    /// Something happens to a hub, or to an observer of the network.
    fn trouble(&mut self) {
        match self.rng.random_range(0..5) {
            // The aircraft changes its hub: the old carriers stay until the new ones are accepted.
            0 => {
                self.session += 1;
                for flow in 0..FLOWS {
                    if self.flows[flow].carrier.is_some() {
                        let next = self.begin(flow);
                        if let Some(given_up) = self.flows[flow].next.replace(next) {
                            self.carriers[given_up].air = None;
                        }
                    }
                }
            }
            // A hub dies, with all its carriers.
            1 => {
                let session = self.rng.random_range(1..=self.session);
                for carrier in &mut self.carriers {
                    carrier.is_cut |= carrier.session == session;
                }
                self.session += 1;
            }
            // One carrier breaks.
            2 if !self.carriers.is_empty() => {
                let index = self.rng.random_range(0..self.carriers.len());
                self.carriers[index].is_cut = true;
            }
            // Somebody replays what a carrier began with, in the same session or a later one.
            3 if !self.carriers.is_empty() => {
                let index = self.rng.random_range(0..self.carriers.len());
                if self.carriers[index].was_admitted {
                    self.replay(index);
                }
            }
            _ => {}
        }
    }

    /// Replays the record with which an admitted carrier began.
    fn replay(&mut self, index: usize) {
        let carrier = &self.carriers[index];
        let session = self.rng.random_range(carrier.session..=self.session);
        let caller = Caller { aircraft: AIRCRAFT, session };
        let mut first = FirstRecord::default();
        Decoder::default().decode(&mut carrier.first.clone(), &mut first).unwrap();
        let admitted = match first.0 {
            Some(Control::Open { id, attempt, .. }) => {
                self.registry.open(&caller, id, attempt, || usize::MAX).map(|(far, _)| far)
            }
            Some(Control::Resume { id, attempt, ticket, .. }) => {
                let thief = Caller { aircraft: [9; 32], session: u64::MAX };
                let stolen = self.registry.resume(&thief, (id, u32::MAX), &ticket, Duration::ZERO);
                assert!(stolen.is_err(), "another aircraft's ticket");
                self.registry.resume(&caller, (id, attempt), &ticket, Duration::ZERO)
            }
            other => panic!("{other:?}"),
        };
        assert!(admitted.is_err(), "a recording was admitted");
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
        self.far.len() == FLOWS
            && self.far.iter().all(|far| far.end.is_done())
            && self.flows.iter().all(|flow| flow.air.is_done())
    }

    fn check(&self) {
        for far in &self.far {
            let flow = &self.flows[usize::from(far.id[0])];
            assert!(flow.air_written.starts_with(&far.read), "up");
            assert!(far.written.starts_with(&flow.air_read), "down");
        }
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
        assert_eq!(far.read, flow.air_written, "seed {seed}: up");
        assert_eq!(flow.air_read, far.written, "seed {seed}: down");
    }
}

#[test]
fn every_byte_arrives_exactly_once_and_in_order() {
    for seed in 0..10_000 {
        fly(seed);
    }
}
