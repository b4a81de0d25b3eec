//! nftables table: selects the packets to intercept, and redirects them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NetlinkMessage};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Expressions, Hook, InetHookNumber, NfTablesMessage,
    RuleAttribute, RuleMessage, SetMessage, TableAttribute, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use nix::sys::socket::SockProtocol;

use super::terms::{GROUP, Leads, MARK, Part, RulesError, TABLE};
use super::{sources, words};
use crate::ip::{TCP, UDP};
use crate::netlink;

const BASE_CHAIN: &str = "prerouting";
const CABIN_CHAIN: &str = "cabin";
pub const SOURCES_CHAIN: &str = "sources";

/// Priority of the base chain, called "mangle" by nft: before routing and DNAT.
const MANGLE: i32 = -150;

/// Netfilter subsystem number of nftables.
const NFTABLES: u16 = 10;

/// Destinations that are always on this machine or its segment, regardless of routes.
const LOCAL_NETWORKS: [&str; 7] = [
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// Sources of clients that do not have an address yet: DHCP, and address detection of IPv6. The
/// kernel does not forward their packets.
const UNSPECIFIED: [&str; 2] = ["0.0.0.0/32", "::/128"];

/// Sources that need no route: neighbour discovery, router advertisements and multicast listeners
/// use them, and some interfaces have no route for them.
const LINK_LOCAL: &str = "fe80::/10";

/// Ports of DHCP and DHCPv6 servers and clients.
const DHCP_PORTS: [u16; 4] = [67, 68, 546, 547];

/// Replaces the table in one transaction.
///
/// Packets for this machine or its neighbours are not intercepted:
///
/// - its own addresses;
/// - broadcast and multicast, for example DHCP, neighbour discovery, mDNS, LLMNR and SSDP;
/// - link-local addresses;
/// - DHCP and DHCPv6 to a remote server.
///
/// Sources can be spoofed. A packet is therefore dropped if the route to its source does not use the
/// interface it arrived on, also if it is for this machine. Otherwise each such source would be a
/// client of its own to the gateway's DNS, and the answers, even those to TCP handshakes, would
/// leave by the default route. DHCP, unspecified sources and link-local sources of IPv6 are exempt.
///
/// A device may use only a few new sources a second, see [`sources`]. If the kernel lacks what
/// that needs, the log says so and the other rules apply without it.
///
/// The gateway receives copies of packets that are neither TCP nor UDP, see
/// `capture.rs`; the originals are dropped.
pub fn replace(port: u16, interfaces: &[&str], v6: bool, leads: Leads) -> Result<(), RulesError> {
    match install(port, interfaces, v6, leads, true) {
        Err(RulesError::Refused { part: Some(Part::Limits), what, source }) => {
            tracing::warn!(
                error = %source,
                "a device may use any number of invented sources inside its subnet, each with an \
                 entry in the table of neighbours: a bound needs a kernel with {what}"
            );
            install(port, interfaces, v6, leads, false)
        }
        installed => installed,
    }
}

fn install(
    port: u16,
    interfaces: &[&str],
    v6: bool,
    leads: Leads,
    limited: bool,
) -> Result<(), RulesError> {
    let mut messages: Vec<_> = [new_table(), delete_table(), new_table()]
        .into_iter()
        .chain([new_chain(CABIN_CHAIN, false), new_chain(BASE_CHAIN, true)])
        .map(|message| (Part::Tables, message))
        .collect();
    if limited {
        messages.push((Part::Tables, new_chain(SOURCES_CHAIN, false)));
        messages.extend(sources::sets().into_iter().map(|set| (Part::Limits, new_set(set))));
        let rules = sources::rules().into_iter();
        messages.extend(rules.map(|rule| (Part::Limits, new_rule(SOURCES_CHAIN, rule))));
    }
    for name in interfaces {
        let into = [words::interface(name), vec![words::jump(CABIN_CHAIN)]].concat();
        messages.push((Part::Tables, new_rule(BASE_CHAIN, into)));
    }
    let rules = cabin(port, v6, leads, limited).into_iter();
    messages.extend(rules.map(|(part, rule)| (part, new_rule(CABIN_CHAIN, rule))));
    let (parts, messages): (Vec<Part>, Vec<_>) = messages.into_iter().unzip();
    send(messages).map_err(|refused| {
        let part = parts.get(refused.index).copied().unwrap_or(Part::Tables);
        if refused.source.raw_os_error() == Some(libc::EPERM) {
            return RulesError::Permission;
        }
        RulesError::Refused { what: part.described(), part: Some(part), source: refused.source }
    })
}

/// Removes the table. A missing table is not an error.
pub fn remove() -> io::Result<()> {
    send(vec![new_table(), delete_table()]).map_err(|refused| refused.source)
}

/// Rules for packets from the cabin, each with the kernel feature it needs. If `limited`, they pass
/// the chain of sources.
fn cabin(port: u16, v6: bool, leads: Leads, limited: bool) -> Vec<(Part, Vec<Expressions>)> {
    let mut rules = Vec::new();
    let returns = |matches: Vec<Expressions>| [matches, vec![words::leave()]].concat();
    for source in UNSPECIFIED {
        rules.push((Part::Tables, returns(words::from_network(network(source)))));
    }
    let of_dhcp = if limited { words::goto(SOURCES_CHAIN) } else { words::leave() };
    for port in DHCP_PORTS {
        rules.push((Part::Tables, [words::to_udp_port(port), vec![of_dhcp.clone()]].concat()));
    }
    for sources in [words::family(words::IPV4), words::from_outside(network(LINK_LOCAL))] {
        let unrouted = [sources, words::from_elsewhere(), vec![words::count(), words::discard()]];
        rules.push((Part::Fib, unrouted.concat()));
    }
    if limited {
        let into = [words::over_ethernet(), vec![words::jump(SOURCES_CHAIN)]].concat();
        rules.push((Part::Tables, into));
    }
    for kind in words::KINDS_OF_LOCAL {
        rules.push((Part::Fib, returns(words::to_kind(kind))));
    }
    for local in LOCAL_NETWORKS {
        rules.push((Part::Tables, returns(words::to_network(network(local)))));
    }
    let families = [(words::IPV4, IpAddr::from(Ipv4Addr::LOCALHOST))].into_iter();
    let families = families.chain(v6.then_some((words::IPV6, Ipv6Addr::LOCALHOST.into())));
    for (family, loopback) in families {
        for protocol in [TCP, UDP].into_iter().take(1 + usize::from(leads.udp)) {
            let lead = [
                words::family(family),
                words::protocol(protocol),
                words::tproxy(loopback, port),
                words::set_mark(MARK),
                vec![words::accept()],
            ];
            rules.push((Part::Tproxy, lead.concat()));
        }
    }
    if leads.others {
        let others = [words::other_protocol(TCP), words::other_protocol(UDP)].concat();
        rules.push((Part::Log, [others, vec![words::log(GROUP), words::discard()]].concat()));
    }
    if leads.fail_closed {
        rules.push((Part::Tables, vec![words::count(), words::discard()]));
    }
    rules
}

fn network(text: &str) -> IpNet {
    text.parse().expect("a constant network")
}

/// Sends `messages` as one transaction.
fn send(messages: Vec<NetlinkMessage<NetfilterMessage>>) -> Result<(), netlink::Refused> {
    let last = messages.len();
    let mut batch = vec![limit(ControlMessage::BatchBegin)];
    batch.extend(messages);
    batch.push(limit(ControlMessage::BatchEnd));
    netlink::ask(SockProtocol::NetlinkNetFilter, batch, last).map_err(|refused| {
        // The first message only opens the transaction.
        netlink::Refused { index: refused.index.saturating_sub(1), ..refused }
    })
}

fn limit(message: ControlMessage) -> NetlinkMessage<NetfilterMessage> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, NFTABLES);
    NetlinkMessage::from(NetfilterMessage::new(header, NetfilterMessageInner::None(message)))
}

