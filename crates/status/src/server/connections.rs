//! Places of connections, and the hosts that have them.

use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_flow::quota::{Holdings, may_hold};
use parking_lot::Mutex;

/// Maximum number of connections at once. A host alone may have a fifth of them, so that no
/// single stranger takes the places of others; many together can, and a firewall is for that. Prometheus needs one, and a page up to six.
const MAX_CONNECTIONS: usize = 64;

/// Open connections of each host; an IPv6 /64 is one host.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<Holdings<IpAddr>>>);

/// Place of a connection until it is dropped.
pub struct Place {
    all: Connections,
    host: IpAddr,
}

impl Connections {
    /// Reserves a place for a connection from `address`; `None` if its host has its share. This host has
    /// no share of its own, because a proxy on it brings the connections of others.
    pub fn admit(&self, address: IpAddr) -> Option<Place> {
        let host = host_of(address);
        let mut held = self.0.lock();
        let free = MAX_CONNECTIONS - held.total();
        let may_hold =
            if host.is_loopback() { free > 0 } else { may_hold(held.of(&host), 1, free) };
        may_hold.then(|| {
            held.add(host, 1);
            Place { all: self.clone(), host }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.0.lock().remove(self.host, 1);
    }
}

fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_leaves_places_for_others() {
        let connections = Connections::default();
        let from = |host: u16, interface: u16| {
            connections.admit([0x2001, 0xdb8, 0, host, 0, 0, 0, interface].into())
        };
        let stranger: Vec<_> = (0..100).map_while(|at| from(1, at)).collect();
        assert_eq!(stranger.len(), 13);
        let prometheus =
            connections.admit([192, 0, 2, 1].into()).expect("the stranger left places");
        assert!(from(1, 200).is_none());
        drop((stranger, prometheus));
        let again: Vec<_> = (0..100).map_while(|at| from(1, at)).collect();
        assert_eq!(again.len(), 13);
        let own: Vec<_> =
            (0..100).map_while(|_| connections.admit([127, 0, 0, 1].into())).collect();
        assert_eq!(own.len(), MAX_CONNECTIONS - 13);
    }
}
