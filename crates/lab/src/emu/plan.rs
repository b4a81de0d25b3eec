//! Address plan of every testbed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::net::Interface;

/// Address of the client in the cabin. All addresses are from RFC 2544's benchmark network and from
/// a unique local IPv6 prefix. Every testbed uses the same ones, because testbeds are isolated from
/// each other.
pub const CLIENT: Addresses = Addresses::new(1, 2);
/// Address of the air gateway in the cabin.
pub const AIR_CABIN: Addresses = Addresses::new(1, 1);
/// Address of the air gateway on the radio link.
pub const AIR: Addresses = Addresses::new(2, 1);
/// Another address of the air gateway on the radio link.
pub(super) const AIR_ELSEWHERE: Addresses = Addresses::new(2, 3);
/// Address of the ground gateway on the radio link.
pub const GROUND: Addresses = Addresses::new(2, 2);
/// Address of the ground gateway on the terrestrial path.
pub const GROUND_INTERNET: Addresses = Addresses::new(3, 1);
/// Address of the server.
pub const SERVER: Addresses = Addresses::new(3, 2);

/// Address of the radio link's other terminals.
pub(super) const TERMINALS: Addresses = Addresses::new(4, 2);
/// Address of the air gateway towards the other terminals.
pub(super) const TERMINALS_AIR: Addresses = Addresses::new(4, 1);
/// Address of the hosts that other users talk to.
pub(super) const CORRESPONDENTS: Addresses = Addresses::new(5, 2);
/// Address of the ground gateway towards these hosts.
pub(super) const CORRESPONDENTS_GROUND: Addresses = Addresses::new(5, 1);

/// Address of a further device (`Testbed::add_device`).
pub const DEVICE: Addresses = Addresses::new(6, 2);

/// Addresses of the air and the ground gateway on a radio link besides the first, by its number from
/// 1 to 7.
pub const fn further_radio(number: u8) -> [Addresses; 2] {
    [Addresses::new(16 + number, 1), Addresses::new(16 + number, 2)]
}

/// The passengers' network. All its addresses are local to the client, one for each device.
pub const PASSENGERS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 128, 0), 17);

/// Address of passenger `number`, which is below 2^15.
pub fn passenger(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(PASSENGERS.0.to_bits() | (number & 0x7fff))
}

/// The sites' network. All its addresses are local to the server, one for each domain.
pub const SITES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);

/// Address of site `number`, which is below 2^16.
pub fn site(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(SITES.0.to_bits() | (number & 0xffff))
}

/// Returns `true` if the address is in the sites' network.
pub fn is_site(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return false };
    address.to_bits() >> (32 - SITES.1) == SITES.0.to_bits() >> (32 - SITES.1)
}

/// Addresses of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4 address, in a /24.
    pub v4: Ipv4Addr,
    /// IPv6 address, in a /64.
    pub v6: Ipv6Addr,
}

impl Addresses {
    pub(super) const fn new(network: u8, host: u8) -> Self {
        let v4 = Ipv4Addr::new(198, 18, network, host);
        let v6 = Ipv6Addr::new(0xfd00, 0xbe9, 0xb19e, network as u16, 0, 0, 0, host as u16);
        Self { v4, v6 }
    }

    /// Both addresses, IPv4 first.
    pub fn both(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    pub(super) fn on(self, name: &'static str) -> Interface {
        Interface { name, v4: self.v4, v6: self.v6 }
    }
}
