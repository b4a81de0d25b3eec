//! Bytes that the ends keep for flows.

use std::time::Duration;

use bentpipe_anchor::budget::MAX_AIRCRAFT_BYTES;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::hubs::Hubs;
use bentpipe_flow::ResetCode;
use bentpipe_transport::{Acceptor, Carried, FlowStream};
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::sleep;

use crate::hub::{FakeHub, acceptor};
use crate::hub_change::{ORPHANED, open};

/// A flow with both its ends, through a hub.
async fn flow(
    hubs: &Hubs,
    accepting: &bentpipe_anchor::acceptor::AnchorAcceptor,
) -> (Box<dyn FlowStream>, Box<dyn FlowStream>) {
    let (air, accepted) = tokio::join!(open(hubs, 80, b"abc"), accepting.accept());
    let Carried::Stream(mut far) = accepted.unwrap().carries else { panic!("a stream") };
    far.read_exact(&mut [0; 3]).await.unwrap();
    (air, far)
}

#[tokio::test(start_paused = true)]
async fn a_passenger_who_does_not_read_can_send() {
    let egress = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, accepting) = acceptor(&egress);
    let hubs = Hubs::new(FakeHub::new(1, &to));
    let (air, far) = flow(&hubs, &accepting).await;
    let (mut far_reader, mut far_writer) = split(far);
    // The server sends without an end.
    let server = tokio::spawn(async move {
        let mut sent = 0;
        while far_writer.write_all(&[2; 10_000]).await.is_ok() {
            sent += 10_000;
        }
        sent
    });
    let (mut air_reader, mut air_writer) = split(air);
    let upload = async {
        for _ in 0..200 {
            air_writer.write_all(&[1; 100_000]).await.unwrap();
        }
        air_writer.shutdown().await.unwrap();
    };
    let download = async {
        let mut received = Vec::new();
        far_reader.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), 20_000_000);
    };
    tokio::join!(upload, download);
    assert!(!server.is_finished());
    // The data that waited is there, and the flow goes on.
    let mut received = vec![0; 20_000_000];
    air_reader.read_exact(&mut received).await.unwrap();
    assert!(received.iter().all(|byte| *byte == 2));
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn an_aircraft_that_confirms_nothing_has_a_share_of_the_memory() {
    let egress = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, accepting) = acceptor(&egress);
    let hub = FakeHub::new(1, &to);
    let hubs = Hubs::new(hub.clone());
    let mut flows = Vec::new();
    for _ in 0..20 {
        let (air, far) = flow(&hubs, &accepting).await;
        flows.push((air, far));
    }
    // Every server sends while the airs read nothing. Hubs that come and go take bytes with them.
    let block = vec![7; 100_000];
    for _ in 0..300 {
        for (_, far) in &mut flows {
            let _ = far.write(&block).now_or_never();
        }
        sleep(Duration::from_millis(1)).await;
    }
    assert!(egress.charged_bytes() > 0);
    assert!(egress.charged_bytes() <= MAX_AIRCRAFT_BYTES);
    drop(flows);
    assert_eq!(egress.charged_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_done_flow_keeps_no_data() {
    let egress = Egress::new([1; 8], ORPHANED).unwrap();
    let (to, accepting) = acceptor(&egress);
    let hubs = Hubs::new(FakeHub::new(1, &to));
    let (mut air, mut far) = flow(&hubs, &accepting).await;
    let _ = far.write(&vec![7; 1_000_000]).now_or_never();
    assert!(egress.charged_bytes() > 0);
    // The passenger reads no more, and both ends finish.
    air.stop_reading(ResetCode::Aborted);
    air.shutdown().now_or_never();
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).await.unwrap();
    let _ = far.shutdown().now_or_never();
    drop(far);
    assert_eq!((egress.flows(), egress.charged_bytes()), (0, 0));
}
