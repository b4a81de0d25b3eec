//! Obstacles to interception on this machine, as log messages.
//!
//! Our table is independent of others, but it cannot override them. An intercepted packet still
//! passes the other `prerouting` chains, the policy rules and the `input` chains.

use std::io;

use netlink_packet_core::{DefaultNla, NetlinkMessage, Nla};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, ExpressionAttribute, Expressions, Hook, InetHookNumber,
    ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_packet_route::rule::{self, RuleFlags};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::SockProtocol;

use super::links::{Link, links};
use super::neighbours::{shortages, without_link_local};
use super::terms::{MARK, TABLE};
use crate::netlink;

/// Chain policy `drop` (`NF_DROP`).
const DROP: u32 = 0;

/// Returns a message for each obstacle to interception on `interfaces`. Obstacles that this process
/// may not read are omitted.
pub fn obstacles(interfaces: &[&str], fail_closed: bool) -> Vec<String> {
    let links = links().unwrap_or_default();
    let mut found: Vec<String> =
        interfaces.iter().filter_map(|name| of_interface(name, &links)).collect();
    found.extend(dropping_chains().unwrap_or_default());
    found.extend(other_interception().unwrap_or_default());
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        found.extend(earlier_rules(family, interfaces).unwrap_or_default());
    }
    found.extend(old_iptables());
    found.extend(shortages(interfaces));
    found.extend(without_link_local(interfaces));
    found.extend(interfaces.iter().filter_map(|name| advertisements(name)));
    if !fail_closed {
        found.extend(forwarding());
    }
    found
}

fn of_interface(name: &str, links: &[Link]) -> Option<String> {
    let Some(link) = links.iter().find(|link| link.name == name) else {
        return Some(format!(
            "there is no interface {name} now: what comes in by it is intercepted once it exists"
        ));
    };
    let above = links.iter().find(|other| Some(other.index) == link.above);
    let bridge = &above.filter(|above| above.is_bridge)?.name;
    Some(format!(
        "{name} is a port of the bridge {bridge}: packets come in by the bridge, so name {bridge} \
         under interfaces of tproxy"
    ))
}

/// Finds firewall chains that may drop intercepted packets, which are delivered to local sockets by
/// way of `input`.
fn dropping_chains() -> io::Result<Vec<String>> {
    let message = ChainMessage { attributes: Vec::new() };
    let chains = listed(NfTablesMessage::GetChain(message))?;
    Ok(chains.iter().filter_map(dropping).collect())
}

fn dropping((family, message): &(NetfilterProtoFamily, NfTablesMessage)) -> Option<String> {
    let NfTablesMessage::NewChain(chain) = message else { return None };
    let family = name_of(*family)?;
    let (mut table, mut name, mut at_input, mut drops) = ("", "", false, false);
    for attribute in &chain.attributes {
        match attribute {
            ChainAttribute::Table(is) => table = is,
            ChainAttribute::Name(is) => name = is,
            ChainAttribute::Policy(policy) => drops = *policy == DROP,
            ChainAttribute::Hook(hook) => {
                at_input = hook.contains(&Hook::Number(InetHookNumber::LocalIn.into()));
            }
            _ => {}
        }
    }
    (at_input && drops).then(|| {
        format!(
            "the firewall's chain {family} {table} {name} drops what none of its rules accepts, and \
             intercepted packets pass it: if it does not accept them yet, `nft insert rule {family} \
             {table} {name} meta mark {MARK:#x} accept`"
        )
    })
}

/// Finds other tables with TPROXY. If two tables intercept a packet, only one of them gets it.
fn other_interception() -> io::Result<Vec<String>> {
    let rules = listed(NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() }))?;
    let mut tables: Vec<String> = rules
        .iter()
        .filter_map(|(family, message)| {
            let NfTablesMessage::NewRule(rule) = message else { return None };
            let table = rule.attributes.iter().find_map(|attribute| match attribute {
                RuleAttribute::Table(table) if table != TABLE => Some(table),
                _ => None,
            })?;
            let intercepts = rule.attributes.iter().any(|attribute| match attribute {
                RuleAttribute::Expressions(all) => all.iter().any(intercepts),
                _ => false,
            });
            intercepts.then(|| format!("{} {table}", name_of(*family).unwrap_or("?")))
        })
        .collect();
    tables.dedup();
    let sentence = |table| {
        format!(
            "the table {table} intercepts with TPROXY as well: a connection that both want goes to \
             whichever comes first, so leave our interfaces out there"
        )
    };
    Ok(tables.into_iter().map(sentence).collect())
}

