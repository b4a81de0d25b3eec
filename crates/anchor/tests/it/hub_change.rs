//! Flows whose hub changes or dies.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_anchor::hubs::Hubs;
use bentpipe_flow::{Class, ResetCode, Target};
use bentpipe_transport::{Connector, FlowStream, Open};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::{Instant, sleep};

use crate::hub::{FakeHub, Ground};

pub const ORPHANED: Duration = Duration::from_secs(120);

pub async fn open(hubs: &Hubs, port: u16, first: &[u8]) -> Box<dyn FlowStream> {
    let target = Target { host: "server.test".parse().unwrap(), port };
    let (class, first) = (Class::BestEffort, Bytes::copy_from_slice(first));
    hubs.open(Open { target, class, passenger: 1, claim: None, first }).await.unwrap()
}

/// Sends random bytes and checks that all answers come back.
async fn exchange(hubs: Hubs, number: u16, bytes: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(number.into());
    let sent: Vec<u8> = (0..bytes).map(|_| rng.random()).collect();
    let wanted: Vec<u8> = sent.iter().map(|byte| !byte).collect();
    let first = sent.len().min(1_000);
    let flow = open(&hubs, number, &sent[..first]).await;
    let (mut reader, mut writer) = split(flow);
    let mut received = Vec::new();
    let write = async {
        for chunk in sent[first..].chunks(3_000) {
            writer.write_all(chunk).await?;
            sleep(Duration::from_millis(10)).await;
        }
        writer.shutdown().await
    };
    let (written, read) = tokio::join!(write, reader.read_to_end(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == wanted, "flow {number}: other bytes than were sent");
}

/// Starts flows of different lengths.
fn exchanges(hubs: &Hubs, count: u16) -> Vec<tokio::task::JoinHandle<()>> {
    let size = |number: u16| 1_000 + usize::from(number) * 20_000;
    (0..count).map(|it| tokio::spawn(exchange(hubs.clone(), it, size(it)))).collect()
}

#[tokio::test(start_paused = true)]
async fn flows_follow_a_planned_change_in_both_directions() {
    let ground = Ground::start(ORPHANED);
    let hubs = Hubs::new(FakeHub::new(1, &ground.to));
    let flows = exchanges(&hubs, 40);
    // Later changes begin before the flows have followed the earlier ones.
    for (session, after_ms) in (2..).zip([200, 200, 10, 35, 31, 200, 29, 30, 5, 5]) {
        sleep(Duration::from_millis(after_ms)).await;
        hubs.change_to(FakeHub::new(session, &ground.to));
    }
    for flow in flows {
        flow.await.unwrap();
    }
    // A flow whose last confirmation was lost with its hub waits for an air that has forgotten it.
    sleep(ORPHANED + Duration::from_secs(1)).await;
    assert_eq!(ground.egress.flows(), 0, "nothing stays behind");
}

#[tokio::test(start_paused = true)]
async fn flows_outlive_the_death_of_their_hub() {
    let ground = Ground::start(ORPHANED);
    let mut hub = FakeHub::new(1, &ground.to);
    let hubs = Hubs::new(hub.clone());
    let flows = exchanges(&hubs, 40);
    for session in 2..6 {
        sleep(Duration::from_millis(200)).await;
        hub.kill();
        // The outage until the aircraft finds its next hub.
        sleep(Duration::from_secs(session * 7)).await;
        // The first attempt fails, while the flows are being accepted.
        let lost = FakeHub::new(2 * session, &ground.to);
        hubs.change_to(lost.clone());
        sleep(Duration::from_millis(20 + session * 5)).await;
        lost.kill();
        hub = FakeHub::new(2 * session + 1, &ground.to);
        hubs.change_to(hub.clone());
    }
    for flow in flows {
        flow.await.unwrap();
    }
    // A flow whose last confirmation was lost with its hub waits for an air that has forgotten it.
    sleep(ORPHANED + Duration::from_secs(1)).await;
    assert_eq!(ground.egress.flows(), 0, "nothing stays behind");
}

#[tokio::test(start_paused = true)]
async fn an_idle_flow_waits_for_its_air_and_then_ends() {
    let mut ground = Ground::start(ORPHANED);
    let hub = FakeHub::new(1, &ground.to);
    let hubs = Hubs::new(hub.clone());
    let mut flow = open(&hubs, 80, b"abc").await;
    let mut answer = [0; 3];
    flow.read_exact(&mut answer).await.unwrap();
    hub.kill();
    sleep(ORPHANED - Duration::from_secs(1)).await;
    assert_eq!(ground.egress.flows(), 1);
    let next = FakeHub::new(2, &ground.to);
    hubs.change_to(next.clone());
    flow.write_all(b"def").await.unwrap();
    flow.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [!b'd', !b'e', !b'f']);
    let began = Instant::now();
    next.kill();
    let (_, code) = ground.ended.recv().await.unwrap();
    assert_eq!(code, Some(ResetCode::Aborted));
    assert!(began.elapsed() >= ORPHANED);
    // Its air is told when it comes back.
    hubs.change_to(FakeHub::new(3, &ground.to));
    let error = flow.read(&mut answer).await.unwrap_err();
    assert_eq!(
        (error.kind(), flow.reset_code()),
        (std::io::ErrorKind::ConnectionReset, Some(ResetCode::Aborted))
    );
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_dead_egress_end() {
    let ground = Ground::start(ORPHANED);
    let hub = FakeHub::new(1, &ground.to);
    let hubs = Hubs::new(hub.clone());
    let mut flow = open(&hubs, 80, b"abc").await;
    let mut answer = [0; 3];
    flow.read_exact(&mut answer).await.unwrap();
    ground.kill();
    hub.kill();
    let restarted = Ground::start(ORPHANED);
    hubs.change_to(FakeHub::new(2, &restarted.to));
    let began = Instant::now();
    assert!(flow.read(&mut answer).await.is_err());
    assert_eq!(flow.reset_code(), Some(ResetCode::Aborted));
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_passenger_who_leaves_ends_the_flow() {
    let mut ground = Ground::start(ORPHANED);
    let hubs = Hubs::new(FakeHub::new(1, &ground.to) as Arc<dyn Connector>);
    let mut flow = open(&hubs, 80, b"abc").await;
    flow.read_exact(&mut [0; 3]).await.unwrap();
    flow.reset(ResetCode::Aborted);
    drop(flow);
    let began = Instant::now();
    let (_, code) = ground.ended.recv().await.unwrap();
    assert_eq!(code, Some(ResetCode::Aborted));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_user_may_end_its_stream_before_it_reads_the_answer() {
    let mut ground = Ground::start(ORPHANED);
    let hubs = Hubs::new(FakeHub::new(1, &ground.to));
    let mut flow = open(&hubs, 80, &[1; 1_000]).await;
    flow.write_all(&[1; 20_000]).await.unwrap();
    flow.shutdown().await.unwrap();
    let mut answer = Vec::new();
    flow.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [!1; 21_000]);
    // The end came with data, and is confirmed all the same.
    drop(flow);
    let began = Instant::now();
    assert_eq!(ground.ended.recv().await.unwrap().1, None);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_flow_of_an_air_without_a_hub_ends() {
    let ground = Ground::start(ORPHANED);
    let hub = FakeHub::new(1, &ground.to);
    let hubs = Hubs::new(hub.clone());
    let mut flow = open(&hubs, 80, b"abc").await;
    flow.read_exact(&mut [0; 3]).await.unwrap();
    let mut later = open(&hubs, 81, b"abc").await;
    later.read_exact(&mut [0; 3]).await.unwrap();
    let began = Instant::now();
    hub.kill();
    let error = flow.read(&mut [0; 3]).await.unwrap_err();
    let code = Some(ResetCode::Lost);
    assert_eq!((error.kind(), flow.reset_code()), (std::io::ErrorKind::ConnectionReset, code));
    assert!(began.elapsed() > ORPHANED, "not before its server's end");
    assert!(began.elapsed() < ORPHANED + Duration::from_secs(60));
    // Nobody polled this one meanwhile; a hub that is there now decides.
    hubs.change_to(FakeHub::new(2, &ground.to));
    assert!(later.read(&mut [0; 3]).await.is_err());
}
