//! Upload of records to a receiver, each exactly once, over links that break.
//!
//! Records go in batches of one session, in the order of their numbers. The receiver takes a batch only if it begins
//! after the session's last one, so no record arrives twice. Before the first batch of a session, and after each
//! failure, the sender requests the receiver's last receipt and continues after it. So a lost answer costs no second
//! transfer, and a cut costs the part of one batch.
//!
//! | module | contents |
//! |---|---|
//! | `batch` | names, contents and receipts of batches |
//! | `course` | the sender's requests, and what follows an answer |
//! | `held` | the receiver's batches, and what it accepts |
//! | `shared` | what an upload shares |

mod batch;
mod course;
mod held;
mod shared;

pub use batch::{Batch, MAX_BODY, MAX_PACKED_TEXT, Name, NotABatch, Receipt, digest, is_session};
pub use course::{End, Fault, Receiver, Sent, Source, run};
pub use held::{Held, Verdict};
pub use shared::Shared;

/// Path of a session at the receiver. A GET returns its last receipt.
pub fn session_path(session: &str) -> String {
    format!("records/{session}")
}

/// Path of a batch at the receiver, for a PUT.
pub fn batch_path(batch: &Batch) -> String {
    format!("records/{}/{}/{}", batch.name.session, batch.name, batch.digest)
}

#[cfg(test)]
mod tests;
