use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::refusals::Limit;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bench::{
    LOOPBACK, echo, echoes, expect_reset, read_exactly, soon, start, through_socks, until,
};

#[tokio::test]
async fn a_client_beyond_the_limit_loses_its_idlest_connection() {
    let bench = start("limits = { max-flows-per-passenger = 2 }", LOOPBACK);
    let to = echo("127.0.0.1:0").await;
    let (mut first, mut second) =
        (through_socks(&bench, to).await, through_socks(&bench, to).await);
    // More recent activity makes these less idle.
    for tcp in [&mut first, &mut second] {
        tcp.write_all(b"a").await.unwrap();
        assert_eq!(read_exactly(tcp, 1).await, b"a");
    }
    let third = through_socks(&bench, to).await;
    expect_reset(&mut first).await;
    let refusals = &bench.air.refusals;
    assert_eq!((bench.air.over_limit.get(), refusals.count_evicted(Limit::TcpFlows)), (0, 1));
    for tcp in [second, third] {
        echoes(tcp, b"still here").await;
    }
    until("their places are free", || bench.air.finished.get() == 2).await;
    echoes(through_socks(&bench, to).await, b"again").await;
}

/// Waits until nothing listens at `proxy`.
async fn refused(proxy: SocketAddr) {
    while TcpStream::connect(proxy).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn stopping_lets_flows_finish() {
    let bench = start("limits = { drain-timeout = \"1 h\" }", LOOPBACK);
    let mut tcp = through_socks(&bench, echo("127.0.0.1:0").await).await;
    tcp.write_all(b"a").await.unwrap();
    assert_eq!(read_exactly(&mut tcp, 1).await, b"a");
    bench.stop_air.send(()).unwrap();
    soon("new clients are refused", refused(bench.socks)).await;
    echoes(tcp, b"the rest").await;
    soon("the stop", bench.air_task).await.unwrap();
}

#[tokio::test]
async fn stopping_breaks_off_what_does_not_finish() {
    let bench = start("limits = { drain-timeout = \"1 h\" }", LOOPBACK);
    let mut tcp = through_socks(&bench, echo("127.0.0.1:0").await).await;
    tcp.write_all(b"a").await.unwrap();
    assert_eq!(read_exactly(&mut tcp, 1).await, b"a");
    bench.stop_air.send(()).unwrap();
    // From then on it waits for open flows.
    soon("new clients are refused", refused(bench.socks)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3601)).await;
    tokio::time::resume();
    soon("the stop", bench.air_task).await.unwrap();
    expect_reset(&mut tcp).await;
}

#[tokio::test]
async fn a_full_ground_ends_the_idlest_flow() {
    let bench = start("", "limits = { max-flows = 1 }\ndial = { allow = [\"127.0.0.0/8\"] }");
    let to = echo("127.0.0.1:0").await;
    let mut first = through_socks(&bench, to).await;
    first.write_all(b"a").await.unwrap();
    assert_eq!(read_exactly(&mut first, 1).await, b"a");
    let second = through_socks(&bench, to).await;
    expect_reset(&mut first).await;
    let refusals = &bench.ground.refusals;
    assert_eq!((bench.ground.over_limit.get(), refusals.count_evicted(Limit::TcpFlows)), (0, 1));
    assert_eq!(bench.ground.resets(ResetCode::Limit), 1);
    echoes(second, b"still here").await;
}
