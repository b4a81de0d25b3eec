//! From a flow's target to its destination: the policy, resolution, and the class claim.

use std::net::SocketAddr;

use bentpipe_flow::{Host, ResetCode, Target};
use bentpipe_link::Class;
use bentpipe_net::ip;

use super::Shared;
use crate::claim;
use crate::eyeballs::{self, Connect};
use crate::fleet::FlowPermit;
use crate::udp::Routes;
use bentpipe_transport::{Claim, FlowStream};

impl Shared {
    /// Returns the address for datagrams to `target`, if permitted.
    pub(super) async fn route(
        &self,
        aircraft: &[u8; 32],
        target: &Target,
        protocol: u8,
    ) -> Result<SocketAddr, ResetCode> {
        let is_udp = protocol == ip::UDP;
        // Only UDP has ports here.
        if is_udp == (target.port == 0) || !(is_udp || self.carries(protocol)) {
            return Err(ResetCode::Forbidden);
        }
        let route = self.reach(aircraft, &Routes(&self.policy), protocol, target).await?;
        let address = route.address;
        let other_family = ip::is_echo(protocol) && protocol != ip::echo(address.ip());
        if other_family || is_udp && self.udp.is_own(route) {
            return Err(ResetCode::Forbidden);
        }
        Ok(address)
    }

    /// Returns `true` if `protocol`, which is not UDP, may be sent.
    fn carries(&self, protocol: u8) -> bool {
        ip::is_echo(protocol) || self.raw.carries(protocol)
    }

    /// Connects to `target` with `connector`, and returns the connection with the flow's class. Resets
    /// `stream` on failure.
    pub(super) async fn dial<C: Connect>(
        &self,
        (aircraft, target): (&[u8; 32], &Target),
        (class, claim): (Class, Option<Claim>),
        connector: &C,
        stream: &mut dyn FlowStream,
        permit: &FlowPermit,
    ) -> Result<(C::Stream, Class), ResetCode> {
        let verdict = self.verify(aircraft, claim, target, permit);
        let dial = self.reach(aircraft, connector, ip::TCP, target);
        let (dialled, verdict) = tokio::join!(dial, verdict);
        match dialled {
            Ok(connection) => {
                if let Some(verified) = verdict {
                    stream.confirm_class(verified);
                }
                stream.connected();
                Ok((connection, verdict.unwrap_or(class)))
            }
            Err(code) => {
                tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "dial failed");
                self.counters.count_reset(code);
                stream.reset(code);
                Err(code)
            }
        }
    }

    /// Returns the class of the flow's claim if the claim is true.
    async fn verify(
        &self,
        aircraft: &[u8; 32],
        claim: Option<Claim>,
        target: &Target,
        permit: &FlowPermit,
    ) -> Option<Class> {
        let (claim, Host::Ip(address)) = (claim?, &target.host) else { return None };
        self.counters.claims.add(1);
        let name = claim.name().parse().ok()?;
        if !claim::holds(&self.names.lookups(aircraft), &name, *address).await {
            return None;
        }
        self.counters.claims_held.add(1);
        Some(permit.class(claim.class))
    }

    /// Resolves `target` for `aircraft`, checks the policy, and connects with `connector` for
    /// `protocol`.
    pub(super) async fn reach<C: Connect>(
        &self,
        aircraft: &[u8; 32],
        connector: &C,
        protocol: u8,
        target: &Target,
    ) -> Result<C::Stream, ResetCode> {
        let (port, deadline) = (target.port, self.connect_timeout);
        let permit = |ip| self.policy.permit(ip, protocol, port);
        match &target.host {
            Host::Ip(ip) => {
                let address = SocketAddr::new(*ip, port);
                eyeballs::dial_address(connector, &permit, address, deadline).await
            }
            // Services are handled before dialling.
            Host::Service(_) => Err(ResetCode::Forbidden),
            Host::Name(name) => {
                let lookups = self.names.lookups(aircraft);
                eyeballs::dial(&lookups, connector, &permit, (name, port), deadline).await
            }
        }
    }
}
