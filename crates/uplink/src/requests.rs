//! Requests to open flows.

use std::sync::Arc;

use bentpipe_classify::Protocol;
use bentpipe_flow::Target;
use bentpipe_metering::experience::{Exchanges, Group};
use bentpipe_schedule::{Class, Dscp};
use bentpipe_transport::{Claim, Open, OpenDatagrams};
use bytes::Bytes;

use super::Uplink;
use crate::classes::FlowRequest;
use crate::passengers::{FlowPermit, GATEWAY};

impl Uplink {
    /// Builds the request to open a flow for a client whose connection is marked with `dscp`.
    pub fn open(&self, target: Target, permit: &FlowPermit, dscp: Dscp, first: Bytes) -> Open {
        self.open_measured(target, permit, dscp, first).0
    }

    /// Like [`Self::open`], with the measurement of the client's waits.
    pub(super) fn open_measured(
        &self,
        target: Target,
        permit: &FlowPermit,
        dscp: Dscp,
        first: Bytes,
    ) -> (Open, Exchanges) {
        let target = self.by_name(target);
        let asked = FlowRequest {
            target: &target,
            protocol: Protocol::Tcp,
            dscp,
            permit,
            mac: self.device_of(permit),
            first: &first,
        };
        let (decision, rules) = self.classes.decide(&asked);
        let class = decision.class;
        let named = |rule: usize| Arc::from(rules.rules[rule].name.as_str());
        let group = Group { class, rule: decision.rule.map(named).unwrap_or_default() };
        let claimed = decision.claim.as_ref().map(|claim| named(claim.rule));
        let exchanges = Exchanges::new(group, claimed, !first.is_empty());
        let claim = decision.claim.and_then(|it| Claim::new(it.name.as_str(), it.class).ok());
        self.counters.claims.add(u64::from(claim.is_some()));
        self.counters.count_class(class);
        (Open { target, class, passenger: permit.number, claim, first }, exchanges)
    }

    /// Builds the request to open a flow of this gateway itself, in `class`.
    pub fn open_own(&self, target: Target, class: Class) -> Open {
        self.counters.count_class(class);
        let target = self.by_name(target);
        Open { target, class, passenger: GATEWAY, claim: None, first: Bytes::new() }
    }

    /// Builds the request to open a datagram flow of `protocol` from the client's port `source`.
    pub fn open_datagrams(
        &self,
        target: Target,
        (protocol, source): (u8, u16),
        dscp: Dscp,
        permit: &FlowPermit,
    ) -> OpenDatagrams {
        let target = self.by_name(target);
        let asked = FlowRequest {
            target: &target,
            protocol: Protocol::from_number(protocol),
            dscp,
            permit,
            mac: self.device_of(permit),
            first: &[],
        };
        let class = self.classes.decide(&asked).0.class;
        self.counters.count_class(class);
        OpenDatagrams { target, protocol, source, class, passenger: permit.number }
    }
}