fn of_inet(message: NfTablesMessage, flags: u16) -> NetlinkMessage<NetfilterMessage> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    let inner = NetfilterMessageInner::NfTables(message);
    let mut message = NetlinkMessage::from(NetfilterMessage::new(header, inner));
    message.header.flags = flags;
    message
}

fn new_table() -> NetlinkMessage<NetfilterMessage> {
    of_inet(NfTablesMessage::NewTable(table()), NLM_F_CREATE)
}

fn delete_table() -> NetlinkMessage<NetfilterMessage> {
    of_inet(NfTablesMessage::DeleteTable(table()), 0)
}

fn table() -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name(TABLE.into())] }
}

fn new_chain(name: &str, base: bool) -> NetlinkMessage<NetfilterMessage> {
    let mut attributes =
        vec![ChainAttribute::Table(TABLE.into()), ChainAttribute::Name(name.into())];
    if base {
        attributes.push(ChainAttribute::Hook(vec![
            Hook::Number(InetHookNumber::PreRouting.into()),
            Hook::Priority(MANGLE.cast_unsigned()),
        ]));
        attributes.push(ChainAttribute::Type("filter".into()));
    }
    of_inet(NfTablesMessage::NewChain(ChainMessage { attributes }), NLM_F_CREATE)
}

fn new_set(set: SetMessage) -> NetlinkMessage<NetfilterMessage> {
    of_inet(NfTablesMessage::NewSet(set), NLM_F_CREATE)
}

