//! Configuration of a host: its kernel's settings, interfaces, addresses and routes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteScope, RouteType};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime;

use super::error::EmuError;
use super::host::Host;

/// MTU of every interface in IP bytes, as on Ethernet.
pub const MTU_BYTES: u32 = 1500;

/// Packets that may wait in front of a TUN device until the wire fetches them. At most 4,096 × 64
/// KiB = 256 MiB, if each is a full segmentation frame; normally none. Packets beyond it are lost
/// outside the link's model, so it exceeds every window that TCP may open ([`TCP_BUFFER_BYTES`]).
const TUN_QUEUE_PACKETS: u32 = 4096;

/// Maximum kernel memory of one TCP connection in one direction: 16 MiB. That is twice the
/// bandwidth-delay product of 100 Mbit/s × 650 ms (8.1 MB), because the kernel counts overhead too.
const TCP_BUFFER_BYTES: u32 = 16 << 20;

/// Routing table of the kernel's own addresses, `RT_TABLE_LOCAL` of rtnetlink(7).
const LOCAL_TABLE: u32 = 255;

/// Temporary name of a cable's second end until it is in its namespace, because the first end may
/// already have the final name.
const MOVING: &str = "moving";

/// Settings of every host, below /proc/sys/net. Some kernels lack those marked `false`.
const SETTINGS: &[(&str, &str, bool)] = &[
    // All addresses are configured, so router solicitations, multicast reports and duplicate checks
    // must not cross the emulated links.
    ("ipv6/conf/all/disable_ipv6", "0", true),
    ("ipv6/conf/default/addr_gen_mode", "1", true),
    ("ipv6/conf/default/accept_ra", "0", true),
    ("ipv6/conf/default/router_solicitations", "0", true),
    ("ipv6/conf/default/accept_dad", "0", true),
    // Transparent proxying answers for addresses that are routed elsewhere.
    ("ipv4/conf/all/rp_filter", "0", true),
    ("ipv4/conf/default/rp_filter", "0", true),
    // A connection must not profit from what an earlier one learned of the path.
    ("ipv4/tcp_no_metrics_save", "1", true),
    ("ipv4/ip_local_port_range", "10000 65535", true),
    ("ipv4/ping_group_range", "0 0", false),
];

/// A host's end of a link: the interface and its addresses.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Name of the interface on the host.
    pub name: &'static str,
    /// IPv4 address of the interface, in a /24.
    pub v4: Ipv4Addr,
    /// IPv6 address of the interface, in a /64.
    pub v6: Ipv6Addr,
}

/// Route of a host to destinations that are not on one of its links.
#[derive(Debug, Clone)]
pub struct Route {
    /// IPv4 destination: address and prefix length.
    pub to4: (Ipv4Addr, u8),
    /// IPv6 destination: address and prefix length.
    pub to6: (Ipv6Addr, u8),
    /// IPv4 next hop.
    pub via4: Ipv4Addr,
    /// IPv6 next hop.
    pub via6: Ipv6Addr,
}

impl Route {
    /// Default route through the host at the other end of a link.
    pub fn default(via: &Interface) -> Self {
        let (to4, to6) = ((Ipv4Addr::UNSPECIFIED, 0), (Ipv6Addr::UNSPECIFIED, 0));
        Self { to4, to6, via4: via.v4, via6: via.v6 }
    }

    /// Route to the networks of `there` through the host at the other end of a link.
    pub fn network(there: &Interface, via: &Interface) -> Self {
        Self { to4: (there.v4, 24), to6: (there.v6, 64), via4: via.v4, via6: via.v6 }
    }
}

/// Sets the host's kernel settings and brings up its loopback. `forwards` makes it a router.
pub fn prepare(host: &Host, forwards: bool) -> Result<(), EmuError> {
    host.run(|| {
        let limits = format!("4096 131072 {TCP_BUFFER_BYTES}");
        let forwarding = if forwards { "1" } else { "0" };
        let own: [(&str, &str, bool); 5] = [
            ("ipv4/tcp_rmem", &limits, true),
            ("ipv4/tcp_wmem", &limits, true),
            ("ipv4/ip_forward", forwarding, true),
            ("ipv6/conf/all/forwarding", forwarding, true),
            // The setting above enables forwarding. This one would only make every new interface
            // join, and report, the all-routers group.
            ("ipv6/conf/default/forwarding", "0", true),
        ];
        for (name, value, required) in SETTINGS.iter().chain(&own) {
            // /proc/sys/net shows the namespace of the thread that opens it.
            let written = fs::write(format!("/proc/sys/net/{name}"), value);
            if let (Err(error), true) = (written, required) {
                let setting = name.replace('/', ".");
                return Err(host.failed(format!("set net.{setting} = {value}"), error));
            }
        }
        Ok(())
    })??;
    configure(host, "bring its loopback up", async |netlink| {
        let index = index_of(&netlink, "lo").await?;
        netlink.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await
    })
}

