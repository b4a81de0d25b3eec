//! Follows the kernel's tables of neighbours and routes by netlink.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_classify::Mac;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use parking_lot::RwLock;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Identity, Place};
use bentpipe_relay::bucket::RateLimit;

/// Maximum number of neighbours: 1 MiB. The kernel itself keeps 1,024 of each family by default
/// (`gc_thresh3`).
const MAX_NEIGHBOURS: usize = 16_384;

/// Maximum number of routes; a cabin has a handful.
const MAX_ROUTES: usize = 1_024;

/// Interval of reading the tables again, in case a notification was lost.
const REREAD: Duration = Duration::from_secs(60);

/// Delay before reading again after a change of routes, because they change in bursts.
const SETTLING: Duration = Duration::from_millis(500);

/// Number of failures in a row after which what was read before no longer counts.
const MAX_FAILURES: u32 = 3;

/// Time for which a datagram waits until its unknown device answers. Sleeping Wi-Fi clients need
/// about 100 ms.
const PROOF_WAIT: Duration = Duration::from_millis(200);

/// Maximum rate of neighbour lookups, because each is a broadcast in the cabin.
const PROOFS_PER_SECOND: u32 = 20;

/// Burst of lookups, in seconds of that rate.
const PROOFS_BURST_SECONDS: u32 = 2;

/// Maximum number of pending lookups.
const MAX_REQUESTS: usize = 64;

/// Routing table of the kernel's own addresses, `RT_TABLE_LOCAL` of rtnetlink(7).
const TABLE_LOCAL: u8 = 255;

/// The kernel's tables. Until [`follow`](Neighbours::follow) has read them, and if they cannot be
/// read, every client is [`Place::Elsewhere`].
pub struct Neighbours {
    known: RwLock<Known>,
    changed: watch::Sender<()>,
    request: mpsc::Sender<(u32, IpAddr)>,
    requests: Mutex<mpsc::Receiver<(u32, IpAddr)>>,
    proofs: RateLimit,
}

#[derive(Default)]
struct Known {
    is_read: bool,
    /// Neighbours with a valid entry, with their hardware addresses if they have any.
    entries: HashMap<IpAddr, Option<Mac>>,
    /// Routes, longest prefix first.
    routes: Vec<Route>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    to: IpNet,
    leads: Leads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// To this machine.
    Here,
    /// To neighbours on the interface with this index.
    Link(u32),
    /// To a router, or over an interface without hardware addresses.
    On,
}

impl Default for Neighbours {
    fn default() -> Self {
        let (request, requests) = mpsc::channel(MAX_REQUESTS);
        Self {
            known: RwLock::default(),
            changed: watch::Sender::default(),
            request,
            requests: Mutex::new(requests),
            proofs: RateLimit::new(PROOFS_PER_SECOND, PROOFS_BURST_SECONDS),
        }
    }
}

impl Identity for Neighbours {
    fn place(&self, client: IpAddr) -> Place {
        self.known.read().place(client.to_canonical())
    }

    fn prove(&self, client: IpAddr) -> BoxFuture<'_, ()> {
        let client = client.to_canonical();
        Box::pin(async move {
            let mut changed = self.changed.subscribe();
            // Without a route the kernel cannot look for the client.
            let Some(link) = self.known.read().link(client) else { return };
            if self.proofs.take() {
                // If the queue is full, other traffic may still make the kernel discover the
                // device.
                let _ = self.request.try_send((link, client));
            }
            let proved = async {
                while self.place(client) == Place::Unproven && changed.changed().await.is_ok() {}
            };
            // After the timeout, the current knowledge applies.
            let _ = timeout(PROOF_WAIT, proved).await;
        })
    }
}

