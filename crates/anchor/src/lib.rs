//! Flows that outlive their hub.
//!
//! A flow's bytes cross the radio to a *hub*, which ends the aircraft's session, and then to an
//! *egress*, which dials the destination. One ground gateway can be both. A hub may vanish, or the
//! aircraft may move to another; the passenger's connection and the destination's should not notice.
//! So the two ends of a flow are the air and the egress. Each keeps the bytes that the other has not
//! confirmed. The hub holds nothing.
//!
//! ```text
//!  passenger ── AIR ══ session ══ hub A ──────┐
//!                │                            EGRESS ── destination
//!                └════ session ══ hub B ──────┘
//!               unconfirmed bytes            unconfirmed bytes, socket
//! ```
//!
//! A *carrier* is one flow of a transport, from the air through a hub to the egress. An anchored flow
//! uses one carrier after another. The [records](wire) on a carrier open or resume the flow, carry its
//! data, and confirm what was passed on. To resume it, the air shows a [ticket] that the egress
//! sealed, and says what it has received. The egress answers what *it* has received, and both repeat
//! the rest.
//!
//! | module | contents |
//! |---|---|
//! | [`wire`] | the records |
//! | [`ticket`] | tickets |
//! | [`outgoing`], [`incoming`] | the two directions of a flow at one end |
//! | [`end`] | an end of a flow, and the state of a carrier |
//! | [`budget`] | memory of the flows |
//! | [`parts`] | state of flows and of an egress, for the next process |
//! | [`registry`] | the egress's table of flows, and who may attach a carrier |
//! | [`origin`], [`statement`], [`leg`] | between hub and egress |
//! | `proxied` | flows that a MASQUE proxy of any maker dials |
//!
//! These modules have no sockets, clocks or tasks.

#![forbid(unsafe_code)]

pub mod acceptor;
pub mod air;
pub mod budget;
pub mod carrier;
mod chunks;
mod current;
mod datagrams;
mod departure;
mod dials;
pub mod egress;
pub mod end;
mod ended;
#[cfg(test)]
mod fake_leg;
pub mod forward;
mod from_hubs;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod hubs;
pub mod incoming;
pub mod keeper;
pub mod leg;
#[cfg(test)]
mod model;
pub mod neighbours;
pub mod origin;
pub mod outgoing;
pub mod parts;
mod preference;
mod present_loss;
mod proxied;
pub mod registry;
pub mod statement;
mod streams;
pub mod ticket;
mod transit;
mod user_stream;
mod wakers;
pub mod wire;