/// Makes a veth pair between two hosts: an Ethernet cable.
pub fn cable(a: (&Host, &Interface), b: (&Host, &Interface)) -> Result<(), EmuError> {
    let doing = format!("make the cable {} – {}", a.1.name, b.1.name);
    configure(a.0, &doing, async |netlink| {
        let pair = LinkVeth::new(a.1.name, MOVING).build();
        netlink.link().add(pair).execute().await?;
        let far = index_of(&netlink, MOVING).await?;
        let there = b.0.namespace().as_raw_fd();
        let moved = LinkUnspec::new_with_index(far).setns_by_fd(there).name(b.1.name.into());
        netlink.link().set(moved.build()).execute().await
    })?;
    address(a.0, a.1)?;
    address(b.0, b.1)?;
    // The kernel looks for neighbours from a link-local address when it answers for an address that
    // is not its own, as interception does. Without one it looks for nobody.
    for (host, interface) in [a, b] {
        configure(host, &format!("set up the interface {}", interface.name), async |netlink| {
            let index = index_of(&netlink, interface.name).await?;
            netlink.address().add(index, link_local(interface.v6).into(), 64).execute().await
        })?;
    }
    Ok(())
}

/// Link-local address with the interface identifier of `address`.
fn link_local(address: Ipv6Addr) -> Ipv6Addr {
    let mut segments = address.segments();
    segments[..4].copy_from_slice(&[0xfe80, 0, 0, 0]);
    segments.into()
}

/// Gives an interface its addresses and brings it up.
pub fn address(host: &Host, interface: &Interface) -> Result<(), EmuError> {
    configure(host, &format!("set up the interface {}", interface.name), async |netlink| {
        let index = index_of(&netlink, interface.name).await?;
        let queue = LinkAttribute::TxQueueLen(TUN_QUEUE_PACKETS);
        let up =
            LinkUnspec::new_with_index(index).mtu(MTU_BYTES).append_extra_attribute(queue).up();
        netlink.link().set(up.build()).execute().await?;
        netlink.address().add(index, interface.v4.into(), 24).execute().await?;
        netlink.address().add(index, interface.v6.into(), 64).execute().await
    })
}

/// Gives an interface further addresses of its networks.
pub fn more_addresses<'a>(
    host: &Host,
    name: &str,
    addresses: impl Iterator<Item = &'a IpAddr> + Send,
) -> Result<(), EmuError> {
    configure(host, &format!("add addresses to {name}"), async |netlink| {
        let index = index_of(&netlink, name).await?;
        for address in addresses {
            let bits = if address.is_ipv4() { 24 } else { 64 };
            netlink.address().add(index, *address, bits).execute().await?;
        }
        Ok(())
    })
}

/// Replaces an interface's IPv4 address. Its routes stay.
pub fn replace_address(
    host: &Host,
    name: &str,
    (old, new): (Ipv4Addr, Ipv4Addr),
) -> Result<(), EmuError> {
    configure(host, &format!("replace an address of {name}"), async |netlink| {
        let index = index_of(&netlink, name).await?;
        // The kernel removes the routes with the last address, and further addresses of a network
        // with its first. So the new one comes first, and in a network of its own.
        netlink.address().add(index, new.into(), 32).execute().await?;
        let mut all = netlink.address().get().set_link_index_filter(index).execute();
        let is_old = |it: &AddressAttribute| *it == AddressAttribute::Local(old.into());
        while let Some(found) = all.try_next().await? {
            if found.attributes.iter().any(is_old) {
                netlink.address().del(found).execute().await?;
            }
        }
        Ok(())
    })
}