fn new_rule(chain: &str, expressions: Vec<Expressions>) -> NetlinkMessage<NetfilterMessage> {
    let attributes = vec![
        RuleAttribute::Table(TABLE.into()),
        RuleAttribute::Chain(chain.into()),
        RuleAttribute::Expressions(expressions.into_iter().map(Into::into).collect()),
    ];
    of_inet(NfTablesMessage::NewRule(RuleMessage { attributes }), NLM_F_CREATE | NLM_F_APPEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(rules: &[(Part, Vec<Expressions>)], rule: &[Expressions]) -> usize {
        rules.iter().position(|(_, it)| it.starts_with(rule)).expect("the rule is there")
    }

    /// The source check precedes each rule that lets packets reach this machine, except those for
    /// clients without an address.
    #[test]
    fn sources_are_checked_before_destinations_and_for_all_protocols() {
        for leads in [Leads::default(), Leads { udp: true, others: true, fail_closed: true }] {
            let rules = cabin(1081, true, leads, true);
            let v4 = [words::family(words::IPV4), words::from_elsewhere()].concat();
            let v6 = [words::from_outside(network(LINK_LOCAL)), words::from_elsewhere()].concat();
            let (v4, v6) = (position(&rules, &v4), position(&rules, &v6));
            let limit = position(&rules, &words::over_ethernet());
            for drop in [v4, v6] {
                assert_eq!(rules[drop].1.last(), Some(&words::discard()));
                assert!(drop < limit, "unrouted sources cost a device nothing of its rate");
            }
            for kind in words::KINDS_OF_LOCAL {
                assert!(limit < position(&rules, &words::to_kind(kind)));
            }
            for local in LOCAL_NETWORKS {
                assert!(limit < position(&rules, &words::to_network(network(local))));
            }
            for port in DHCP_PORTS {
                let at = position(&rules, &words::to_udp_port(port));
                assert!(at < v4.min(v6));
                assert_eq!(rules[at].1.last(), Some(&words::goto(SOURCES_CHAIN)));
            }
            for source in UNSPECIFIED {
                assert!(position(&rules, &words::from_network(network(source))) < v4.min(v6));
            }
        }
    }
}
