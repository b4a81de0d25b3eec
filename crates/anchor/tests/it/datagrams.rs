//! Flows of datagrams at the air: they are opened again with their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_anchor::hubs::Hubs;
use bentpipe_anchor::keeper::{self, Calls};
use bentpipe_flow::{Class, ResetCode};
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{
    Connector, DatagramError, FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Reach,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

/// A datagram, or the end of its flow.
type Received = Result<Bytes, ResetCode>;

/// The hub's end of a flow.
struct AtHub {
    open: OpenDatagrams,
    sent: mpsc::UnboundedReceiver<Bytes>,
    brings: mpsc::UnboundedSender<Received>,
    /// Reason for which the air has reset the flow.
    reset: watch::Receiver<Option<ResetCode>>,
}

/// The air's end of a flow.
struct AtAir {
    sent: mpsc::UnboundedSender<Bytes>,
    reset: watch::Sender<Option<ResetCode>>,
    /// Received datagrams, and the reason of the end.
    brings: Mutex<(mpsc::UnboundedReceiver<Received>, Option<ResetCode>)>,
}

impl FlowDatagrams for AtAir {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        let sent = self.sent.send(Bytes::copy_from_slice(datagram));
        sent.map_err(|_| DatagramError::Ended)
    }
    fn receive(&self) -> BoxFuture<'_, Received> {
        Box::pin(async move {
            let (brings, ended) = &mut *self.brings.lock().await;
            if ended.is_none() {
                let received = brings.recv().await.unwrap_or(Err(ResetCode::Lost));
                *ended = received.as_ref().err().copied();
                return received;
            }
            Err(ended.unwrap_or(ResetCode::Lost))
        })
    }
    fn max_bytes(&self) -> usize {
        1200
    }
    fn reset(&self, code: ResetCode) {
        self.reset.send_replace(Some(code));
    }
}

struct FakeHub {
    opened: mpsc::UnboundedSender<AtHub>,
    reach: watch::Sender<Reach>,
    is_down: AtomicBool,
}

impl FakeHub {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<AtHub>) {
        let (opened, flows) = mpsc::unbounded_channel();
        let (reach, is_down) = (watch::Sender::new(Reach::Up), AtomicBool::new(false));
        (Arc::new(Self { opened, reach, is_down }), flows)
    }
}

impl Connector for FakeHub {
    fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async { Err(OpenError::Closed) })
    }
    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        if self.is_down.load(Ordering::Relaxed) {
            return Box::pin(async { Err(OpenError::Down("no answer".to_owned())) });
        }
        let (sent, at_hub) = mpsc::unbounded_channel();
        let (brings, at_air) = mpsc::unbounded_channel();
        let (reset, is_reset) = watch::channel(None);
        self.opened.send(AtHub { open, sent: at_hub, brings, reset: is_reset }).unwrap();
        let flow = AtAir { sent, reset, brings: Mutex::new((at_air, None)) };
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowDatagrams>) })
    }
    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }
}

/// Calls the second of two hubs.
struct Second(Arc<FakeHub>);

impl Calls for Second {
    fn hubs(&self) -> usize {
        2
    }
    fn call(&self, number: usize, _: Duration) -> BoxFuture<'_, Option<Arc<dyn Connector>>> {
        let hub: Option<Arc<dyn Connector>> = match number {
            1 => Some(self.0.clone()),
            _ => None,
        };
        Box::pin(async move {
            sleep(Duration::from_secs(1)).await;
            hub
        })
    }
}

/// Two hubs, the flows that reach them, and a flow at the air with its number.
struct World {
    hubs: Hubs,
    first: Arc<FakeHub>,
    flows: [mpsc::UnboundedReceiver<AtHub>; 2],
    flow: Box<dyn FlowDatagrams>,
    at_hub: AtHub,
    number: u64,
}

impl World {
    async fn new() -> Self {
        let ((first, mut flows), (second, flows_of_second)) = (FakeHub::new(), FakeHub::new());
        let hubs = Hubs::new(first.clone());
        keeper::keep(&hubs, Second(second));
        let target = "192.0.2.1:9".parse().unwrap();
        let (protocol, source, class) = (17, 5_000, Class::BestEffort);
        let open = OpenDatagrams { target, protocol, source, class, passenger: 1 };
        let flow = hubs.open_datagrams(open).await.unwrap();
        let mut at_hub = flows.recv().await.unwrap();
        let number = number(&mut at_hub).await;
        Self { hubs, first, flows: [flows, flows_of_second], flow, at_hub, number }
    }

    /// Receives at the air, as a user who often does something else.
    async fn receive(&self) -> Result<Bytes, ResetCode> {
        loop {
            if let Ok(received) = timeout(Duration::from_millis(100), self.flow.receive()).await {
                return received;
            }
        }
    }
}