/// Takes the carrier of an interface away, or gives it back.
pub fn set_carrier(host: &Host, name: &str, has_carrier: bool) -> Result<(), EmuError> {
    configure(host, &format!("set the carrier of {name}"), async |netlink| {
        let index = index_of(&netlink, name).await?;
        let carrier = LinkAttribute::Carrier(u8::from(has_carrier));
        let link = LinkUnspec::new_with_index(index).append_extra_attribute(carrier);
        netlink.link().set(link.build()).execute().await
    })
}

/// Adds a route for both IP versions.
pub fn route(host: &Host, route: &Route) -> Result<(), EmuError> {
    route_with(host, route, None)
}

/// Like [`route`], with a metric.
pub fn route_with(host: &Host, route: &Route, metric: Option<u32>) -> Result<(), EmuError> {
    configure(host, &format!("add the route by {}", route.via4), async |netlink| {
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(masked4(route.to4), route.to4.1)
            .gateway(route.via4);
        let v4 = metric.into_iter().fold(v4, RouteMessageBuilder::priority);
        netlink.route().add(v4.build()).execute().await?;
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(masked6(route.to6), route.to6.1)
            .gateway(route.via6);
        let v6 = metric.into_iter().fold(v6, RouteMessageBuilder::priority);
        netlink.route().add(v6.build()).execute().await
    })
}

/// Makes every address of an IPv4 network a local address of the host.
pub fn own_network(host: &Host, (network, bits): (Ipv4Addr, u8)) -> Result<(), EmuError> {
    configure(host, &format!("take the network {network}/{bits}"), async |netlink| {
        let index = index_of(&netlink, "lo").await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network, bits)
            .output_interface(index)
            .table_id(LOCAL_TABLE)
            .scope(RouteScope::Host)
            .kind(RouteType::Local);
        netlink.route().add(route.build()).execute().await
    })
}

/// Routes an IPv4 network to the host at the other end of a link.
pub fn lead_network(
    host: &Host,
    (network, bits): (Ipv4Addr, u8),
    via: Ipv4Addr,
) -> Result<(), EmuError> {
    configure(host, &format!("add the route to {network}/{bits}"), async |netlink| {
        let route =
            RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(network, bits).gateway(via);
        netlink.route().add(route.build()).execute().await
    })
}

/// Network address of the network that contains `address`.
fn masked4((address, prefix): (Ipv4Addr, u8)) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn masked6((address, prefix): (Ipv6Addr, u8)) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

/// Packets that the host's interface `name` dropped because its queue to the wire was full.
pub fn dropped(host: &Host, name: &str) -> Result<u64, EmuError> {
    Ok(device_row(host, name)?.get(11).copied().unwrap_or(0))
}

/// Counters of the host's interface `name`: 8 columns for received, then 8 for sent packets, each
/// with bytes, packets, errors, drops, .... Empty if the interface does not exist.
pub fn device_row(host: &Host, name: &str) -> Result<Vec<u64>, EmuError> {
    let path = "/proc/thread-self/net/dev";
    let table = host.run(|| fs::read_to_string(path))?;
    let table = table.map_err(|error| host.failed(format!("read {path}"), error))?;
    let row =
        table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    let columns = row.into_iter().flat_map(str::split_whitespace);
    Ok(columns.map(|column| column.parse().unwrap_or(0)).collect())
}

pub(super) async fn index_of(netlink: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    use futures_util::TryStreamExt;
    let mut found = netlink.link().get().match_name(name.into()).execute();
    let link = found.try_next().await?;
    link.map(|link| link.header.index).ok_or(rtnetlink::Error::RequestFailed)
}

/// Runs rtnetlink requests against the host's kernel.
pub(super) fn configure(
    host: &Host,
    doing: &str,
    work: impl AsyncFnOnce(Handle) -> Result<(), rtnetlink::Error> + Send,
) -> Result<(), EmuError> {
    host.run(|| {
        let runtime = runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(EmuError::Thread)?;
        runtime.block_on(async {
            let (connection, netlink, _) =
                rtnetlink::new_connection().map_err(|e| host.failed(doing.into(), e))?;
            let connection = tokio::spawn(connection);
            let done = work(netlink).await;
            connection.abort();
            done.map_err(|e| host.failed(doing.into(), e))
        })
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_cable_have_link_local_addresses_of_their_own() {
        let of = |address: &str| link_local(address.parse().unwrap()).to_string();
        assert_eq!([of("fd00:1:2:6::1"), of("fd00:1:2:6::2")], ["fe80::1", "fe80::2"]);
    }
}
