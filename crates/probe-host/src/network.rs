//! The machine's network: routes and resolvers, from files that need no rights.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use bentpipe_probe::epb::Counters;
use bentpipe_probe::record::Network;
use bentpipe_probe::target::{Family, Side, Target};

/// Resolvers of the system, and those behind systemd-resolved. Its stub on 127.0.0.53 has a cache of its own,
/// whose hits would pass for those of the cabin.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const BEHIND_THE_STUB: [&str; 2] =
    ["/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// Maximum number of resolvers and gateways used, as the C library has it (MAXNS is 3).
const MAX_EACH: usize = 3;

/// Public anycast addresses, the same service in both families.
const PUBLIC: [(&str, IpAddr, IpAddr); 3] = [
    (
        "cloudflare",
        IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
        IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
    ),
    (
        "google",
        IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888)),
    ),
    (
        "quad9",
        IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)),
        IpAddr::V6(Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe)),
    ),
];

/// The default resolver to compare with the machine's own, by family.
pub fn public_resolver(ipv4: bool) -> IpAddr {
    if ipv4 { PUBLIC[0].1 } else { PUBLIC[0].2 }
}

/// Reads the current state.
pub fn look() -> Network {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/thread-self/net/route"), read("/proc/thread-self/net/ipv6_route"));
    let mut routes = ipv4_defaults(&v4);
    routes.extend(ipv6_defaults(&v6));
    let interface = routes.first().map(|(_, interface)| interface.clone());
    let mut gateways: Vec<IpAddr> = routes.into_iter().filter_map(|(gateway, _)| gateway).collect();
    gateways.dedup();
    gateways.truncate(MAX_EACH);
    let (resolvers, resolver_source) = resolvers(&read);
    let (ipv4, ipv6) = (has_route(PUBLIC[0].1), has_route(PUBLIC[0].2));
    Network { gateways, interface, resolvers, resolver_source, ipv4, ipv6 }
}

/// The usual targets: gateway, resolver, public addresses of each family that has a route. Without any
/// route they are those of IPv4, so that the table shows what fails.
pub fn usual_targets(network: &Network) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut add = |target: Target| {
        if targets.iter().all(|known| known.address != target.address) {
            targets.push(target);
        }
    };
    for (index, gateway) in network.gateways.iter().enumerate() {
        add(Target::automatic(numbered("gateway", index), *gateway, 80, Side::Near));
    }
    for (index, resolver) in network.resolvers.iter().enumerate() {
        if !resolver.is_loopback() {
            let side = bentpipe_probe::target::side(*resolver);
            add(Target::automatic(numbered("resolver", index), *resolver, 53, side));
        }
    }
    for (name, v4, v6) in PUBLIC {
        if network.ipv4 || !network.ipv6 {
            add(Target::automatic(name, v4, 443, Side::Far));
        }
        if network.ipv6 && !network.ipv4 {
            add(Target::automatic(name, v6, 443, Side::Far));
        }
    }
    if network.ipv4 && network.ipv6 {
        let (name, _, v6) = PUBLIC[0];
        add(Target::automatic(format!("{name}-v6"), v6, 443, Side::Far));
    }
    targets
}

fn numbered(name: &str, index: usize) -> String {
    if index == 0 { name.into() } else { format!("{name}-{}", index + 1) }
}

/// Family of connections to names: IPv4, or IPv6 if that alone has a route.
pub fn main_family() -> Family {
    if !has_route(PUBLIC[0].1) && has_route(PUBLIC[0].2) { Family::V6 } else { Family::V4 }
}

/// Counters of an interface.
pub fn counters(interface: &str) -> Option<Counters> {
    Counters::parse(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, interface)
}

/// Asks the kernel for a route: connecting a UDP socket sends nothing.
fn has_route(to: IpAddr) -> bool {
    let socket = UdpSocket::bind(SocketAddr::new(Family::of(to).unspecified(), 0));
    socket.is_ok_and(|socket| socket.connect(SocketAddr::new(to, 53)).is_ok())
}

/// Default routes in `/proc/thread-self/net/route`, best metric first: hexadecimal words in the machine's byte order.
fn ipv4_defaults(table: &str) -> Vec<(Option<IpAddr>, String)> {
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, "00000000", gateway, flags, _, _, metric, "00000000", ..] = fields[..]
        else {
            continue;
        };
        let (Ok(gateway), Ok(flags)) =
            (u32::from_str_radix(gateway, 16), u32::from_str_radix(flags, 16))
        else {
            continue;
        };
        // RTF_UP 1, RTF_REJECT 0x200.
        if flags & 0x201 != 1 {
            continue;
        }
        let gateway = Ipv4Addr::from(gateway.to_ne_bytes());
        let gateway = (!gateway.is_unspecified()).then_some(IpAddr::V4(gateway));
        found.push((metric.parse().unwrap_or(u32::MAX), gateway, interface.to_owned()));
    }
    by_metric(found)
}

