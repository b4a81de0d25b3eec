use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::*;
use crate::eyeballs::{Family, Resolve};
use bentpipe_transport::DatagramError;

/// A simulated flow of an aircraft.
struct Flow {
    to_ground: tokio::sync::Mutex<mpsc::UnboundedReceiver<Bytes>>,
    came: Arc<Came>,
}

/// Answers that the ground gateway sent.
#[derive(Default)]
struct Came {
    messages: Mutex<Vec<Vec<u8>>>,
}

impl FlowDatagrams for Flow {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        let Ok(Datagram::Payload(message)) = Datagram::parse(datagram) else { panic!() };
        self.came.messages.lock().push(message.to_vec());
        Ok(())
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async { self.to_ground.lock().await.recv().await.ok_or(ResetCode::Idle) })
    }

    fn max_bytes(&self) -> usize {
        1200
    }

    fn reset(&self, _: ResetCode) {}
}

/// A query for `name` with this ID.
fn question(id: u16, name: &str) -> Vec<u8> {
    let head = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
    let edns = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    [&head[..], &[name.len() as u8], name.as_bytes(), &[0, 0, 1, 0, 1], &edns].concat()
}

/// A resolver service that queries `server`.
fn service(server: SocketAddr) -> (Names, Arc<Counters>) {
    let config = bentpipe_config::Dns {
        servers: vec![server.to_string().parse().unwrap()],
        ..Default::default()
    };
    let table = toml::from_str("\"known.test\" = \"192.0.2.1\"").unwrap();
    let counters = Arc::<Counters>::default();
    let known = Arc::new(KnownNames::new(&table));
    (Names::new(known, &config, &[], counters.clone()).unwrap(), counters)
}

/// A name server that answers 192.0.2.7 to everything, and the number of queries it received.
async fn ready_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, SeqCst);
            let [high, low] = [buffer[0], buffer[1]];
            // The question without the OPT record of 11 bytes, then a pointer to its name.
            let head = [high, low, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
            let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 7];
            let answer = [&head[..], &buffer[12..length - 11], &record].concat();
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    (address, came)
}

/// A name server that never answers, and the number of different queries it received.
async fn silent_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    tokio::spawn(async move {
        let mut known = HashSet::new();
        while let Ok((_, from)) = socket.recv_from(&mut [0; 512]).await {
            // Each query uses its own socket.
            if known.insert(from) {
                count.fetch_add(1, SeqCst);
            }
        }
    });
    (address, came)
}

/// Waits for other tasks and real sockets. It never sleeps, so a paused clock does not advance,
/// however slow the machine is.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        // Not a measurement; it only ends a test that would otherwise hang.
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_aircraft_that_asks_too_much_is_refused_or_loses_what_it_asked_long_ago() {
    let (server, came) = silent_server().await;
    let (mut names, counters) = service(server);
    // Of ten slots, one aircraft gets two.
    names.quota = QueryQuota::of(10);
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
            // The first two are no longer young.
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        let mut datagram = BytesMut::new();
        Datagram::Payload(&question(id, &format!("n{id}"))).encode(&mut datagram);
        ask.send(datagram.freeze()).unwrap();
        asked += usize::from(!refused);
        let told = || from_ground.messages.lock().iter().any(|it| it[1] == id as u8);
        match refused {
            true => until("it is refused", told).await,
            false => until("it is asked", || came.load(SeqCst) == asked).await,
        }
    }
    until("the oldest are answered", || from_ground.messages.lock().len() == 3).await;
    let said = from_ground.messages.lock().clone();
    // One found no slot, then the two oldest were evicted; the two newest are still pending.
    assert_eq!(said.iter().map(|message| message[1]).collect::<Vec<_>>(), [2, 0, 1]);
    assert_eq!(came.load(SeqCst), 4);
    for message in &said {
        assert_eq!(ResponseCode::from_low(message[3]), ResponseCode::ServFail);
        // The extended error is "Other", which tells the air gateway that the name itself did not
        // fail.
        assert!(message.ends_with(&[0, 15, 0, 2, 0, 0]), "{message:?}");
    }
    assert_eq!((counters.names_failed.get(), names.quota.take_free(&[1; 32]).is_none()), (3, true));
    let refusals = &counters.refusals;
    let counts =
        (refusals.count_refused(Limit::DnsQuestions), refusals.count_evicted(Limit::DnsQuestions));
    assert_eq!(counts, (1, 2));
    let holding = names.quota.holding(&[1; 32]);
    assert_eq!((holding.holds, holding.held, holding.most), (2, 2, 10));
}

