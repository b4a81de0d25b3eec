//! The nftables table: what is intercepted, and where it is led.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NetlinkMessage};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Expressions, Hook, InetHookNumber, NfTablesMessage,
    RuleAttribute, RuleMessage, TableAttribute, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use nix::sys::socket::SockProtocol;

use super::super::capture::GROUP;
use super::{Leads, MARK, RulesError, TABLE, words};
use crate::net::ip::{TCP, UDP};
use crate::net::netlink;

const BASE_CHAIN: &str = "prerouting";
const CABIN_CHAIN: &str = "cabin";

/// Priority of the base chain, "mangle" in the words of nft: before routing and DNAT.
const MANGLE: i32 = -150;

/// The number of nftables among netfilter's subsystems.
const NFTABLES: u16 = 10;

/// Destinations on this machine or its segment, whatever its routes say.
const LOCAL_NETWORKS: [&str; 7] = [
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// Servers and clients of DHCP and DHCPv6.
const DHCP_PORTS: [u16; 4] = [67, 68, 546, 547];

/// A part of the kernel that a rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// nftables itself.
    Tables,
    /// Look-ups in the routing table.
    Fib,
    /// Interception.
    Tproxy,
    /// Copies of packets.
    Log,
}

impl Part {
    /// Its name, and the modules that hold it.
    const fn described(self) -> &'static str {
        match self {
            Self::Tables => "nftables (CONFIG_NF_TABLES_INET, module nf_tables)",
            Self::Fib => "nftables' fib (CONFIG_NFT_FIB_INET, module nft_fib_inet)",
            Self::Tproxy => "nftables' tproxy (CONFIG_NFT_TPROXY, module nft_tproxy)",
            Self::Log => "nftables' log and NFLOG (CONFIG_NFT_LOG, module nft_log)",
        }
    }
}

/// Replaces the table in one transaction.
///
/// Whatever is for this machine or its neighbours alone stays: its own addresses, broadcast and
/// multicast (DHCP, neighbour discovery, mDNS, LLMNR, SSDP among them), link-local addresses, and
/// DHCP and DHCPv6 to a server elsewhere. Only TCP has a handshake, so a packet of another protocol is
/// dropped if no route leads back to its source by the interface it came in by. Of what is neither TCP
/// nor UDP the gateway gets copies, see `capture.rs`; the packets themselves go nowhere.
pub fn replace(port: u16, interfaces: &[&str], v6: bool, leads: Leads) -> Result<(), RulesError> {
    let mut parts = vec![Part::Tables; 5];
    let mut messages = vec![new_table(), delete_table(), new_table()];
    messages.push(new_chain(CABIN_CHAIN, false));
    messages.push(new_chain(BASE_CHAIN, true));
    for name in interfaces {
        let into = [words::interface(name), vec![words::jump(CABIN_CHAIN)]].concat();
        parts.push(Part::Tables);
        messages.push(new_rule(BASE_CHAIN, into));
    }
    for (part, rule) in cabin(port, v6, leads) {
        parts.push(part);
        messages.push(new_rule(CABIN_CHAIN, rule));
    }
    send(messages).map_err(|refused| {
        let part = parts.get(refused.index).copied().unwrap_or(Part::Tables);
        if refused.source.raw_os_error() == Some(libc::EPERM) {
            return RulesError::Permission;
        }
        RulesError::Refused { what: part.described(), part: Some(part), source: refused.source }
    })
}

/// Removes the table. A table that does not exist is not an error.
pub fn remove() -> io::Result<()> {
    send(vec![new_table(), delete_table()]).map_err(|refused| refused.source)
}

/// The rules for what comes in from the cabin, each with the part of the kernel it needs.
fn cabin(port: u16, v6: bool, leads: Leads) -> Vec<(Part, Vec<Expressions>)> {
    let mut rules = Vec::new();
    let mut returns = |part, matches: Vec<Expressions>| {
        rules.push((part, [matches, vec![words::leave()]].concat()));
    };
    for kind in words::KINDS_OF_LOCAL {
        returns(Part::Fib, words::to_kind(kind));
    }
    for network in LOCAL_NETWORKS {
        let network: IpNet = network.parse().expect("a constant network");
        returns(Part::Tables, words::to_network(network));
    }
    for port in DHCP_PORTS {
        returns(Part::Tables, words::to_udp_port(port));
    }
    let invented = [words::other_protocol(TCP), words::from_elsewhere()].concat();
    rules.push((Part::Fib, [invented, vec![words::count(), words::discard()]].concat()));
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

fn new_rule(chain: &str, expressions: Vec<Expressions>) -> NetlinkMessage<NetfilterMessage> {
    let attributes = vec![
        RuleAttribute::Table(TABLE.into()),
        RuleAttribute::Chain(chain.into()),
        RuleAttribute::Expressions(expressions.into_iter().map(Into::into).collect()),
    ];
    of_inet(NfTablesMessage::NewRule(RuleMessage { attributes }), NLM_F_CREATE | NLM_F_APPEND)
}
