use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use rand::SeedableRng;

use super::*;
use crate::crypto::Rng;
use crate::endpoint::{HubConfig, HubCore, SessionId};
use crate::flow::FlowEvent;
use crate::io::handle::Handle;
use crate::key::SecretKey;
use crate::session::Session;

/// A hub that counts the calls it receives.
struct Counting {
    hub: HubCore,
    calls: usize,
}

impl Core for Counting {
    type Session = Session;

    fn filter(&self) -> Option<Filter> {
        self.hub.filter()
    }

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        self.calls += 1;
        self.hub.handle_datagram(datagram, from, ce, now);
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        self.calls += 1;
        self.hub.transmit(now, out)
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        self.calls += 1;
        self.hub.next_timeout(now)
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.calls += 1;
        self.hub.handle_timeout(now);
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        self.calls += 1;
        self.hub.next_event()
    }

    fn sessions_begun(&self) -> u64 {
        self.hub.sessions_begun()
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.hub.session(id)
    }

    fn close(&mut self) {
        self.hub.close();
    }
}

/// Receives one of these datagrams at a time, and then nothing until it is polled again.
#[derive(Debug)]
struct Arriving(Mutex<VecDeque<Option<Vec<u8>>>>);

impl Socket for Arriving {
    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let Some(Some(datagram)) = self.0.lock().pop_front() else { return Poll::Pending };
        buffers[0][..datagram.len()].copy_from_slice(&datagram);
        (meta[0].len, meta[0].stride) = (datagram.len(), datagram.len());
        Poll::Ready(Ok(1))
    }

    fn try_send(&self, _: &Transmit<'_>, _: Dscp) -> io::Result<()> {
        Ok(())
    }

    fn writable(self: Arc<Self>) -> Writable {
        Box::pin(std::future::ready(Ok(())))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 4_500).into())
    }
}

/// Polls the driver of a hub once for each of these datagrams. Returns the number of calls of the
/// hub after the first turn.
async fn calls_for(datagrams: &[Vec<u8>]) -> usize {
    let mut rng = Rng::from_seed([7; 32]);
    let config = HubConfig { secret: SecretKey::generate(&mut rng), aircraft: Vec::new() };
    let core = Counting { hub: HubCore::new(config, [8; 32]), calls: 0 };
    let shared = Arc::new(Shared::new(core));
    let arriving = datagrams.iter().flat_map(|datagram| [Some(datagram.clone()), None]);
    let socket = Arriving(Mutex::new(std::iter::once(None).chain(arriving).collect()));
    let mut driver = Box::pin(Driver::new(shared.clone(), Arc::new(socket)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(driver.as_mut().poll(&mut cx).is_pending());
    let looked = shared.lock().core.calls;
    assert!(looked > 0);
    for _ in datagrams {
        assert!(driver.as_mut().poll(&mut cx).is_pending());
    }
    let arrived = driver.as_mut().poll(&mut cx).is_pending();
    assert!(arrived);
    let calls = shared.lock().core.calls - looked;
    // A wake-up is handled nevertheless.
    shared.lock().wake_driver();
    assert!(driver.as_mut().poll(&mut cx).is_pending());
    assert!(shared.lock().core.calls > looked + calls);
    calls
}

#[tokio::test(start_paused = true)]
async fn junk_of_strangers_causes_no_call_of_the_hub() {
    let junk = |first: u8, length: usize| {
        let mut datagram = vec![0xa5; length];
        datagram[0] = first;
        datagram
    };
    let init = crate::wire::header::INIT_BYTES;
    let datagrams: Vec<_> = [(0x01, init), (0x01, 60), (0x40, 1_200), (0x4f, 12), (0x02, 116)]
        .into_iter()
        .cycle()
        .take(1_000)
        .map(|(first, length)| junk(first, length))
        .collect();
    assert_eq!(calls_for(&datagrams).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_initiation_with_a_valid_mac1_reaches_the_hub() {
    let mut rng = Rng::from_seed([7; 32]);
    let key = SecretKey::generate(&mut rng).public();
    let mut init = vec![0xa5; crate::wire::header::INIT_BYTES];
    init[0] = 0x01;
    crate::crypto::MacKey::new(&key).sign(&mut init, None);
    assert!(calls_for(&[init]).await > 0);
}

/// A panic in a flow's task leaves the core in an unknown state, as one in the driver does.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_core_under_another_task_is_a_failure_of_the_end() {
    let mut rng = Rng::from_seed([7; 32]);
    let config = HubConfig { secret: SecretKey::generate(&mut rng), aircraft: Vec::new() };
    let shared = Arc::new(Shared::new(HubCore::new(config, [8; 32])));
    let handle = Handle::of(shared, None);
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, handle.failed()).await.is_err());
    let panicking = AssertUnwindSafe(|| handle.look(|_, _| panic!("as a mistake in a session")));
    assert!(catch_unwind(panicking).is_err());
    assert!(tokio::time::timeout(second, handle.failed()).await.is_ok());
}
