//! A further device of the cabin, on a port of its own at the air gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::EmuError;
use super::host::Host;
use super::net::{self, Route};
use super::plan::{Addresses, DEVICE};
use super::testbed::Testbed;

/// Name of the air gateway's interface towards the device.
pub const DEVICE_INTERFACE: &str = "cabin2";

/// Maximum further IPv4 addresses: those of a /24 except the network, the air gateway, the device
/// and the broadcast address.
const MAX_MORE_V4: u8 = 252;

/// The device and all its addresses, IPv4 first.
pub struct Device {
    /// Kernel of the device.
    pub host: Host,
    /// Addresses on its interface.
    pub addresses: Vec<IpAddr>,
}

impl Testbed {
    /// Adds a device with one MAC address. It has `v4` further IPv4 addresses of its network, at
    /// most 252, and `v6` further IPv6 addresses.
    pub fn add_device(&self, v4: u8, v6: u16) -> Result<Device, EmuError> {
        let host = Host::new("device")?;
        net::prepare(&host, false)?;
        let (own, gateway) = (DEVICE.on("cabin"), AIR_DEVICE.on(DEVICE_INTERFACE));
        net::cable((&host, &own), (&self.air, &gateway))?;
        net::route(&host, &Route::default(&gateway))?;
        let more4 = (0..v4.min(MAX_MORE_V4)).map(|n| {
            let [a, b, c, d] = DEVICE.v4.octets();
            Ipv4Addr::new(a, b, c, d + 1 + n).into()
        });
        let more6 = (0..v6).map(|n| {
            let mut segments = DEVICE.v6.segments();
            segments[6] = 1 + n;
            Ipv6Addr::from(segments).into()
        });
        let (more4, more6): (Vec<IpAddr>, Vec<IpAddr>) = (more4.collect(), more6.collect());
        net::more_addresses(&host, own.name, more4.iter().chain(&more6))?;
        let own4 = std::iter::once(DEVICE.v4.into()).chain(more4);
        let own6 = std::iter::once(DEVICE.v6.into()).chain(more6);
        Ok(Device { host, addresses: own4.chain(own6).collect() })
    }
}

/// Addresses of the air gateway towards the device.
const AIR_DEVICE: Addresses = Addresses::new(6, 1);
