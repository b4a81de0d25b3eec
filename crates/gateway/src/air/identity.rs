//! Identity of a client beyond its address.
//!
//! A passenger is a device: however many addresses of either family it takes, it has one share and one set
//! of limits. The kernel's table of neighbours says which device has an address. Whoever has no entry there:
//!
//! | client | passenger |
//! |---|---|
//! | a program of this machine | its address; opening rates do not apply to it |
//! | behind a router in the cabin, or on an interface without hardware addresses | its IPv4 address, or its /64 of IPv6: the router's own device stands for many |
//! | on a cabin network, TCP | its address or /64: the handshake has proved the way back |
//! | on a cabin network, datagrams | [`EVERYONE_ELSE`](super::passengers::EVERYONE_ELSE), a small share, until the kernel knows the device: the source may be invented |
//!
//! Hardware addresses can be invented too: docs/operations.md says what the access points have to do.

mod neighbours;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};

use crate::classify::Mac;
use crate::config::PassengerIs;
pub use neighbours::Neighbours;

/// Source of what is known about clients. A portal that knows names puts itself in the place of
/// [`Neighbours`].
pub trait Identity: Send + Sync + 'static {
    /// Place of the client, as the kernel sees it.
    fn place(&self, client: IpAddr) -> Place;

    /// Waits a moment until the client's device is known, if it is [`Place::Unproven`].
    fn prove(&self, _client: IpAddr) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// The client's device.
    fn mac(&self, client: IpAddr) -> Option<Mac> {
        match self.place(client) {
            Place::Device(mac) => Some(mac),
            _ => None,
        }
    }

    /// The passenger's name.
    fn name(&self, _client: IpAddr) -> Option<Arc<str>> {
        None
    }

    /// The label of the client in usage records: its name, device or address, whichever is known first.
    fn label(&self, client: IpAddr) -> Arc<str> {
        let device = || self.mac(client).map(|mac| mac.to_string().into());
        self.name(client).or_else(device).unwrap_or_else(|| client.to_string().into())
    }
}

/// Place of a client on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This machine.
    Here,
    /// A device on a network of this machine.
    Device(Mac),
    /// Behind a router, or where there are no hardware addresses.
    Elsewhere,
    /// On a network of this machine, which knows no device with that address.
    Unproven,
}

/// Holder of one share and of one set of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A device of a network of this machine.
    Device(Mac),
    /// A /64 of IPv6, by its upper half: whoever has one may use all of its addresses.
    Network(u64),
    /// An address of IPv4.
    Address(Ipv4Addr),
}

/// A client that wants a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newcomer {
    /// Its address.
    pub client: IpAddr,
    /// The passenger; `None` if its address may be invented.
    pub whose: Option<Whose>,
    /// `true` for a program of this machine.
    pub is_local: bool,
}

impl Newcomer {
    /// The client at `client`, which is there for sure if it `is_connected`.
    pub fn new(
        client: IpAddr,
        is_connected: bool,
        unit: PassengerIs,
        identity: &dyn Identity,
    ) -> Self {
        let client = client.to_canonical();
        let place = identity.place(client);
        let whose = match (place, unit) {
            (Place::Device(mac), PassengerIs::Device) => Some(Whose::Device(mac)),
            (Place::Unproven, _) if !is_connected => None,
            _ => Some(Whose::of_address(client)),
        };
        Self { client, whose, is_local: place == Place::Here }
    }
}

impl Whose {
    /// The passenger that is known by its address alone.
    pub fn of_address(client: IpAddr) -> Self {
        match client.to_canonical() {
            IpAddr::V4(address) => Self::Address(address),
            // The upper half of 128 bits.
            IpAddr::V6(address) => Self::Network((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Portal(Option<&'static str>, Place);
    impl Identity for Portal {
        fn place(&self, _: IpAddr) -> Place {
            self.1
        }
        fn name(&self, _: IpAddr) -> Option<Arc<str>> {
            self.0.map(Arc::from)
        }
    }

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    #[test]
    fn clients_are_called_by_what_is_known_of_them() {
        let client = "10.0.0.7".parse().unwrap();
        let device = Place::Device(MAC);
        assert_eq!(&*Portal(Some("seat 12A"), device).label(client), "seat 12A");
        assert_eq!(&*Portal(None, device).label(client), "02:00:00:00:00:01");
        assert_eq!(&*Portal(None, Place::Elsewhere).label(client), "10.0.0.7");
    }

    #[test]
    fn a_passenger_is_a_device_then_a_network_then_an_address() {
        let whose = |client: &str, connected, unit, place| {
            let newcomer =
                Newcomer::new(client.parse().unwrap(), connected, unit, &Portal(None, place));
            assert_eq!(newcomer.is_local, place == Place::Here);
            newcomer.whose
        };
        use PassengerIs::{Address, Device};
        let (v4, v6) = ("::ffff:10.0.0.7", "2001:db8:0:7:1:2:3:4");
        let address = Some(Whose::Address([10, 0, 0, 7].into()));
        let network = Some(Whose::Network(0x2001_0db8_0000_0007));
        for client in [v4, v6] {
            assert_eq!(whose(client, false, Device, Place::Device(MAC)), Some(Whose::Device(MAC)));
            assert_eq!(whose(client, false, Device, Place::Unproven), None);
            assert_eq!(whose(client, false, Address, Place::Unproven), None);
        }
        for place in [Place::Here, Place::Elsewhere] {
            assert_eq!(whose(v4, false, Device, place), address);
            assert_eq!(whose(v6, false, Device, place), network);
        }
        assert_eq!(whose(v4, true, Device, Place::Unproven), address, "it shook hands");
        assert_eq!(whose(v6, true, Address, Place::Device(MAC)), network, "as configured");
    }
}
