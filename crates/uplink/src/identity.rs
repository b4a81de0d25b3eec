//! Identity of a client beyond its address.
//!
//! A passenger is a device: it has one share and one set of limits for all its addresses. The
//! kernel's table of neighbours maps addresses to devices. Clients without an entry there are
//! treated as follows:
//!
//! | client | passenger |
//! |---|---|
//! | a program of this machine | its address; opening rates do not apply to it |
//! | behind a router in the cabin, or on an interface without hardware addresses | its IPv4 address, or its IPv6 /64, because the router's device stands for many; all of them share one opening rate of datagram flows, and give way to devices in a full table |
//! | on a cabin network, or without a route but the default, TCP | its address or /64, because the handshake has verified the address |
//! | on a cabin network, or without a route but the default, datagrams | [`EVERYONE_ELSE`](super::passengers::EVERYONE_ELSE), a small share, until the kernel knows the device, because the source may be spoofed |
//!
//! Hardware addresses can be spoofed too: docs/operations.md lists the requirements for access
//! points.

mod neighbours;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_classify::Mac;
use bentpipe_dns::Asker;
use bentpipe_flow::ClientNetwork;
use futures_util::future::{BoxFuture, ready};

use bentpipe_config::PassengerIs;
pub use neighbours::Neighbours;

/// Source of information about clients. A portal that knows names can replace [`Neighbours`].
pub trait Identity: Send + Sync + 'static {
    /// Location of the client according to the kernel.
    fn place(&self, client: IpAddr) -> Place;

    /// Waits briefly until the device of a [`Place::Unproven`] client is known.
    fn prove(&self, _client: IpAddr) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// Device of the client.
    fn mac(&self, client: IpAddr) -> Option<Mac> {
        match self.place(client) {
            Place::Device(mac) => Some(mac),
            _ => None,
        }
    }

    /// Name of the passenger.
    fn name(&self, _client: IpAddr) -> Option<Arc<str>> {
        None
    }

    /// Label of the client in usage records: its name, device, IPv4 address or IPv6 /64, in this
    /// order. Its holder may use all addresses of a /64.
    fn label(&self, client: IpAddr) -> Arc<str> {
        let label = || match self.place(client) {
            Place::Device(mac) => mac.to_string(),
            Place::Here => client.to_string(),
            Place::Elsewhere | Place::Unproven => Whose::of_address(client).to_string(),
        };
        self.name(client).unwrap_or_else(|| label().into())
    }
}

/// Location of a client in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This machine.
    Here,
    /// A device on a network of this machine.
    Device(Mac),
    /// Behind a router, or on an interface without hardware addresses.
    Elsewhere,
    /// No device with the address is known, and it is on a network of this machine or has no route
    /// but the default.
    Unproven,
}

/// Holder of a share and a set of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A device on a network of this machine.
    Device(Mac),
    /// An IPv4 address or an IPv6 /64, because its holder may use all its addresses.
    Network(ClientNetwork),
}

/// A client that requests a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newcomer {
    /// Its address.
    pub client: IpAddr,
    /// The passenger; `None` if its address may be spoofed.
    pub whose: Option<Whose>,
    /// `true` for a program of this machine, and for a flow that was admitted before.
    pub is_rate_exempt: bool,
    /// `true` if the client is behind a router, and its address is unverified.
    pub is_behind_router: bool,
}

impl Newcomer {
    /// The newcomer as one whose flow was admitted before.
    pub fn without_rate(self) -> Self {
        Self { is_rate_exempt: true, ..self }
    }

    /// Identifies the client at `client`. If it `is_connected`, its address has been verified.
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
        let is_behind_router = place == Place::Elsewhere && !is_connected;
        Self { client, whose, is_rate_exempt: place == Place::Here, is_behind_router }
    }
}

impl Newcomer {
    /// The client as the resolver identifies it.
    pub fn asker(&self) -> Asker {
        match self.whose {
            Some(Whose::Device(Mac(mac))) => Asker::Device(mac),
            Some(Whose::Network(_)) => self.client.into(),
            None => Asker::Unproven,
        }
    }
}

impl Whose {
    /// Identifies a passenger by address only.
    pub fn of_address(client: IpAddr) -> Self {
        Self::Network(ClientNetwork::of(client))
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(mac) => mac.fmt(f),
            Self::Network(network) => network.fmt(f),
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
        let client = "2001:db8:0:7:1:2:3:4".parse().unwrap();
        assert_eq!(&*Portal(None, Place::Elsewhere).label(client), "2001:db8:0:7::/64");
        assert_eq!(&*Portal(None, Place::Here).label(client), "2001:db8:0:7:1:2:3:4");
    }

    #[test]
    fn a_passenger_is_a_device_then_a_network_then_an_address() {
        let whose = |client: &str, connected, unit, place| {
            let newcomer =
                Newcomer::new(client.parse().unwrap(), connected, unit, &Portal(None, place));
            assert_eq!(newcomer.is_rate_exempt, place == Place::Here);
            let asker = match newcomer.whose {
                Some(Whose::Device(mac)) => Asker::Device(mac.0),
                Some(_) => client.parse::<IpAddr>().unwrap().into(),
                None => Asker::Unproven,
            };
            assert_eq!(newcomer.asker(), asker);
            newcomer.whose
        };
        use PassengerIs::{Address, Device};
        let (v4, v6) = ("::ffff:10.0.0.7", "2001:db8:0:7:1:2:3:4");
        let address = Some(Whose::Network(ClientNetwork::V4([10, 0, 0, 7].into())));
        let network = Some(Whose::Network(ClientNetwork::V6(0x2001_0db8_0000_0007)));
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
