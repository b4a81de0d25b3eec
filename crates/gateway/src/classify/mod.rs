//! Class of a flow: the operator's rules, and the visible properties of the flow.
//!
//! Pure: bytes, addresses and time come in as arguments. [`visible`] reads the name that a client
//! says in its first bytes. [`NameTable`] keeps which addresses our own resolver answered for which
//! names. [`Rules`] puts both together: a rule about domains holds only where a name *and* its address
//! agree, because a client may say any name it likes. Where they are not known to agree, the
//! [`Decision`] holds a [`Claim`] that the ground can verify, and the flow has the class it would have
//! without it meanwhile.

mod condition;
mod domain;
mod host;
mod names;
mod police;
mod rules;
mod sni;
mod subject;
mod visible;

pub(crate) use condition::net;
pub use condition::{Mac, Ports, Protocol, Who};
pub use domain::{Domain, DomainError, Name};
pub use names::{MAX_ADDRESSES_PER_NAME, MAX_NAMES, MAX_TTL, MIN_TTL, NameTable};
pub use police::Policer;
pub use rules::{Claim, Condition, Decision, EncryptedHello, Match, Rule, Rules, Trusted};
pub use subject::{MAX_NAMES_CONSIDERED, Named, Subject};
pub use visible::{Visible, visible};