/// Default routes in `/proc/thread-self/net/ipv6_route`, best metric first.
fn ipv6_defaults(table: &str) -> Vec<(Option<IpAddr>, String)> {
    let mut found = Vec::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", _, _, gateway, metric, _, _, flags, interface] = fields[..] else {
            continue;
        };
        let numbers = (
            u128::from_str_radix(destination, 16),
            u128::from_str_radix(gateway, 16),
            u32::from_str_radix(metric, 16),
            u32::from_str_radix(flags, 16),
        );
        let (Ok(0), Ok(gateway), Ok(metric), Ok(flags)) = numbers else { continue };
        if flags & 0x201 != 1 || interface == "lo" {
            continue;
        }
        let gateway = Ipv6Addr::from(gateway);
        // A link-local address needs a scope, which pings to it do not have here.
        let usable = !gateway.is_unspecified() && !gateway.is_unicast_link_local();
        found.push((metric, usable.then_some(IpAddr::V6(gateway)), interface.to_owned()));
    }
    by_metric(found)
}

fn by_metric(mut routes: Vec<(u32, Option<IpAddr>, String)>) -> Vec<(Option<IpAddr>, String)> {
    routes.sort_by_key(|(metric, ..)| *metric);
    routes.into_iter().map(|(_, gateway, interface)| (gateway, interface)).collect()
}

/// Resolvers and the file that names them.
fn resolvers(read: &impl Fn(&'static str) -> String) -> (Vec<IpAddr>, String) {
    let own = nameservers(&read(RESOLV_CONF));
    if own.iter().all(IpAddr::is_loopback) {
        for path in BEHIND_THE_STUB {
            let behind = nameservers(&read(path));
            if behind.iter().any(|resolver| !resolver.is_loopback()) {
                return (behind, path.into());
            }
        }
    }
    (own, RESOLV_CONF.into())
}

/// Addresses in a `resolv.conf`. Those with a scope (`fe80::1%eth0`) are left out.
fn nameservers(text: &str) -> Vec<IpAddr> {
    let words = text.lines().map(|line| line.split_whitespace());
    let address = |mut words: std::str::SplitWhitespace<'_>| match words.next() {
        Some("nameserver") => words.next()?.parse().ok(),
        _ => None,
    };
    words.filter_map(address).take(MAX_EACH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
        eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        tun0\t00000000\t00000000\t0001\t0\t0\t900\t00000000\t0\t0\t0\n\
        eth0\t0000000A\t00000000\t0001\t0\t0\t100\t000000FF\t0\t0\t0\n";

    #[test]
    fn default_routes_by_metric() {
        let routes = ipv4_defaults(ROUTES);
        let expected = [
            (Some("10.0.0.1".parse().unwrap()), "eth0".into()),
            (Some("192.168.2.1".parse().unwrap()), "wlan0".into()),
            (None, "tun0".into()),
        ];
        assert_eq!(routes, expected);
        let zero = "0".repeat(32);
        let gateway = "20010db8000000000000000000000001";
        let v6 = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00450003     eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n"
        );
        assert_eq!(ipv6_defaults(&v6), [(Some("2001:db8::1".parse().unwrap()), "eth0".into())]);
        assert!(ipv4_defaults("garbage\n\u{0} 00000000 zz").is_empty());
    }

    #[test]
    fn the_stub_is_looked_behind() {
        let stub = |path: &'static str| match path {
            RESOLV_CONF => "search x\nnameserver 127.0.0.53\n".into(),
            path if path == BEHIND_THE_STUB[0] => {
                "nameserver 10.0.0.1\nnameserver fe80::1%eth0\n".into()
            }
            _ => String::new(),
        };
        let (found, source) = resolvers(&stub);
        assert_eq!(
            (found, source.as_str()),
            (vec![IpAddr::from([10, 0, 0, 1])], BEHIND_THE_STUB[0])
        );
        let plain = |path: &'static str| match path {
            RESOLV_CONF => "nameserver 10.9.0.1\nnameserver 10.9.0.2".into(),
            _ => String::from("nameserver 8.8.8.8"),
        };
        assert_eq!(resolvers(&plain).0.len(), 2);
    }

    #[test]
    fn usual_targets_follow_the_families() {
        let mut network = Network {
            gateways: vec![IpAddr::from([10, 0, 0, 1])],
            resolvers: vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([127, 0, 0, 53])],
            ipv4: true,
            ..Network::default()
        };
        let names = |network: &Network| -> Vec<String> {
            usual_targets(network).into_iter().map(|target| target.name).collect()
        };
        assert_eq!(names(&network), ["gateway", "cloudflare", "google", "quad9"]);
        (network.ipv4, network.ipv6) = (false, true);
        assert!(usual_targets(&network).iter().skip(1).all(|target| target.address.is_ipv6()));
        network.ipv4 = true;
        assert!(names(&network).contains(&"cloudflare-v6".into()));
        assert_eq!(names(&Network::default()), ["cloudflare", "google", "quad9"]);
    }
}