impl Neighbours {
    /// Follows the kernel's tables. Never returns.
    pub async fn follow(&self) {
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let Err(error) = self.follow_once().await;
            failures = if began.elapsed() > REREAD { 1 } else { failures + 1 };
            // The kernel drops a follower that is too slow, which a new start mends.
            if failures == MAX_FAILURES {
                self.set(Known::default());
                tracing::warn!(
                    %error,
                    "the kernel's neighbours cannot be read: passengers are known by their addresses alone"
                );
            }
            sleep(if failures < MAX_FAILURES { SETTLING } else { REREAD }).await;
        }
    }

    /// Reads the tables, then follows changes, until netlink fails.
    async fn follow_once(&self) -> Result<Infallible, rtnetlink::Error> {
        let groups = [MulticastGroup::Neigh, MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];
        let (connection, netlink, mut messages) = rtnetlink::new_multicast_connection(&groups)
            .map_err(|_| rtnetlink::Error::RequestFailed)?;
        let connection = AbortOnDrop(tokio::spawn(connection));
        let mut requests = self.requests.lock().await;
        self.set(read(&netlink).await?);
        let mut reread = Instant::now() + REREAD;
        loop {
            tokio::select! {
                message = messages.next() => {
                    let Some((message, _)) = message else { return Err(rtnetlink::Error::RequestFailed) };
                    match message.payload {
                        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(it)) => self.note(&it),
                        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(mut it)) => {
                            it.header.state = NeighbourState::None;
                            self.note(&it);
                        }
                        _ => reread = reread.min(Instant::now() + SETTLING),
                    }
                }
                Some((link, client)) = requests.recv() => {
                    let look = netlink.neighbours().add(link, client).replace();
                    let look = look.state(NeighbourState::None).flags(NeighbourFlags::Use);
                    if let Err(error) = look.execute().await {
                        tracing::debug!(%error, %client, "the kernel does not look for a neighbour");
                    }
                }
                () = sleep_until(reread) => {
                    self.set(read(&netlink).await?);
                    reread = Instant::now() + REREAD;
                }
            }
            if connection.0.is_finished() {
                return Err(rtnetlink::Error::RequestFailed);
            }
        }
    }

    fn set(&self, known: Known) {
        *self.known.write() = known;
        self.changed.send_replace(());
    }

    fn note(&self, message: &NeighbourMessage) {
        let Some((address, entry)) = neighbour(message) else { return };
        self.known.write().note(address, entry);
        self.changed.send_replace(());
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Known {
    fn place(&self, client: IpAddr) -> Place {
        if client.is_loopback() {
            return Place::Here;
        }
        if !self.is_read {
            return Place::Elsewhere;
        }
        match (self.entries.get(&client), self.route(client)) {
            (Some(Some(mac)), _) => Place::Device(*mac),
            (None, Some(Leads::Here)) => Place::Here,
            (None, Some(Leads::Link(_)) | None) => Place::Unproven,
            (None, Some(Leads::On)) | (Some(None), _) => Place::Elsewhere,
        }
    }

    /// Returns the interface on which the client must be a neighbour.
    fn link(&self, client: IpAddr) -> Option<u32> {
        match self.route(client) {
            Some(Leads::Link(link)) => Some(link),
            _ => None,
        }
    }

    fn route(&self, client: IpAddr) -> Option<Leads> {
        self.routes.iter().find(|route| route.to.contains(&client)).map(|route| route.leads)
    }

    fn note(&mut self, address: IpAddr, entry: Option<Option<Mac>>) {
        match entry {
            Some(mac)
                if self.entries.len() < MAX_NEIGHBOURS || self.entries.contains_key(&address) =>
            {
                self.entries.insert(address, mac);
            }
            Some(_) => {}
            None => drop(self.entries.remove(&address)),
        }
    }
}

/// Reads the kernel's current tables.
async fn read(netlink: &Handle) -> Result<Known, rtnetlink::Error> {
    let mut known = Known { is_read: true, ..Known::default() };
    let mut links = netlink.link().get().execute();
    let mut without_neighbours = Vec::new();
    while let Some(link) = links.try_next().await? {
        if link.header.flags.intersects(LinkFlags::Noarp | LinkFlags::Loopback) {
            without_neighbours.push(link.header.index);
        }
    }
    for message in [
        RouteMessageBuilder::<std::net::Ipv4Addr>::new().build(),
        RouteMessageBuilder::<std::net::Ipv6Addr>::new().build(),
    ] {
        let mut routes = netlink.route().get(message).execute();
        while let Some(message) = routes.try_next().await? {
            let route = route(&message, &without_neighbours);
            known.routes.extend(route.filter(|_| known.routes.len() < MAX_ROUTES));
        }
    }
    known.routes.sort_by_key(|route| std::cmp::Reverse(route.to.prefix_len()));
    let mut neighbours = netlink.neighbours().get().execute();
    while let Some(message) = neighbours.try_next().await? {
        if let Some((address, entry)) = neighbour(&message) {
            known.note(address, entry);
        }
    }
    Ok(known)
}

/// Returns the neighbour's address and, while its entry is valid, its hardware address if it has
/// one.
fn neighbour(message: &NeighbourMessage) -> Option<(IpAddr, Option<Option<Mac>>)> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
            Some(IpAddr::V4(*address))
        }
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some(IpAddr::V6(*address))
        }
        _ => None,
    })?;
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLocalAddress(bytes) => bytes.as_slice().try_into().ok().map(Mac),
        _ => None,
    });
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let is_valid =
        matches!(message.header.state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
    Some((address, is_valid.then(|| mac.filter(|mac| *mac != Mac([0; 6])))))
}

