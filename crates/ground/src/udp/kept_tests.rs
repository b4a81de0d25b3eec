//! Ports that outlive a session.

use std::net::SocketAddr;

use bentpipe_flow::Class;
use bentpipe_transport::DatagramError;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::net::UdpSocket;
use tokio::sync::{Mutex, mpsc};

use super::*;
use crate::ports::Budget;

/// Time for which ports are kept.
const KEPT: Duration = Duration::from_secs(60);

/// The ground's end of a flow, whose air is the test.
struct Flow(Mutex<mpsc::Receiver<Result<Bytes, ResetCode>>>);

impl FlowDatagrams for Flow {
    fn send(&self, _: &[u8]) -> Result<(), DatagramError> {
        Ok(())
    }
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async move {
            let received = self.0.lock().await.recv().await;
            received.unwrap_or(Err(ResetCode::Idle))
        })
    }
    fn max_bytes(&self) -> usize {
        1200
    }
    fn reset(&self, _: ResetCode) {}
}

/// The air's end of a flow.
struct Air(mpsc::Sender<Result<Bytes, ResetCode>>);

impl Air {
    async fn sends(&self, payload: &[u8]) {
        let datagram = Datagram::Payload(payload).encoded();
        self.0.send(Ok(datagram.freeze())).await.unwrap();
    }

    /// The session of the flow ends.
    async fn is_lost(&self) {
        self.0.send(Err(ResetCode::Lost)).await.unwrap();
    }
}

/// A ground gateway and a server.
struct World {
    udp: Arc<Udp>,
    server: UdpSocket,
}

