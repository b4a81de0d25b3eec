//! Changes of the kernel's rules by other programs, for example `nft flush ruleset`, and whether
//! ours are still there.

use std::io;
use std::os::fd::AsRawFd;

use netlink_packet_core::{NetlinkMessage, Nla};
use netlink_packet_netfilter::nftables::{
    ExpressionAttribute, Expressions, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_packet_route::rule;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{self, NetlinkAddr, SockFlag, SockProtocol, SockType};
use tokio::net::UdpSocket;

use super::terms::{MARK, TABLE};
use crate::netlink;

/// Multicast group of changes in nftables (`NFNLGRP_NFTABLES`, 7), as a bit.
const CHANGES: u32 = 1 << (7 - 1);

/// Number of notifications read before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// Notifications of the kernel about changes in nftables. The socket is wrapped as a UDP socket,
/// because reading and polling work alike.
pub struct Changes(UdpSocket);

impl Changes {
    /// Subscribes in the thread's network namespace. Must be called within a tokio runtime.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkNetFilter;
        let socket =
            socket::socket(socket::AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        socket::bind(socket.as_raw_fd(), &NetlinkAddr::new(0, CHANGES))?;
        UdpSocket::from_std(socket.into()).map(Self)
    }

    /// Waits until something has changed.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            self.0.readable().await?;
            let mut some = false;
            for _ in 0..MAX_AT_A_TURN {
                // The content does not matter. An overrun means many changes.
                match self.0.try_recv(&mut [0; 16]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    _ => some = true,
                }
            }
            if some {
                return Ok(());
            }
        }
    }
}

/// Number of rules in our table.
pub fn nft_rules() -> io::Result<usize> {
    Ok(our_rules()?.len())
}

/// Number of packets counted by the rules of our chain `name`.
pub fn counted_in(name: &str) -> io::Result<u64> {
    let is_in_chain = |rule: &RuleMessage| {
        rule.attributes.iter().any(|it| matches!(it, RuleAttribute::Chain(chain) if chain == name))
    };
    let rules = our_rules()?;
    let attributes = rules.iter().filter(|rule| is_in_chain(rule)).flat_map(|it| &it.attributes);
    let expressions = attributes.filter_map(|attribute| match attribute {
        RuleAttribute::Expressions(all) => Some(all),
        _ => None,
    });
    Ok(expressions.flatten().filter_map(packets).sum())
}

/// Packets of a counter (`NFTA_COUNTER_PACKETS`).
fn packets(element: &ListAttribute<ExpressionAttribute>) -> Option<u64> {
    let ListAttribute::Element(attributes) = element else { return None };
    attributes.iter().find_map(|attribute| match attribute {
        ExpressionAttribute::Data(Expressions::Other { expression_type, attributes })
            if expression_type == "counter" =>
        {
            let packets = attributes.iter().find(|attribute| attribute.kind() == 2)?;
            let mut value = [0; 8];
            (packets.value_len() == value.len()).then(|| packets.emit_value(&mut value))?;
            Some(u64::from_be_bytes(value))
        }
        _ => None,
    })
}

fn our_rules() -> io::Result<Vec<RuleMessage>> {
    let message = RuleMessage { attributes: vec![RuleAttribute::Table(TABLE.into())] };
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    let inner = NetfilterMessageInner::NfTables(NfTablesMessage::GetRule(message));
    let request = NetlinkMessage::from(NetfilterMessage::new(header, inner));
    let rules = netlink::dump(SockProtocol::NetlinkNetFilter, request)?;
    let of_ours = |message: NetfilterMessage| match message.inner {
        NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(rule)) => {
            let ours = |it: &RuleAttribute| matches!(it, RuleAttribute::Table(it) if it == TABLE);
            rule.attributes.iter().any(ours).then_some(rule)
        }
        _ => None,
    };
    Ok(rules.into_iter().filter_map(of_ours).collect())
}

/// Number of our policy rules of `family`.
pub fn policy_rules(family: AddressFamily) -> io::Result<usize> {
    let mut message = rule::RuleMessage::default();
    message.header.family = family;
    let request = NetlinkMessage::from(RouteNetlinkMessage::GetRule(message));
    let rules = netlink::dump(SockProtocol::NetlinkRoute, request)?;
    let is_ours = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewRule(rule) => {
            let has = |it| rule.attributes.contains(&it);
            has(rule::RuleAttribute::FwMark(MARK)) && has(rule::RuleAttribute::Priority(MARK))
        }
        _ => false,
    };
    Ok(rules.iter().filter(|message| is_ours(message)).count())
}
