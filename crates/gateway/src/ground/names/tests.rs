use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::*;
use crate::far::DatagramError;

/// A flow of an aircraft, as a test has it.
struct Flow {
    to_ground: tokio::sync::Mutex<mpsc::UnboundedReceiver<Bytes>>,
    came: Arc<Came>,
}

/// Answer that the ground has sent.
#[derive(Default)]
struct Came {
    messages: Mutex<Vec<Vec<u8>>>,
}

impl FarDatagrams for Flow {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        let Ok(Datagram::Payload(message)) = Datagram::parse(datagram) else { panic!() };
        self.came.messages.lock().unwrap().push(message.to_vec());
        Ok(())
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async { self.to_ground.lock().await.recv().await.ok_or(ResetCode::Idle) })
    }

    fn most_bytes(&self) -> usize {
        1200
    }

    fn reset(&self, _: ResetCode) {}
}

/// A question about `name`, with that id.
fn question(id: u16, name: &str) -> Vec<u8> {
    let head = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
    let edns = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    [&head[..], &[name.len() as u8], name.as_bytes(), &[0, 0, 1, 0, 1], &edns].concat()
}

/// A name server that answers nothing, and how many different questions came.
async fn silent_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    tokio::spawn(async move {
        let mut known = HashSet::new();
        while let Ok((_, from)) = socket.recv_from(&mut [0; 512]).await {
            // Each has a socket of its own.
            if known.insert(from) {
                count.fetch_add(1, SeqCst);
            }
        }
    });
    (address, came)
}

/// Waits for what other tasks and real sockets bring about. It never sleeps, so a paused clock stands still
/// meanwhile, however slow the machine is.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        // Not a figure, but an end for a test that would else have none.
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_aircraft_that_asks_too_much_is_refused_or_loses_what_it_asked_long_ago() {
    let (server, came) = silent_server().await;
    let config =
        config::Dns { servers: vec![server.to_string().parse().unwrap()], ..Default::default() };
    let dns = Arc::new(Dns::new(&config, &Default::default()).unwrap());
    let counters = Arc::<Counters>::default();
    let mut names = Names::new(dns, &config, &[], counters.clone()).unwrap();
    // Of ten, one aircraft has two.
    names.places = Places::of(10);
    let (ask, to_ground) = mpsc::unbounded_channel();
    let from_ground = Arc::<Came>::default();
    let flow = Flow { to_ground: tokio::sync::Mutex::new(to_ground), came: from_ground.clone() };
    let names = Arc::new(names);
    let serving = names.clone();
    let idle = Duration::from_secs(600);
    tokio::spawn(async move { serving.serve_datagrams(&[1; 32], Box::new(flow), idle).await });
    let mut asked = 0;
    for (id, refused) in [(0, false), (1, false), (2, true), (3, false), (4, false)] {
        if id == 3 {
            // The first two are not young any more.
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        let mut datagram = BytesMut::new();
        Datagram::Payload(&question(id, &format!("n{id}"))).encode(&mut datagram);
        ask.send(datagram.freeze()).unwrap();
        asked += usize::from(!refused);
        let told = || from_ground.messages.lock().unwrap().iter().any(|it| it[1] == id as u8);
        match refused {
            true => until("it is refused", told).await,
            false => until("it is asked", || came.load(SeqCst) == asked).await,
        }
    }
    until("the oldest are answered", || from_ground.messages.lock().unwrap().len() == 3).await;
    let said = from_ground.messages.lock().unwrap().clone();
    // One that found no place, and then the two oldest; the two newest are still being asked.
    assert_eq!(said.iter().map(|message| message[1]).collect::<Vec<_>>(), [2, 0, 1]);
    assert_eq!(came.load(SeqCst), 4);
    for message in &said {
        assert_eq!(ResponseCode::from_low(message[3]), ResponseCode::ServFail);
        // Its extended error is "Other", by which those on board know that it is no failure of the name.
        assert!(message.ends_with(&[0, 15, 0, 2, 0, 0]), "{message:?}");
    }
    assert_eq!(
        (counters.names_failed.get(), names.places.take_free(&[1; 32]).is_none()),
        (3, true)
    );
    let refusals = &counters.refusals;
    let counts =
        (refusals.count_refused(Limit::DnsQuestions), refusals.count_evicted(Limit::DnsQuestions));
    assert_eq!(counts, (1, 2));
    let holding = names.places.holding(&[1; 32]);
    assert_eq!((holding.holds, holding.held, holding.most), (2, 2, 10));
}
