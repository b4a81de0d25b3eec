use curve25519_dalek::MontgomeryPoint;
use tokio::io::duplex;

use super::*;
use crate::fake_leg::FakeLeg;

const PEER: Key = [5; 32];
const AT: At = (PEER, Side::Theirs);

/// The directory of a ground whose file has [`PEER`].
fn neighbours() -> Arc<Neighbours> {
    Neighbours::start(([3; 32], [4; 32]), &[PEER], Statement::default(), 0)
}

/// Opens a stream whose other end nobody reads, so that nothing can be written.
fn talk(neighbours: &Arc<Neighbours>) -> (impl Future<Output = ()> + use<>, impl Sized + use<>) {
    let (stream, unread) = duplex(1);
    (Neighbours::talk(Arc::downgrade(neighbours), AT, Box::new(stream), &[]), unread)
}

#[tokio::test(start_paused = true)]
async fn a_replaced_stream_ends_although_nobody_reads_it() {
    let (neighbours, began) = (neighbours(), Instant::now());
    let (first, _unread) = talk(&neighbours);
    let first = tokio::spawn(first);
    sleep(MIN_STREAM_INTERVAL).await;
    let (second, _also_unread) = talk(&neighbours);
    let second = tokio::spawn(second);
    first.await.unwrap();
    assert!(began.elapsed() < WRITE_TIMEOUT);
    assert!(neighbours.seen()[0].is_connected, "by the second one");
    drop(neighbours);
    second.await.unwrap();
    assert!(began.elapsed() < WRITE_TIMEOUT, "it ends with the neighbours");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_comes_too_soon_is_refused() {
    let (neighbours, began) = (neighbours(), Instant::now());
    let (first, _unread) = talk(&neighbours);
    let _first = tokio::spawn(first);
    sleep(MIN_STREAM_INTERVAL / 2).await;
    talk(&neighbours).0.await;
    assert!(began.elapsed() < MIN_STREAM_INTERVAL);
    assert!(neighbours.seen()[0].is_connected, "by the first one");
}

#[tokio::test(start_paused = true)]
async fn a_call_to_an_egress_that_is_down_ends_with_the_neighbours() {
    let (neighbours, leg) = (neighbours(), Arc::new(FakeLeg::new(Reach::Down)));
    let weak = Arc::downgrade(&leg);
    neighbours.call(PEER, watch::channel(Some(leg as Arc<dyn Leg>)).1);
    sleep(MAX_CALL_PAUSE).await;
    assert!(weak.upgrade().is_some());
    drop(neighbours);
    sleep(LOOK).await;
    assert!(weak.upgrade().is_none(), "it would hold the leg");
}

#[tokio::test(start_paused = true)]
async fn an_egress_that_refuses_is_called_less_often_until_it_was_down() {
    let leg = Arc::new(FakeLeg::answering(|leg, number| {
        if number == 6 {
            // The egress restarts meanwhile.
            leg.reach.send_replace(Reach::Down);
            leg.reach.send_replace(Reach::Up);
        }
        None
    }));
    let neighbours = neighbours();
    let (_found, found) = watch::channel(Some(leg.clone() as Arc<dyn Leg>));
    neighbours.call(PEER, found);
    sleep(MAX_CALL_PAUSE * 4).await;
    let tries = leg.tries.lock().clone();
    let pauses: Vec<_> = tries.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 30, 2, 2, 4, 8, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_restarts_at_once_is_heard_soon() {
    let keys = |secret| (secret, MontgomeryPoint::mul_base_clamped(secret).to_bytes());
    let (hub, own) = (keys([3; 32]), keys([5; 32]));
    let egress = Neighbours::start(own, &[hub.1], Statement::default(), 0);
    let leg = || {
        let egress = Arc::downgrade(&egress);
        let leg = FakeLeg::answering(move |_, _| {
            let (near, far) = duplex(READ_BYTES);
            let at = (hub.1, Side::Theirs);
            tokio::spawn(Neighbours::talk(egress.clone(), at, Box::new(far), &[]));
            Some(Box::new(near))
        });
        Arc::new(leg)
    };
    let start = |load, version| {
        let statement = Statement { load, ..Statement::default() };
        let (process, leg) = (Neighbours::start(hub, &[own.1], statement, version), leg());
        process.call(own.1, watch::channel(Some(leg.clone() as Arc<dyn Leg>)).1);
        (process, leg)
    };
    let before = start(1, 1);
    sleep(MIN_STREAM_INTERVAL / 4).await;
    assert_eq!((egress.seen()[0].is_connected, egress.seen()[0].load), (true, Some(1)));
    drop(before);
    sleep(MIN_STREAM_INTERVAL / 4).await;
    let (_after, leg) = start(2, 2_000);
    sleep(MIN_CALL_PAUSE / 2).await;
    assert_eq!((egress.seen()[0].is_connected, egress.seen()[0].load), (false, Some(1)));
    sleep(MIN_CALL_PAUSE).await;
    assert_eq!((egress.seen()[0].is_connected, egress.seen()[0].load), (true, Some(2)));
    sleep(MAX_CALL_PAUSE * 2).await;
    assert_eq!(leg.tries.lock().len(), 2, "the second stream stays");
}

#[test]
fn each_neighbour_is_warned_of_once_a_minute() {
    let (mut warnings, soon) = (Warnings::default(), Duration::from_secs(59));
    assert!(warnings.is_due(PEER, Duration::ZERO));
    assert!(!warnings.is_due(PEER, soon));
    assert!(warnings.is_due([6; 32], soon), "another one");
    assert!(warnings.is_due(PEER, MIN_WARNING_INTERVAL));
}