/// Returns the route if it determines the location of clients.
fn route(message: &RouteMessage, without_neighbours: &[u32]) -> Option<Route> {
    let (mut to, mut link, mut has_gateway) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                to = Some((*address).into())
            }
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                to = Some((*address).into())
            }
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::MultiPath(_) => {
                has_gateway = true;
            }
            _ => {}
        }
    }
    let leads = match (message.header.kind, message.header.table) {
        // Local routes in interception's own tables do not indicate this machine's addresses.
        (RouteType::Local, TABLE_LOCAL) => Leads::Here,
        (RouteType::Unicast, _) if has_gateway => Leads::On,
        (RouteType::Unicast, _) => match link {
            Some(link) if !without_neighbours.contains(&link) => Leads::Link(link),
            _ => Leads::On,
        },
        _ => return None,
    };
    // A default route has no destination, and is not needed here.
    let to: IpAddr = to?;
    IpNet::new(to, message.header.destination_prefix_length).ok().map(|to| Route { to, leads })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn entry(state: NeighbourState, hardware: &[u8]) -> Option<Option<Mac>> {
        let mut message = NeighbourMessage::default();
        message.header.state = state;
        let address = NeighbourAddress::Inet([10, 9, 0, 2].into());
        message.attributes.push(NeighbourAttribute::Destination(address));
        message.attributes.push(NeighbourAttribute::LinkLocalAddress(hardware.to_vec()));
        let (address, entry) = neighbour(&message).unwrap();
        assert_eq!(address, IpAddr::from([10, 9, 0, 2]));
        entry
    }

    #[test]
    fn only_neighbours_that_answered_are_known() {
        use NeighbourState::{
            Delay, Failed, Incomplete, Noarp, None as Nothing, Permanent, Probe, Reachable, Stale,
        };
        for state in [Reachable, Stale, Delay, Probe, Permanent] {
            assert_eq!(entry(state, &MAC), Some(Some(Mac(MAC))), "{state}");
        }
        for state in [Failed, Incomplete, Nothing] {
            assert_eq!(entry(state, &MAC), None, "{state}");
        }
        assert_eq!(entry(Noarp, &[]), Some(None), "without a hardware address");
        assert_eq!(entry(Noarp, &[0; 6]), Some(None), "without a hardware address");
        assert_eq!(neighbour(&NeighbourMessage::default()), None);
    }

    #[test]
    fn the_table_is_bounded_and_the_longest_prefix_counts() {
        let mut known = Known { is_read: true, ..Known::default() };
        for n in 0..=MAX_NEIGHBOURS as u32 {
            known.note(IpAddr::from((0x0a00_0000 + n).to_be_bytes()), Some(None));
        }
        assert_eq!(known.entries.len(), MAX_NEIGHBOURS);
        let first = IpAddr::from([10, 0, 0, 0]);
        known.note(first, Some(Some(Mac(MAC))));
        assert_eq!(known.place(first), Place::Device(Mac(MAC)), "known ones change");
        known.note(first, None);
        assert_eq!(known.place(first), Place::Unproven, "no route at all");
        let route = |to: &str, leads| Route { to: to.parse().unwrap(), leads };
        known.routes = vec![route("10.0.0.0/24", Leads::On), route("10.0.0.0/8", Leads::Link(3))];
        assert_eq!(known.place(first), Place::Elsewhere, "behind a router");
        let last = IpAddr::from([10, 255, 0, 1]);
        assert_eq!((known.place(last), known.link(last)), (Place::Unproven, Some(3)));
        known.is_read = false;
        assert_eq!(known.place(last), Place::Elsewhere);
    }
}
