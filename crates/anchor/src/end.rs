//! One end of a flow, without its carrier.

use bentpipe_flow::{ResetCode, Target};

use crate::incoming::{Incoming, Occasion};
use crate::outgoing::Outgoing;
use crate::ticket::{FlowId, Ticket};
use crate::wire::{Control, Decoder, Left, Malformed, Sink, put_code};

/// Both directions of a flow at one end, and what the peer said of it.
#[derive(Debug, Default)]
pub struct End {
    /// Bytes to the peer.
    pub outgoing: Outgoing,
    /// Position in the peer's bytes.
    pub incoming: Incoming,
    /// Class that the ground has confirmed for the flow's claim.
    pub class: Option<u8>,
    /// Ticket for the next hub, at the air.
    pub ticket: Option<Ticket>,
    /// Reason for the flow's end, once the peer has said it.
    pub ended: Option<ResetCode>,
    /// Reason why this end reads no more.
    stopped_reading: Option<ResetCode>,
}

impl End {
    /// Returns `true` if both streams have ended and both ends know it.
    pub fn is_done(&self) -> bool {
        let knows = self.incoming.is_end_confirmed() || self.stopped_reading.is_some();
        knows && self.outgoing.is_confirmed()
    }

    /// Returns `true` if no more data is wanted or to come.
    pub fn reads_no_more(&self) -> bool {
        self.incoming.is_finished() || self.stopped_reading.is_some()
    }

    /// Throws away what comes from now on, and tells the peer.
    pub fn stop_reading(&mut self, code: ResetCode) {
        self.stopped_reading = Some(code);
        self.outgoing.queue(&Control::Stop(code));
    }

    /// Tells the peer again on another carrier.
    fn repeat_stop(&mut self) {
        if let Some(code) = self.stopped_reading {
            self.outgoing.queue(&Control::Stop(code));
        }
    }

    /// Queues a confirmation if it is time, see [`Incoming::confirmation`].
    pub fn confirm(&mut self, occasion: Occasion, unread: usize) {
        if let Some(offset) = self.incoming.confirmation(occasion, unread) {
            self.outgoing.queue_confirmation(offset);
        }
    }

    /// Appends the state that outlives the carrier.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.outgoing.put(out);
        self.incoming.put(out);
        out.extend([self.class.is_some().into(), self.class.unwrap_or_default()]);
        out.push(self.ticket.is_some().into());
        if let Some(ticket) = &self.ticket {
            out.extend(ticket.as_bytes());
        }
        put_code(out, self.ended);
        put_code(out, self.stopped_reading);
    }

    /// Reads what [`put`](Self::put) wrote; `None` if it is invalid.
    pub fn read(left: &mut Left<'_>) -> Option<Self> {
        let (outgoing, incoming) = (Outgoing::read(left)?, Incoming::read(left)?);
        let [has_class, class] = left.array()?;
        let ticket = match left.u8()? {
            0 => None,
            _ => Some(left.ticket()?),
        };
        let class = (has_class != 0).then_some(class);
        let (ended, stopped_reading) = (left.code()?, left.code()?);
        Some(Self { outgoing, incoming, class, ticket, ended, stopped_reading })
    }

    fn control(&mut self, record: Control) -> Result<(), Malformed> {
        match record {
            Control::Confirm(offset) => self.outgoing.confirm(offset),
            Control::Fin => self.incoming.fin(),
            Control::Class(class) => {
                self.class = Some(class);
                Ok(())
            }
            Control::End(code) => {
                self.ended = Some(code);
                Ok(())
            }
            Control::Stop(code) => {
                self.outgoing.stop(code);
                Ok(())
            }
            _ => Err(Malformed("a record out of place")),
        }
    }
}

/// State of one carrier of a flow.
#[derive(Debug, Default)]
pub struct Attachment {
    decoder: Decoder,
    stage: Stage,
}

/// Agreement of the two ends on a carrier.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The air has opened the flow, and sends data before it is accepted.
    Opening,
    /// The air waits to be accepted.
    Request,
    /// Both ends know each other's positions.
    #[default]
    Agreement,
}

impl Attachment {
    /// Returns `true` if data may be sent.
    pub fn may_send(&self) -> bool {
        self.stage != Stage::Request
    }

