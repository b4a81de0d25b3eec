//! Gateways that leave their flows for the next process.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::relay::handover::Store;
use bentpipe_gateway::transports;
use bentpipe_net::{Handover, Inherited};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::bench::{echo, free_address, socks_client, soon, until};
use crate::hubs::{FLOWS, Path1, Running, aircraft, ground, progress, transfer};

const GROUND: u8 = 2;
const STEP: usize = 20_000;

/// A service manager that keeps one descriptor.
#[derive(Clone, Default)]
struct Manager(Arc<Mutex<Option<OwnedFd>>>);

impl Manager {
    fn store(&self) -> Option<Store> {
        let kept = self.0.clone();
        Some(Arc::new(move |descriptor| {
            *kept.lock() = Some(descriptor);
            Ok(())
        }))
    }

    fn take(&self) -> Handover {
        Handover::unpack(self.0.lock().take().expect("something was left")).unwrap()
    }
}

fn ground_config(folder: &Path) -> GroundConfig {
    ground(folder, GROUND, "listen = \"127.0.0.1:0\"", "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_outlive_orderly_restarts_of_a_single_ground() {
    let (folder, manager) = (tempfile::tempdir().unwrap(), Manager::default());
    let mut running = Running::start_after(ground_config(folder.path()), None, manager.store());
    let path = Path1::to(running.address).await;
    let air = aircraft(folder.path(), (GROUND, path.address), "127.0.0.1:0".parse().unwrap());
    let connector = transports::connector(&air, &mut Inherited::default()).unwrap();
    let (is_over, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (target, mut flows) = (echo("127.0.0.1:0").await, JoinSet::new());
    for _ in 0..FLOWS {
        flows.spawn(transfer(connector.clone(), target, is_over.clone(), steps.clone()));
    }
    for _ in 0..3 {
        progress(&steps).await;
        running.stop().await;
        let previous = manager.take();
        assert_eq!(previous.flows.len(), FLOWS);
        let config = ground_config(folder.path());
        running = Running::start_after(config, Some(previous), manager.store());
        path.hub.send_replace(running.address);
    }
    progress(&steps).await;
    assert_eq!(running.gateway.open_flows(), FLOWS);
    is_over.store(true, Ordering::Relaxed);
    while let Some(flow) = soon("the end of all flows", flows.join_next()).await {
        flow.unwrap();
    }
    until("the ground is idle", || running.gateway.open_flows() == 0).await;
}

/// A running air gateway.
struct RunningAir {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningAir {
    fn start(config: &AirConfig, previous: Option<Handover>, manager: &Manager) -> Self {
        let connector = transports::connector(config, &mut Inherited::default()).unwrap();
        let air = Air::bind(config, &mut Inherited::default(), connector.clone()).unwrap();
        let air = air.with_handover(previous, manager.store());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            air.serve(async { drop(stopped.await) }).await;
            connector.close().await;
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        soon("the end of an air", self.task).await.unwrap();
    }
}

/// Sends steps over `tcp`, and compares what comes back, until `is_over`.
async fn echoes(mut tcp: TcpStream, is_over: Arc<AtomicBool>, steps: Arc<AtomicU64>) {
    let mut seed = 1_u8;
    while !is_over.load(Ordering::Relaxed) {
        let body: Vec<u8> = (0..STEP).map(|at| (at % 251) as u8 ^ seed).collect();
        tcp.write_all(&body).await.expect("no reset");
        let mut back = vec![0; STEP];
        tcp.read_exact(&mut back).await.expect("no reset");
        assert!(back == body, "other bytes than were sent");
        seed = seed.wrapping_add(1);
        steps.fetch_add(1, Ordering::Relaxed);
    }
    tcp.shutdown().await.unwrap();
    assert_eq!(tcp.read(&mut [0]).await.expect("no reset"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_outlive_orderly_restarts_of_the_air() {
    let (folder, manager) = (tempfile::tempdir().unwrap(), Manager::default());
    let running = Running::start_after(ground_config(folder.path()), None, None);
    let path = Path1::to(running.address).await;
    // A free port, because the next process has to listen at the same.
    let socks = free_address();
    let config = aircraft(folder.path(), (GROUND, path.address), socks);
    let mut air = RunningAir::start(&config, None, &manager);
    let (is_over, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (target, mut clients) = (echo("127.0.0.1:0").await, JoinSet::new());
    for _ in 0..FLOWS {
        let client = socks_client(socks, target).await;
        clients.spawn(echoes(client, is_over.clone(), steps.clone()));
    }
    for _ in 0..3 {
        progress(&steps).await;
        air.stop().await;
        let previous = manager.take();
        assert_eq!(previous.flows.len(), FLOWS);
        air = RunningAir::start(&config, Some(previous), &manager);
    }
    progress(&steps).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(client) = soon("the end of all clients", clients.join_next()).await {
        client.unwrap();
    }
    until("the ground is idle", || running.gateway.open_flows() == 0).await;
    air.stop().await;
}