/// Silent name servers are not the destination's silence.
#[tokio::test(start_paused = true)]
async fn a_name_that_no_server_answers_for_cannot_be_resolved() {
    let (server, came) = silent_server().await;
    let (names, _) = service(server);
    let lookups = names.lookups(&[1; 32]);
    let found = lookups.resolve("a.test".to_owned(), Family::V4).await;
    assert_eq!(found, Err(ResetCode::NameNotFound));
    assert!(came.load(SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn queries_above_an_aircrafts_rate_are_refused() {
    let (names, counters) = service("127.0.0.1:9".parse().unwrap());
    // Each question ends at once, so that slots do not limit them.
    let refused = |aircraft: u8, count: u16| {
        let ask = |id| names.take(&[aircraft; 32], &question(id, "n"), |_| false);
        (0..count).filter(|id| matches!(ask(*id), Taken::Answered(_))).count()
    };
    assert_eq!(refused(1, 2_100), 100);
    assert_eq!(refused(2, 2_000), 0, "another aircraft has its own rate");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(refused(1, QUESTIONS_PER_SECOND as u16), 0);
    assert_eq!(counters.refusals.count_refused(Limit::DnsQuestions), 100);
    assert_eq!(counters.names_failed.get(), 100);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_dialled_count_as_questions() {
    let (server, came) = silent_server().await;
    let (mut names, counters) = service(server);
    // Of ten slots, one aircraft gets two.
    names.quota = QueryQuota::of(10);
    let names = Arc::new(names);
    let mut asking = Vec::new();
    for name in ["a.test", "b.test"] {
        let names = names.clone();
        asking.push(tokio::spawn(async move {
            names.lookups(&[1; 32]).resolve(name.to_owned(), Family::V4).await
        }));
    }
    until("both are asked", || came.load(SeqCst) == 2).await;
    let look = async |aircraft: [u8; 32], name: &str| {
        let lookups = names.lookups(&aircraft);
        let looking = lookups.resolve(name.to_owned(), Family::V4);
        tokio::time::timeout(Duration::from_millis(1), looking).await.ok()
    };
    assert_eq!(look([1; 32], "c.test").await, Some(Err(ResetCode::Limit)));
    assert_eq!(look([2; 32], "d.test").await, None, "another aircraft may ask, and waits");
    let known = vec!["192.0.2.1".parse().unwrap()];
    assert_eq!(look([1; 32], "known.test").await, Some(Ok(known)), "without a question");
    assert_eq!(counters.refusals.count_refused(Limit::DnsQuestions), 1);
    asking.iter().for_each(|one| one.abort());
    until("their slots are free", || names.quota.holding(&[1; 32]).held == 0).await;
}

#[tokio::test]
async fn a_name_that_was_dialled_is_asked_for_once() {
    let (server, came) = ready_server().await;
    let (names, counters) = service(server);
    let lookups = names.lookups(&[1; 32]);
    let look = || lookups.resolve("a.test".to_owned(), Family::V4);
    let found = vec!["192.0.2.7".parse().unwrap()];
    let all = futures_util::future::join_all((0..100).map(|_| look())).await;
    assert!(all.iter().all(|one| one.as_ref() == Ok(&found)), "{all:?}");
    for _ in 0..3_000 {
        assert_eq!(look().await.as_ref(), Ok(&found), "more than the rate of questions");
    }
    assert_eq!(came.load(SeqCst), 1);
    assert_eq!(counters.refusals.count_refused(Limit::DnsQuestions), 0);
    let v6 = lookups.resolve("a.test".to_owned(), Family::V6).await;
    assert_eq!(v6, Err(ResetCode::NameNotFound), "it has no such records");
}