    /// Returns `true` if the egress has accepted the carrier.
    pub fn is_agreed(&self) -> bool {
        self.stage == Stage::Agreement
    }

    /// Received bytes that were not decoded. The next ones have to begin with them.
    pub fn left(&self) -> &'static [u8] {
        self.decoder.left()
    }

    /// Gives received `bytes` to `end`, and moves data to their front. Returns its length.
    pub fn decode(&mut self, end: &mut End, bytes: &mut [u8]) -> Result<usize, Malformed> {
        let Self { decoder, stage } = self;
        decoder.decode(bytes, &mut Receiving { end, stage })
    }
}

/// An end that receives on a carrier.
struct Receiving<'a> {
    end: &'a mut End,
    stage: &'a mut Stage,
}

impl Sink for Receiving<'_> {
    fn data(&mut self, bytes: usize) -> Result<usize, Malformed> {
        match self.stage {
            Stage::Agreement => {
                let repeated = self.end.incoming.data(bytes)?;
                Ok(if self.end.stopped_reading.is_some() { bytes } else { repeated })
            }
            Stage::Opening | Stage::Request => Err(Malformed("data before the acceptance")),
        }
    }

    fn control(&mut self, record: Control) -> Result<(), Malformed> {
        let end = &mut *self.end;
        match (record, *self.stage) {
            (
                Control::Accept { received, start, ticket, class },
                Stage::Opening | Stage::Request,
            ) => {
                let expected = match *self.stage {
                    Stage::Request => end.outgoing.attach(received)?,
                    _ => 0,
                };
                if received != expected {
                    return Err(Malformed("the egress has forgotten what it confirmed"));
                }
                end.incoming.attach(start, start)?;
                (end.ticket, end.class) = (Some(ticket), class.or(end.class));
                end.repeat_stop();
                *self.stage = Stage::Agreement;
                Ok(())
            }
            (record, Stage::Agreement) => end.control(record),
            _ => Err(Malformed("no acceptance")),
        }
    }
}

/// Identity of a flow at the air, and the number of its carriers.
#[derive(Debug, Clone)]
pub struct Identity {
    id: FlowId,
    target: Target,
    attempts: u32,
}

impl Identity {
    /// Identifies a new flow by a random `id`. `target` must have an encoding.
    pub fn new(id: FlowId, target: Target) -> Self {
        Self { id, target, attempts: 0 }
    }

    /// Appends the identity.
    ///
    /// # Panics
    ///
    /// If the target has no encoding, see [`new`](Self::new).
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.id);
        out.extend(self.attempts.to_be_bytes());
        self.target.encode(out).expect("the target was checked");
    }

    /// Reads what [`put`](Self::put) wrote; `None` if it is invalid.
    pub fn read(left: &mut Left<'_>) -> Option<Self> {
        Some(Self { id: left.array()?, attempts: left.u32()?, target: left.target()? })
    }

    /// Number of carriers so far.
    pub fn carriers(&self) -> u32 {
        self.attempts
    }

    /// Begins a carrier for `end`. Returns its state, and its first record.
    pub fn begin(&mut self, end: &End) -> (Attachment, Vec<u8>) {
        let (id, attempt) = (self.id, self.attempts);
        self.attempts += 1;
        let stage = if attempt == 0 { Stage::Opening } else { Stage::Request };
        let record = match end.ticket {
            Some(ticket) => {
                Control::Resume { id, attempt, ticket, received: end.incoming.offset() }
            }
            None => Control::Open { id, attempt, target: self.target.clone() },
        };
        let mut first = Vec::new();
        record.put(&mut first);
        (Attachment { decoder: Decoder::default(), stage }, first)
    }
}

impl End {
    /// Accepts a carrier at the egress, whose air has received everything before `received`. The
    /// acceptance is the first record of the carrier.
    pub fn accept(&mut self, received: u64, ticket: Ticket) -> Result<Attachment, Malformed> {
        let ours = self.incoming.offset();
        let start = self.outgoing.attach(received)?;
        self.incoming.attach(ours, ours)?;
        let accept = Control::Accept { received: ours, start, ticket, class: self.class };
        self.outgoing.queue(&accept);
        self.repeat_stop();
        Ok(Attachment::default())
    }
}
