//! The class of a flow, from what its client says, and what the ground says to that.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bentpipe_link::{Host, Target};
use bentpipe_schedule::Dscp;
use tokio::time::Instant;

use super::passengers::Ticket;
use crate::classify::{
    Decision, Mac, Name, NameTable, Named, Protocol, Rules, Subject, Visible, visible,
};

/// Validity of a pair of name and address that the ground verified.
const VERIFIED_FOR: Duration = Duration::from_secs(300);

/// The operator's rules, and the names known so far.
pub struct Classes {
    rules: RwLock<Arc<Rules>>,
    names: Mutex<NameTable>,
    began: Instant,
}

/// A flow that wants to be opened.
pub struct Asked<'a> {
    pub target: &'a Target,
    pub protocol: Protocol,
    /// Mark of the client, if known.
    pub dscp: Dscp,
    pub ticket: &'a Ticket,
    /// The client's device, where that is known.
    pub mac: Option<Mac>,
    /// Its first bytes.
    pub first: &'a [u8],
}

impl Classes {
    pub fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)), names: Mutex::default(), began: Instant::now() }
    }

    /// From now on these are asked; flows that are open keep their classes.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    fn rules(&self) -> Arc<Rules> {
        // Nothing in here panics half-way.
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Class of the flow, and the claim that could be verified to give it another.
    pub fn decide(&self, asked: &Asked<'_>) -> Decision {
        let (target, protocol, rules) = (asked.target, asked.protocol, self.rules());
        let said = match protocol {
            Protocol::Tcp if rules.ask_names() => visible(asked.first),
            _ => Visible::Nothing,
        };
        let hello = rules.encrypted_hello;
        let named = Named::of(target, protocol, said, hello, &self.names(), self.now());
        let address = match target.host {
            Host::Ip(address) => Some(address),
            Host::Name(_) | Host::Service(_) => None,
        };
        rules.decide(&Subject {
            address,
            port: target.port,
            protocol,
            dscp: asked.dscp,
            passenger: asked.ticket.client,
            mac: asked.mac,
            named,
        })
    }

    /// Returns `true` if `first` is the beginning of something that may contain a name a rule asks
    /// for.
    pub fn wants_more(&self, first: &[u8]) -> bool {
        self.rules().ask_names() && visible(first) == Visible::Partial
    }

    /// Returns `true` if a rule asks for clients' devices.
    pub fn ask_devices(&self) -> bool {
        self.rules().ask_devices()
    }

    /// Returns `true` if a rule asks for clients' marks.
    pub fn ask_marks(&self) -> bool {
        self.rules().ask_marks()
    }

    /// Our own resolver answered these addresses, or the ground verified them.
    pub fn learn(&self, name: &Name, addresses: &[IpAddr], ttl: Duration) {
        let now = self.now();
        self.names().learn(name, addresses, ttl, now);
    }

    /// The ground found that `address` is one of `name`'s.
    pub fn verified(&self, name: &Name, address: IpAddr) {
        self.learn(name, &[address], VERIFIED_FOR);
    }

    /// Returns `true` if `address` is known to be one of `name`'s.
    pub fn agrees(&self, name: &Name, address: IpAddr) -> bool {
        let now = self.now();
        self.names().agrees(name, address, now)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn names(&self) -> std::sync::MutexGuard<'_, NameTable> {
        // Nothing in here panics half-way.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
