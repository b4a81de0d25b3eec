//! Policy route that delivers marked packets to this machine.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::SockProtocol;

use super::terms::MARK;
use crate::netlink;

/// Maximum number of rules that a crashed run can have left: one per interface and family.
const MAX_LEFTOVERS: usize = 256;

/// Routes marked packets of `family` received on `interfaces` to this machine.
///
/// Each rule applies to one interface. The kernel's check of a packet's source (`rp_filter`) looks
/// up the reverse route on another interface. With `src_valid_mark`, that lookup uses the packet's
/// mark, and a rule for all interfaces would make every source look local.
pub fn add(family: AddressFamily, interfaces: &[&str]) -> io::Result<()> {
    ask(RouteNetlinkMessage::NewRoute(route(family)?), NLM_F_CREATE | NLM_F_REPLACE)?;
    for name in interfaces {
        let mut rule = rule(family);
        rule.attributes.push(RuleAttribute::Iifname((*name).to_owned()));
        ask(RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL)?;
    }
    Ok(())
}

/// Removes the route and all rules, including those left by a crashed run.
pub fn remove(family: AddressFamily) {
    for _ in 0..MAX_LEFTOVERS {
        if ask(RouteNetlinkMessage::DelRule(rule(family)), 0).is_err() {
            break;
        }
    }
    // Fails if there is nothing to remove.
    let _ = route(family).and_then(|route| ask(RouteNetlinkMessage::DelRoute(route), 0));
}

fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = flags;
    netlink::ask(SockProtocol::NetlinkRoute, vec![request], 0).map_err(|refused| refused.source)
}

/// `local default dev lo table MARK`.
fn route(family: AddressFamily) -> io::Result<RouteMessage> {
    let loopback = nix::net::if_::if_nametoindex("lo")?;
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        address_family: family,
        protocol: RouteProtocol::Boot,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..route.header
    };
    route.attributes = vec![RouteAttribute::Oif(loopback), RouteAttribute::Table(MARK)];
    Ok(route)
}

/// `fwmark MARK lookup MARK priority MARK`.
fn rule(family: AddressFamily) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header = RuleHeader { family, action: RuleAction::ToTable, ..rule.header };
    rule.attributes = vec![
        RuleAttribute::FwMark(MARK),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(MARK),
        RuleAttribute::Priority(MARK),
    ];
    rule
}