/// Returns whether a rule's expression is `tproxy`, or the TPROXY target that iptables writes to
/// nftables.
fn intercepts(element: &ListAttribute<ExpressionAttribute>) -> bool {
    let ListAttribute::Element(attributes) = element else { return false };
    attributes.iter().any(|attribute| match attribute {
        ExpressionAttribute::Data(Expressions::Other { expression_type, attributes }) => {
            let named = |nla: &DefaultNla| {
                let mut value = vec![0; nla.value_len()];
                nla.emit_value(&mut value);
                // NFTA_TARGET_NAME.
                nla.kind() == 1 && value.starts_with(b"TPROXY\0")
            };
            expression_type == "tproxy"
                || expression_type == "target" && attributes.iter().any(named)
        }
        _ => false,
    })
}

/// Finds policy rules before ours that divert our packets.
fn earlier_rules(family: AddressFamily, interfaces: &[&str]) -> io::Result<Vec<String>> {
    let mut message = rule::RuleMessage::default();
    message.header.family = family;
    let request = NetlinkMessage::from(RouteNetlinkMessage::GetRule(message));
    let rules = netlink::dump(SockProtocol::NetlinkRoute, request)?;
    let of_ours = |message| match message {
        RouteNetlinkMessage::NewRule(rule) => takes_ours(&rule, interfaces),
        _ => None,
    };
    let shown = if family == AddressFamily::Inet { "ip rule" } else { "ip -6 rule" };
    let sentence = |priority| {
        format!(
            "the policy rule of priority {priority} (`{shown}`) comes before ours of {MARK} and takes \
             intercepted packets: give it a mark of its own, or a priority above {MARK}"
        )
    };
    Ok(rules.into_iter().filter_map(of_ours).map(sentence).collect())
}

/// Returns the priority of a rule that matches packets with our mark from one of `interfaces`.
///
/// Only rules that select by mark or interface are considered. A rule that selects by address or
/// port matches only some packets. Of the kernel's own rules, only `local` precedes ours.
fn takes_ours(rule: &rule::RuleMessage, interfaces: &[&str]) -> Option<u32> {
    let (mut priority, mut mark, mut mask, mut by_interface) = (0, None, u32::MAX, None);
    for attribute in &rule.attributes {
        match attribute {
            rule::RuleAttribute::Priority(is) => priority = *is,
            rule::RuleAttribute::FwMark(is) => mark = Some(*is),
            rule::RuleAttribute::FwMask(is) => mask = *is,
            rule::RuleAttribute::Iifname(name) => by_interface = Some(name.as_str()),
            rule::RuleAttribute::Oifname(_) => return None,
            _ => {}
        }
    }
    if mark.is_none() && by_interface.is_none() {
        return None;
    }
    let marked = mark.is_none_or(|mark| MARK & mask == mark);
    let comes_in = by_interface.is_none_or(|name| interfaces.contains(&name));
    let matches = (marked && comes_in) != rule.header.flags.contains(RuleFlags::Invert);
    (matches && priority < MARK).then_some(priority)
}

/// Finds rules of iptables-legacy, which only its own program can list.
fn old_iptables() -> Option<String> {
    let tables = std::fs::read_to_string("/proc/net/ip_tables_names").ok()?;
    let tables = tables.split_whitespace().collect::<Vec<_>>().join(", ");
    (!tables.is_empty()).then(|| {
        format!(
            "iptables-legacy is in use beside nftables (tables {tables}): if intercepted connections \
             do not come through, `iptables-legacy -I INPUT -m mark --mark {MARK:#x} -j ACCEPT`"
        )
    })
}

