//! Bounded queues of datagrams: when one is full, its oldest datagram goes.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::Refusal;

/// Datagrams that one queue of a flow holds: 50 ms of 50 Mbit/s in full-sized packets.
pub(crate) const QUEUE_DATAGRAMS: usize = 256;

/// Bytes that one queue of a flow holds; one datagram always fits.
pub(crate) const QUEUE_BYTES: usize = 256 << 10;

/// Bytes that the queues of all flows of one connection hold together, so that 16,384 flows do not
/// hold 8 GiB. A client has one such budget for all its connections.
pub(crate) const LEDGER_BYTES: usize = 16 << 20;

/// Bytes in the queues of a connection, and drops from these and other queues.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: AtomicUsize,
    dropped: Arc<AtomicU64>,
}

impl Ledger {
    /// One that adds what is dropped to a count shared with others.
    pub fn counting(dropped: Arc<AtomicU64>) -> Arc<Ledger> {
        Arc::new(Ledger { held: AtomicUsize::new(0), dropped })
    }

    pub fn drop_some(&self, datagrams: u64) {
        self.dropped.fetch_add(datagrams, Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// A queue that never makes its writer wait.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    ready: Notify,
    ledger: Arc<Ledger>,
}

#[derive(Default)]
struct Inner {
    datagrams: VecDeque<Bytes>,
    bytes: usize,
    end: Option<Refusal>,
}

impl Queue {
    pub fn new(ledger: Arc<Ledger>) -> Queue {
        Queue { inner: Mutex::default(), ready: Notify::new(), ledger }
    }

    /// Adds a datagram. It is copied: what comes from the network is a slice of a whole batch of
    /// packets, and one byte would keep all of them.
    pub fn push(&self, datagram: &[u8]) {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return self.ledger.drop_some(1);
        }
        while !inner.datagrams.is_empty() && self.is_full(&inner, datagram.len()) {
            self.take(&mut inner);
            self.ledger.drop_some(1);
        }
        if self.ledger.held.load(Relaxed) + datagram.len() > LEDGER_BYTES {
            return self.ledger.drop_some(1);
        }
        inner.bytes += datagram.len();
        self.ledger.held.fetch_add(datagram.len(), Relaxed);
        inner.datagrams.push_back(Bytes::copy_from_slice(datagram));
        drop(inner);
        self.ready.notify_one();
    }

    /// The oldest datagram, or why there will be no more once all are taken.
    pub async fn pop(&self) -> Result<Bytes, Refusal> {
        loop {
            let ready = self.ready.notified();
            {
                let mut inner = self.lock();
                if let Some(datagram) = self.take(&mut inner) {
                    return Ok(datagram);
                }
                if let Some(why) = inner.end {
                    return Err(why);
                }
            }
            ready.await;
        }
    }

    /// Takes no more datagrams; what is there can still be taken. The first reason stays.
    pub fn end(&self, why: Refusal) {
        self.lock().end.get_or_insert(why);
        // For whoever waits, and for one who is about to.
        self.ready.notify_waiters();
        self.ready.notify_one();
    }

    /// Reason for which it takes no more.
    pub fn ended(&self) -> Option<Refusal> {
        self.lock().end
    }

    fn is_full(&self, inner: &Inner, more: usize) -> bool {
        inner.datagrams.len() >= QUEUE_DATAGRAMS
            || inner.bytes + more > QUEUE_BYTES
            || self.ledger.held.load(Relaxed) + more > LEDGER_BYTES
    }

    fn take(&self, inner: &mut Inner) -> Option<Bytes> {
        let datagram = inner.datagrams.pop_front()?;
        inner.bytes -= datagram.len();
        self.ledger.held.fetch_sub(datagram.len(), Relaxed);
        Some(datagram)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut inner = self.lock();
        while self.take(&mut inner).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_first_and_is_counted() {
        let ledger = Arc::new(Ledger::default());
        let queue = Queue::new(ledger.clone());
        for n in 0..QUEUE_DATAGRAMS + 3 {
            queue.push(&(n as u32).to_be_bytes());
        }
        assert_eq!(ledger.dropped(), 3);
        assert_eq!(queue.pop().await.unwrap()[..], 3u32.to_be_bytes());
        for _ in 0..4 {
            queue.push(&vec![1; QUEUE_BYTES / 2]);
        }
        assert_eq!(queue.lock().bytes, QUEUE_BYTES);
        assert_eq!(ledger.dropped(), 3 + (QUEUE_DATAGRAMS as u64 - 1) + 2);
        queue.end(Refusal::Idle);
        queue.push(b"late");
        assert_eq!(queue.pop().await.unwrap().len(), QUEUE_BYTES / 2);
        assert_eq!(queue.pop().await.unwrap().len(), QUEUE_BYTES / 2);
        assert_eq!(queue.pop().await, Err(Refusal::Idle));
        assert_eq!(ledger.held.load(Relaxed), 0);
    }

    /// A flow cannot take what others of the connection hold.
    #[test]
    fn a_connection_has_a_budget() {
        let ledger = Arc::new(Ledger::default());
        let queues: Vec<Queue> = (0..100).map(|_| Queue::new(ledger.clone())).collect();
        for queue in &queues {
            for _ in 0..2 {
                queue.push(&vec![0; QUEUE_BYTES / 2]);
            }
        }
        assert_eq!(ledger.held.load(Relaxed), LEDGER_BYTES);
        assert_eq!(ledger.dropped(), 200 - (2 * LEDGER_BYTES / QUEUE_BYTES) as u64);
        drop(queues);
        assert_eq!(ledger.held.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn all_who_wait_learn_of_the_end() {
        let queue = Queue::new(Arc::default());
        let end = async {
            tokio::task::yield_now().await;
            queue.end(Refusal::Aborted);
        };
        let (one, other, ()) = tokio::join!(queue.pop(), queue.pop(), end);
        assert_eq!((one, other), (Err(Refusal::Aborted), Err(Refusal::Aborted)));
    }
}
