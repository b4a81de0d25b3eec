//! Room of the kernel's tables of neighbours for the devices of a cabin.

use std::net::IpAddr;

use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::SockProtocol;

use super::links::{Link, indexes, links};
use super::sources::ENTRIES_OF_INVENTED;
use crate::netlink;

/// Maximum number of devices considered: as many as the gateway keeps apart.
const MAX_DEVICES: u64 = 4_096;

/// Addresses of one device: one of IPv4; of IPv6 the link-local, the stable and a temporary one.
const V4_ADDRESSES: u64 = 1;
const V6_ADDRESSES: u64 = 3;

/// Minimum size to recommend: twice Linux's default.
const MIN_ROOM: u64 = 2_048;

/// Returns a message for each table of neighbours that is too small for the subnets of
/// `interfaces`. In a container, the kernel does not show the sizes.
pub fn shortages(interfaces: &[&str]) -> Vec<String> {
    let devices = devices(interfaces);
    let tables = [
        ("net.ipv4.neigh.default.gc_thresh3", V4_ADDRESSES),
        ("net.ipv6.neigh.default.gc_thresh3", V6_ADDRESSES),
    ];
    let shortage = |(setting, addresses): (&str, u64)| {
        let file = format!("/proc/sys/{}", setting.replace('.', "/"));
        let room = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        shortage(setting, room, devices, addresses)
    };
    tables.into_iter().filter_map(shortage).collect()
}

fn shortage(setting: &str, room: u64, devices: u64, addresses: u64) -> Option<String> {
    let needed = devices * addresses + ENTRIES_OF_INVENTED;
    (devices > 0 && needed > room).then(|| {
        let enough = needed.next_power_of_two().max(MIN_ROOM);
        format!(
            "the cabin's subnets have room for {devices} devices, and the kernel for {room} \
             neighbours: beyond that, newcomers get no answers; `sysctl {setting}={enough}`"
        )
    })
}

/// Returns a message for each of `interfaces` that has IPv6 but no link-local address. The kernel
/// looks for neighbours from such an address when it answers for a destination of a client. It gives
/// an interface one as soon as something is connected.
pub fn without_link_local(interfaces: &[&str]) -> Vec<String> {
    let addresses = addresses(AddressFamily::Inet6);
    let connected = links().unwrap_or_default().into_iter().filter(|link| link.has_carrier);
    let ours = connected.filter(|link| interfaces.contains(&link.name.as_str()));
    let lacks = |link: &Link| {
        let mut its = addresses.iter().filter(|(index, ..)| *index == link.index).peekable();
        its.peek().is_some() && !its.any(|(_, address, _)| is_link_local(*address))
    };
    let sentence = |link: Link| {
        let name = link.name;
        format!(
            "{name} has no link-local address of IPv6, so the kernel cannot look for its clients: \
             `ip link set {name} addrgenmode eui64`, or `ip addr add fe80::1/64 dev {name}`"
        )
    };
    ours.filter(lacks).map(sentence).collect()
}

fn is_link_local(address: Option<IpAddr>) -> bool {
    matches!(address, Some(IpAddr::V6(v6)) if v6.is_unicast_link_local())
}

/// Number of devices that the IPv4 subnets of `interfaces` have addresses for.
fn devices(interfaces: &[&str]) -> u64 {
    let indexes: Vec<u32> = indexes(interfaces);
    let of_v4 = addresses(AddressFamily::Inet);
    let ours = of_v4.iter().filter(|(index, ..)| indexes.contains(index));
    ours.map(|(.., prefix_len)| hosts(*prefix_len)).sum::<u64>().min(MAX_DEVICES)
}

/// Addresses of this machine: the index of the interface, the address, and its prefix length.
fn addresses(family: AddressFamily) -> Vec<(u32, Option<IpAddr>, u8)> {
    let mut message = AddressMessage::default();
    message.header.family = family;
    let request = NetlinkMessage::from(RouteNetlinkMessage::GetAddress(message));
    let listed = netlink::dump(SockProtocol::NetlinkRoute, request).unwrap_or_default();
    let address = |message| match message {
        RouteNetlinkMessage::NewAddress(it) if it.header.family == family => {
            let address = it.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            Some((it.header.index, address, it.header.prefix_len))
        }
        _ => None,
    };
    listed.into_iter().filter_map(address).collect()
}

/// Number of hosts in an IPv4 subnet, without this machine, the network's and the broadcast address.
fn hosts(prefix_len: u8) -> u64 {
    let addresses = 1_u64 << 32_u8.saturating_sub(prefix_len).min(32);
    addresses.saturating_sub(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_s_default_suffices_for_a_class_c_network() {
        let said = |room, prefix, addresses| shortage("x", room, hosts(prefix), addresses);
        assert_eq!(said(1_024, 24, V4_ADDRESSES), None);
        assert_eq!(said(1_024, 24, V6_ADDRESSES), None);
        assert_eq!(said(1_024, 23, V4_ADDRESSES), None);
        let text = said(1_024, 22, V4_ADDRESSES).unwrap();
        assert!(text.contains("1021 devices") && text.ends_with("`sysctl x=2048`"), "{text}");
        let text = said(1_024, 22, V6_ADDRESSES).unwrap();
        assert!(text.ends_with("`sysctl x=4096`"), "{text}");
        assert_eq!(said(1_024, 32, V4_ADDRESSES), None, "a point-to-point link");
        assert_eq!((hosts(0), hosts(200)), ((1 << 32) - 3, 0));
    }
}
