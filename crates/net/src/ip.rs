//! IP protocol numbers (IANA, "Assigned Internet Protocol Numbers").

use std::net::IpAddr;

/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// ICMPv6.
pub const ICMPV6: u8 = 58;

/// Returns `true` if flows of `protocol` carry ICMP echo.
pub fn is_echo(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

/// Returns the ICMP protocol for the address family of `ip`.
pub fn echo(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { ICMP } else { ICMPV6 }
}