/// The flow's number, which comes first.
async fn number(at_hub: &mut AtHub) -> u64 {
    match Datagram::parse(&at_hub.sent.recv().await.unwrap()).unwrap() {
        Datagram::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

fn bytes(text: &'static [u8]) -> Result<Bytes, ResetCode> {
    Ok(Bytes::from_static(text))
}

#[tokio::test(start_paused = true)]
async fn a_flow_goes_on_at_the_next_hub() {
    let mut world = World::new().await;
    let flow = &world.flow;
    flow.send(b"\0up").unwrap();
    assert_eq!(world.at_hub.sent.recv().await.unwrap(), &b"\0up"[..]);
    world.first.reach.send_replace(Reach::Out);
    let mut flows = std::mem::replace(&mut world.flows[1], mpsc::unbounded_channel().1);
    let (mut next, ()) = tokio::join!(async { flows.recv().await.unwrap() }, async {
        assert!(timeout(Duration::from_secs(5), world.receive()).await.is_err(), "it is open");
    });
    assert_eq!(next.open, world.at_hub.open);
    assert_eq!(number(&mut next).await, world.number);
    world.flow.send(b"\0more").unwrap();
    // The number may be lost, so it is repeated.
    for _ in 0..3 {
        assert_eq!(number(&mut next).await, world.number);
    }
    assert_eq!(next.sent.recv().await.unwrap(), &b"\0more"[..]);
    for brings in [&world.at_hub.brings, &next.brings] {
        brings.send(bytes(b"\0down")).unwrap();
        assert_eq!(world.receive().await, bytes(b"\0down"));
    }
    // The end of the earlier flow says nothing, that of the present one does.
    world.at_hub.brings.send(Err(ResetCode::Lost)).unwrap();
    next.brings.send(bytes(b"\0last")).unwrap();
    assert_eq!(world.receive().await, bytes(b"\0last"));
    next.brings.send(Err(ResetCode::Limit)).unwrap();
    assert_eq!(world.receive().await, Err(ResetCode::Limit));
}

#[tokio::test(start_paused = true)]
async fn a_flow_through_the_hub_before_is_given_up() {
    let mut world = World::new().await;
    world.first.reach.send_replace(Reach::Out);
    let mut flows = std::mem::replace(&mut world.flows[1], mpsc::unbounded_channel().1);
    let mut reset = world.at_hub.reset.clone();
    let receives = async { world.receive().await };
    let given_up = async {
        let next = flows.recv().await.unwrap();
        let opened_at = Instant::now();
        reset.changed().await.unwrap();
        (opened_at.elapsed(), next)
    };
    let (after, next) = tokio::select! {
        ended = receives => panic!("{ended:?}"),
        given_up = given_up => given_up,
    };
    assert_eq!(*reset.borrow(), Some(ResetCode::Lost));
    assert!((Duration::from_secs(4)..Duration::from_secs(7)).contains(&after), "{after:?}");
    assert_eq!(*next.reset.borrow(), None, "the present flow goes on");
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_session_ends_is_opened_again() {
    let mut world = World::new().await;
    for _ in 0..3 {
        world.at_hub.brings.send(Err(ResetCode::Lost)).unwrap();
        let mut flows = std::mem::replace(&mut world.flows[0], mpsc::unbounded_channel().1);
        let (again, _) = tokio::join!(
            async { flows.recv().await.unwrap() },
            timeout(Duration::from_secs(5), world.receive())
        );
        (world.at_hub, world.flows[0]) = (again, flows);
        assert_eq!(number(&mut world.at_hub).await, world.number);
    }
    world.flow.reset(ResetCode::Idle);
    drop(world.hubs);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_every_hub_refuses_ends() {
    let mut world = World::new().await;
    let mut flows = std::mem::replace(&mut world.flows[0], mpsc::unbounded_channel().1);
    world.at_hub.brings.send(Err(ResetCode::Lost)).unwrap();
    let refusing = async {
        while let Some(flow) = flows.recv().await {
            flow.brings.send(Err(ResetCode::Lost)).unwrap();
        }
    };
    let ended = tokio::select! {
        () = refusing => panic!("the hub is open"),
        ended = world.receive() => ended,
    };
    assert_eq!(ended, Err(ResetCode::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_flow_ends_if_no_hub_answers_though_its_user_starts_to_receive_again() {
    let world = World::new().await;
    let seconds = Duration::from_secs;
    assert!(timeout(seconds(60), world.receive()).await.is_err(), "it is open");
    world.first.is_down.store(true, Ordering::Relaxed);
    world.at_hub.brings.send(Err(ResetCode::Lost)).unwrap();
    let lost_at = Instant::now();
    let ended = loop {
        match timeout(seconds(30), world.flow.receive()).await {
            Ok(ended) => break ended,
            Err(_) => assert!(lost_at.elapsed() < seconds(300), "it goes on"),
        }
    };
    assert_eq!(ended, Err(ResetCode::Lost));
    let after = lost_at.elapsed();
    assert!((seconds(150)..seconds(151)).contains(&after), "{after:?}");
}