impl World {
    async fn new() -> Self {
        let names: AircraftNames = Arc::new(|_| String::new());
        let udp = Arc::new(Udp::new(Arc::default(), Default::default(), names, true, KEPT));
        Self { udp, server: UdpSocket::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Opens the flow `number` of an aircraft's first passenger in a session.
    async fn open(&self, aircraft: u8, session: u64, number: u64) -> Air {
        self.open_for(owner(aircraft, 1), session, number).await
    }

    async fn open_for(&self, owner: MappingKey, session: u64, number: u64) -> Air {
        let (sender, receiver) = mpsc::channel(8);
        let (udp, address) = (self.udp.clone(), self.server.local_addr().unwrap());
        tokio::spawn(async move {
            let idle = Idle { answered: KEPT * 2, unanswered: KEPT * 2 };
            let request = FlowRequest { owner, session, class: Class::default(), idle };
            udp.carry(&request, address, Arc::new(Flow(Mutex::new(receiver)))).await;
        });
        sender.send(Ok(Datagram::Number(number).encoded().freeze())).await.unwrap();
        Air(sender)
    }

    /// Address from which the server receives what `air` sends.
    async fn port(&self, air: &Air) -> SocketAddr {
        air.sends(b"hello").await;
        self.server.recv_from(&mut [0; 8]).await.unwrap().1
    }
}

fn owner(aircraft: u8, passenger: u32) -> MappingKey {
    let (aircraft, protocol) = ([aircraft; 32], ip::UDP);
    MappingKey { aircraft, passenger, protocol, source: 0, is_gateway: true }
}

#[tokio::test]
async fn a_later_session_of_the_same_aircraft_gets_the_port() {
    let world = World::new().await;
    let first = world.open(1, 7, 5).await;
    let port = world.port(&first).await;
    first.is_lost().await;
    for (aircraft, session, number) in [(2, 8, 5), (1, 8, 6), (1, 7, 5), (1, 6, 5)] {
        let other = world.open(aircraft, session, number).await;
        let why = format!("aircraft {aircraft}, session {session}, number {number}");
        assert_ne!(world.port(&other).await, port, "{why}");
    }
    let other = world.open_for(owner(1, 2), 8, 5).await;
    assert_ne!(world.port(&other).await, port, "another passenger");
    assert_eq!(world.port(&world.open(1, 8, 5).await).await, port);
}

#[tokio::test]
async fn a_live_flow_of_an_older_hub_gives_its_port_up() {
    let world = World::new().await;
    let mut air = world.open(1, 7, 5).await;
    let port = world.port(&air).await;
    for session in 8..12 {
        let next = world.open(1, session, 5).await;
        assert_eq!(world.port(&next).await, port, "session {session}");
        air.0.closed().await;
        air = next;
    }
    let older = world.open(1, 10, 5).await;
    assert_ne!(world.port(&older).await, port, "an earlier session");
    assert_eq!(world.port(&air).await, port);
}

#[tokio::test]
async fn without_a_session_nothing_is_kept() {
    let world = World::new().await;
    let first = world.open(1, 0, 5).await;
    world.port(&first).await;
    assert!(world.udp.kept.take(Key { owner: owner(1, 1), number: 5 }, 9).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_port_is_kept_for_a_limited_time() {
    let world = World::new().await;
    let first = world.open(1, 7, 5).await;
    world.port(&first).await;
    first.is_lost().await;
    tokio::time::sleep(KEPT - Duration::from_secs(1)).await;
    assert!(!first.0.is_closed(), "it is kept");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(first.0.is_closed(), "it is forgotten");
}

#[tokio::test]
async fn the_end_of_an_earlier_flow_leaves_the_entry_of_another_in_its_session() {
    let world = World::new().await;
    let flow: Arc<dyn FlowDatagrams> = Arc::new(Flow(Mutex::new(mpsc::channel(1).1)));
    let (kept, key) = (&world.udp.kept, Key { owner: owner(1, 1), number: 5 });
    let address = world.server.local_addr().unwrap();
    let binding = world.udp.mappings.binding(key.owner, address, flow).unwrap();
    let first = kept.list(key, 7, Port::new(binding)).unwrap();
    let port = kept.take(key, 8).unwrap();
    let _second = kept.list(key, 7, port).unwrap();
    drop(first);
    assert!(kept.take(key, 8).is_some());
}

/// A flow to `address` with `binding`, as it begins.
fn carried<'a>(
    udp: &'a Udp,
    request: &'a FlowRequest,
    address: SocketAddr,
    binding: NatBinding,
) -> Carried<'a> {
    let flow = Arc::new(Flow(Mutex::new(mpsc::channel(1).1)));
    Carried { udp, request, address, flow, port: Port::new(binding), entry: None, is_new: true }
}

fn request(owner: MappingKey) -> FlowRequest {
    let idle = Idle { answered: KEPT, unanswered: KEPT };
    FlowRequest { owner, session: 7, class: Class::default(), idle }
}

#[tokio::test]
async fn protocols_without_ports_keep_nothing() {
    let world = World::new().await;
    let address = world.server.local_addr().unwrap();
    for (protocol, has_entry) in [(ip::UDP, true), (ip::ICMP, true), (50, false)] {
        let flow = Arc::new(Flow(Mutex::new(mpsc::channel(1).1)));
        // The test may open no raw socket.
        let binding = world.udp.mappings.binding(owner(1, 1), address, flow).unwrap();
        let request = request(MappingKey { protocol, ..owner(1, 1) });
        let mut carried = carried(&world.udp, &request, address, binding);
        carried.name(5);
        assert_eq!(carried.entry.is_some(), has_entry, "protocol {protocol}");
    }
}

#[tokio::test]
async fn a_flow_that_found_no_shared_port_keeps_its_own_for_any_payload() {
    let names: AircraftNames = Arc::new(|_| String::new());
    let mut world = World::new().await;
    let budget = Budget { own: 8, shared: 0 };
    let mappings = Mappings::new(Arc::default(), Default::default(), budget, names);
    Arc::get_mut(&mut world.udp).unwrap().mappings = mappings;
    let (address, flow) = ("127.0.0.1:443".parse().unwrap(), mpsc::channel(1).1);
    let request = request(MappingKey { source: 5_000, ..owner(1, 1) });
    let flow = Arc::new(Flow(Mutex::new(flow)));
    let binding = world.udp.mappings.share(request.owner, address, flow).unwrap();
    let mut carried = carried(&world.udp, &request, address, binding);
    let before = carried.port.binding.clone();
    carried.begin(b"not QUIC").unwrap();
    assert!(Arc::ptr_eq(&carried.port.binding, &before));
}