/// Warns about router advertisements, which any passenger can send.
fn advertisements(name: &str) -> Option<String> {
    let setting = |which: &str| {
        let file = format!("/proc/sys/net/ipv6/conf/{name}/{which}");
        std::fs::read_to_string(file).ok()?.trim().parse::<u32>().ok()
    };
    // With 1 the kernel accepts them unless it forwards, with 2 always.
    let accepted = match setting("accept_ra")? {
        0 => false,
        1 => setting("forwarding") == Some(0),
        _ => true,
    };
    (accepted && setting("disable_ipv6") == Some(0)).then(|| {
        format!(
            "{name} accepts router advertisements, so any passenger can redirect this machine's IPv6 \
             traffic: `sysctl net.ipv6.conf.{name}.accept_ra=0`"
        )
    })
}

/// Warns about forwarding, because a forwarding machine bypasses the link while no gateway runs.
fn forwarding() -> Option<String> {
    let on = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0");
    let forwards = [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ];
    let on: Vec<&str> =
        forwards.iter().filter(|(_, path)| on(path)).map(|(name, _)| *name).collect();
    (!on.is_empty()).then(|| {
        format!(
            "this machine forwards packets ({}=1): what is not intercepted, and everything while the \
             gateway is stopped, leaves in clear; fail-closed = true in tproxy forbids that",
            on.join("=1, ")
        )
    })
}

/// Lists nftables objects, each with its family.
fn listed(request: NfTablesMessage) -> io::Result<Vec<(NetfilterProtoFamily, NfTablesMessage)>> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let inner = NetfilterMessageInner::NfTables(request);
    let request = NetlinkMessage::from(NetfilterMessage::new(header, inner));
    let all = netlink::dump(SockProtocol::NetlinkNetFilter, request)?;
    let of_nftables = |message: NetfilterMessage| match message.inner {
        NetfilterMessageInner::NfTables(inner) => Some((message.header.family, inner)),
        _ => None,
    };
    Ok(all.into_iter().filter_map(of_nftables).collect())
}

/// Name of a family whose tables intercepted packets pass.
fn name_of(family: NetfilterProtoFamily) -> Option<&'static str> {
    match family {
        NetfilterProtoFamily::Inet => Some("inet"),
        NetfilterProtoFamily::IPv4 => Some("ip"),
        NetfilterProtoFamily::IPv6 => Some("ip6"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::rule::RuleAttribute;

    fn rule(attributes: &[RuleAttribute]) -> rule::RuleMessage {
        let mut rule = rule::RuleMessage::default();
        rule.attributes = attributes.to_vec();
        rule
    }

    #[test]
    fn only_rules_that_take_our_packets_are_named() {
        let ours = ["cabin0"];
        let (low, high) = (RuleAttribute::Priority(100), RuleAttribute::Priority(30_000));
        let takes = |attributes: &[RuleAttribute]| takes_ours(&rule(attributes), &ours);
        let (mark, masked) = (RuleAttribute::FwMark(0x6270), RuleAttribute::FwMark(0x70));
        let mask = RuleAttribute::FwMask(0xff);
        assert_eq!(takes(&[low.clone(), mark.clone()]), Some(100));
        assert_eq!(takes(&[low.clone(), masked.clone(), mask]), Some(100));
        assert_eq!(takes(&[low.clone(), masked.clone()]), None);
        assert_eq!(takes(&[high, mark]), None, "it comes after ours");
        let by = |name: &str| RuleAttribute::Iifname(name.to_owned());
        assert_eq!(takes(&[low.clone(), by("cabin0")]), Some(100));
        assert_eq!(takes(&[low.clone(), by("radio0")]), None);
        assert_eq!(
            takes(std::slice::from_ref(&low)),
            None,
            "the kernel's own rule for local addresses"
        );
        let mut all_but = rule(&[low, masked]);
        all_but.header.flags = RuleFlags::Invert;
        assert_eq!(takes_ours(&all_but, &ours), Some(100));
    }
}
