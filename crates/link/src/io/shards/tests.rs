use std::future::Future;
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll};
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit};
use tokio::time::timeout;

use super::*;
use crate::Dscp;
use crate::io::Writable;
use crate::session::Session;

/// A shard that does nothing, and panics when time passes if it should.
struct Quiet {
    panics: bool,
}

impl Core for Quiet {
    type Session = Session;

    fn handle_datagram(&mut self, _: &[u8], _: SocketAddr, _: bool, _: Duration) {}

    fn transmit(&mut self, _: Duration, _: &mut Vec<u8>) -> Option<SocketAddr> {
        None
    }

    fn next_timeout(&mut self, _: Duration) -> Duration {
        Duration::MAX
    }

    fn handle_timeout(&mut self, _: Duration) {
        assert!(!self.panics, "as the test wants it");
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        None
    }

    fn sessions_begun(&self) -> u64 {
        0
    }

    fn session(&mut self, _: SessionId) -> Option<&mut Session> {
        None
    }

    fn close(&mut self) {}
}

/// A socket on which nothing arrives, and that panics when read if it should.
#[derive(Debug)]
struct Silent {
    panics: bool,
}

impl Socket for Silent {
    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        _: &mut [IoSliceMut<'_>],
        _: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.panics, "as the test wants it");
        Poll::Pending
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

/// Four shards, of which one panics, or the reader.
fn start(shard_panics: bool, reader_panics: bool) -> Shards<Quiet> {
    let cores = (0..4).map(|number| Quiet { panics: shard_panics && number == 2 });
    Shards::start(cores.collect(), Box::new(Silent { panics: reader_panics }))
}

/// Returns `true` if the future is ready before an hour of virtual time has passed.
async fn is_ready(waiting: impl Future) -> bool {
    timeout(Duration::from_secs(3_600), waiting).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_shard_or_in_the_reader_ends_the_hub() {
    for (shard, reader) in [(true, false), (false, true)] {
        let hub = start(shard, reader);
        assert!(is_ready(hub.failed()).await);
        assert!(hub.next_opened(|_, _| None).await.is_none());
        // What is left ends in good order.
        assert!(is_ready(hub.close()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_is_no_failure() {
    let hub = start(false, false);
    assert!(!is_ready(hub.failed()).await);
    assert!(is_ready(hub.close()).await);
    assert!(!is_ready(hub.failed()).await);
    let ended = async {
        while !hub.reader.as_ref().is_some_and(|reader| reader.has_ended()) {
            tokio::task::yield_now().await;
        }
    };
    assert!(is_ready(ended).await, "the reader ends with the shards");
}

#[tokio::test(start_paused = true)]
async fn the_pulse_of_a_hub_rises_with_all_of_its_tasks() {
    let hub = start(false, false);
    for _ in 0..10 {
        let before = hub.pulse();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(hub.pulse() > before);
    }
}

#[test]
fn the_pulse_stands_still_while_one_task_does() {
    let mut pulses = Pulses::default();
    let counts = [[1, 5, 9], [2, 6, 9], [3, 7, 9], [4, 8, 10], [5, 9, 10], [6, 10, 11]];
    let counts = counts.map(|turns| pulses.note(turns.to_vec()));
    assert_eq!(counts, [1, 1, 1, 2, 2, 3]);
}
