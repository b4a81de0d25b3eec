//! The sender's requests, and what follows an answer.

use std::time::Duration;

use super::batch::{Batch, Receipt};

/// First pause after a failure. Each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// Maximum number of conflicts in a row. One is normal after a cut: the receiver was not done with the batch.
const MAX_CONFLICTS: u32 = 3;

/// Records to send.
pub trait Source {
    /// Error of the store.
    type Error;

    /// The oldest batch after the last receipts.
    fn next(&mut self) -> Result<Option<Batch>, Self::Error>;

    /// Stores a receipt. One of records that have a receipt changes nothing.
    fn acknowledge(&mut self, receipt: &Receipt) -> Result<(), Self::Error>;
}

/// A receiver over a link.
pub trait Receiver {
    /// Requests the last receipt of a session.
    fn last(&mut self, session: &str) -> Result<Option<Receipt>, Fault>;

    /// Sends a batch.
    fn put(&mut self, batch: &Batch) -> Result<Receipt, Fault>;

    /// Waits after a failure.
    fn pause(&mut self, time: Duration, why: &str) -> Result<(), Fault>;
}

/// Fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link broke, or the receiver is busy: another attempt may succeed.
    Lost(String),
    /// The receiver has other batches than the sender assumed.
    Conflict,
    /// The receiver refuses, and would again.
    Refused(String),
    /// The user stopped the upload.
    Stopped,
}

/// Result of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Batches with a receipt in answer.
    pub batches: u64,
    /// Records of these batches.
    pub records: u64,
    /// Bytes of these batches.
    pub bytes: u64,
    /// The user stopped it.
    pub stopped: bool,
}

/// Reason for an early end.
#[derive(Debug, PartialEq, Eq)]
pub enum End<E> {
    /// The receiver refuses.
    Refused(String),
    /// The store fails.
    Source(E),
}

/// Sends everything that has no receipt. It ends when nothing is left, when the user stops it, or at an error.
pub fn run<S: Source>(source: &mut S, receiver: &mut impl Receiver) -> Result<Sent, End<S::Error>> {
    let mut sent = Sent::default();
    // The session whose last receipt is known.
    let mut known = None;
    let (mut failures, mut conflicts) = (0, 0);
    while let Some(batch) = source.next().map_err(End::Source)? {
        let is_known = known.as_ref() == Some(&batch.name.session);
        let answer = match is_known {
            true => put(receiver, &batch).map(Some),
            false => receiver.last(&batch.name.session),
        };
        let fault = match answer {
            Ok(receipt) => {
                if let Some(receipt) = receipt {
                    source.acknowledge(&receipt).map_err(End::Source)?;
                }
                if is_known {
                    sent.batches += 1;
                    sent.records += batch.name.records;
                    sent.bytes += batch.body.len() as u64;
                    (failures, conflicts) = (0, 0);
                }
                known = Some(batch.name.session);
                continue;
            }
            Err(fault) => fault,
        };
        known = None;
        let paused = match fault {
            Fault::Lost(why) => {
                failures += 1;
                receiver.pause(pause(failures), &why)
            }
            Fault::Conflict if conflicts < MAX_CONFLICTS => {
                conflicts += 1;
                receiver.pause(FIRST_PAUSE, "the receiver has other batches")
            }
            Fault::Conflict => Err(Fault::Refused("it has other batches of this session".into())),
            fault => Err(fault),
        };
        match paused {
            Err(Fault::Refused(why)) => return Err(End::Refused(why)),
            Err(_) => return Ok(Sent { stopped: true, ..sent }),
            Ok(()) => {}
        }
    }
    Ok(sent)
}

fn put(receiver: &mut impl Receiver, batch: &Batch) -> Result<Receipt, Fault> {
    let receipt = receiver.put(batch)?;
    match receipt.is_of(batch) {
        true => Ok(receipt),
        false => Err(Fault::Refused("its receipt is of another batch".into())),
    }
}

/// The pause after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16));
    doubled.min(MAX_PAUSE)
}
