//! Class of a flow, derived from what its client shows, and the ground gateway's verdict on it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_classify::{
    Decision, Mac, Name, NameTable, Named, Protocol, Rules, Subject, Visible, visible,
};
use bentpipe_flow::{Host, Target};
use bentpipe_schedule::Dscp;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::passengers::FlowPermit;

/// Lifetime of a verified pair of name and address.
const VERIFIED_FOR: Duration = Duration::from_secs(300);

/// The operator's rules, and the known names.
pub struct Classes {
    rules: RwLock<Arc<Rules>>,
    names: Mutex<NameTable>,
    began: Instant,
}

/// A flow to be opened.
pub struct FlowRequest<'a> {
    /// Destination.
    pub target: &'a Target,
    /// Protocol that the client uses.
    pub protocol: Protocol,
    /// DSCP set by the client, if known.
    pub dscp: Dscp,
    /// Permit of the flow.
    pub permit: &'a FlowPermit,
    /// Device of the client, if known.
    pub mac: Option<Mac>,
    /// First bytes of the flow.
    pub first: &'a [u8],
}

impl Classes {
    /// Creates the classifier with `rules`.
    pub fn new(rules: Rules) -> Self {
        Self { rules: RwLock::new(Arc::new(rules)), names: Mutex::default(), began: Instant::now() }
    }

    /// Replaces the rules for new flows; open flows keep their classes.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.write() = Arc::new(rules);
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Returns the class of the flow with the claim that could change it if verified, and the rules
    /// that decided it.
    pub fn decide(&self, asked: &FlowRequest<'_>) -> (Decision, Arc<Rules>) {
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
        let decision = rules.decide(&Subject {
            address,
            port: target.port,
            protocol,
            dscp: asked.dscp,
            passenger: asked.permit.client,
            mac: asked.mac,
            named,
        });
        (decision, rules)
    }

    /// Returns `true` if `first` is the start of a message that may contain a name needed by a
    /// rule.
    pub fn wants_more(&self, first: &[u8]) -> bool {
        self.rules().ask_names() && visible(first) == Visible::Partial
    }

    /// Returns `true` if a rule depends on clients' devices.
    pub fn ask_devices(&self) -> bool {
        self.rules().ask_devices()
    }

    /// Returns `true` if a rule depends on clients' marks.
    pub fn ask_marks(&self) -> bool {
        self.rules().ask_marks()
    }

    /// Records addresses of `name` that our own resolver returned, or that the ground gateway
    /// verified.
    pub fn learn(&self, name: &Name, addresses: &[IpAddr], ttl: Duration) {
        let now = self.now();
        self.names().learn(name, addresses, ttl, now);
    }

    /// Records that the ground gateway verified `address` as one of `name`.
    pub fn verified(&self, name: &Name, address: IpAddr) {
        self.learn(name, &[address], VERIFIED_FOR);
    }

    /// Returns `true` if `address` is known to belong to `name`.
    pub fn agrees(&self, name: &Name, address: IpAddr) -> bool {
        let now = self.now();
        self.names().agrees(name, address, now)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn names(&self) -> parking_lot::MutexGuard<'_, NameTable> {
        self.names.lock()
    }
}
