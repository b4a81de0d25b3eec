//! Who a client is beyond its address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::classify::Mac;

/// What says who a client is. A portal that knows names puts itself in the place of [`Neighbours`].
pub trait Identity: Send + Sync + 'static {
    /// The client's device.
    fn mac(&self, client: IpAddr) -> Option<Mac>;

    /// What the passenger is called.
    fn name(&self, _client: IpAddr) -> Option<Arc<str>> {
        None
    }

    /// How usage records call the client: by name, device or address, whichever is known first.
    fn label(&self, client: IpAddr) -> Arc<str> {
        let device = || self.mac(client).map(|mac| mac.to_string().into());
        self.name(client).or_else(device).unwrap_or_else(|| client.to_string().into())
    }
}

/// How long the kernel's table counts as known: a device that is new has its address until then.
const REFRESH: Duration = Duration::from_secs(5);

/// Neighbours that are known: those of a cabin ten times over.
const MAX_NEIGHBOURS: usize = 4_096;

/// Where Linux shows its neighbours of IPv4. Those of IPv6 it shows by netlink only: they are known
/// by their addresses.
const TABLE: &str = "/proc/net/arp";

/// The kernel's table of neighbours.
#[derive(Default)]
pub struct Neighbours(Mutex<Known>);

#[derive(Default)]
struct Known {
    read_at: Option<Instant>,
    devices: HashMap<IpAddr, Mac>,
}

impl Identity for Neighbours {
    fn mac(&self, client: IpAddr) -> Option<Mac> {
        // Nothing in here panics half-way.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read_at.is_none_or(|at| at.elapsed() >= REFRESH) {
            known.read_at = Some(Instant::now());
            // Where there is no such file nobody has a device.
            known.devices = devices(&std::fs::read_to_string(TABLE).unwrap_or_default());
        }
        known.devices.get(&client.to_canonical()).copied()
    }
}

/// What `/proc/net/arp` says: address, type, flags, device, mask, interface in columns.
fn devices(table: &str) -> HashMap<IpAddr, Mac> {
    let entry = |line: &str| {
        let mut columns = line.split_whitespace();
        let address: Ipv4Addr = columns.next()?.parse().ok()?;
        let mac: Mac = columns.nth(2)?.parse().ok()?;
        // Nobody has answered for the address yet.
        (mac != Mac([0; 6])).then_some((IpAddr::from(address), mac))
    };
    table.lines().take(MAX_NEIGHBOURS).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "\
IP address       HW type     Flags       HW address            Mask     Device
10.0.0.7         0x1         0x2         a4:83:e7:01:02:03     *        eth1
10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        eth1
nonsense
";
        let known = devices(table);
        let mac = Mac([0xa4, 0x83, 0xe7, 1, 2, 3]);
        assert_eq!(known.into_iter().collect::<Vec<_>>(), [("10.0.0.7".parse().unwrap(), mac)]);
    }

    #[test]
    fn clients_are_called_by_what_is_known_of_them() {
        struct Portal(Option<&'static str>, Option<Mac>);
        impl Identity for Portal {
            fn mac(&self, _: IpAddr) -> Option<Mac> {
                self.1
            }
            fn name(&self, _: IpAddr) -> Option<Arc<str>> {
                self.0.map(Arc::from)
            }
        }
        let (client, mac) = ("10.0.0.7".parse().unwrap(), Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(&*Portal(Some("seat 12A"), mac).label(client), "seat 12A");
        assert_eq!(&*Portal(None, mac).label(client), "02:00:00:00:00:01");
        assert_eq!(&*Portal(None, None).label(client), "10.0.0.7");
    }
}
