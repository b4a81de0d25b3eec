//! Bounded queues of datagrams: when one is full, its oldest datagram goes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Maximum number of datagrams in one queue of a flow: 50 ms of 50 Mbit/s in full-sized packets.
pub(crate) const QUEUE_DATAGRAMS: usize = 256;

/// Maximum size of one queue of a flow, bytes. A single datagram always fits.
pub(crate) const QUEUE_BYTES: usize = 256 << 10;

/// Maximum size of the queues of all flows of a connection, bytes. Without it 16,384 flows could
/// hold 8 GiB. A client has one such budget for all its connections.
pub(crate) const BUDGET_BYTES: usize = 16 << 20;

/// Bytes in the queues of a connection, and the number of dropped datagrams.
#[derive(Debug, Default)]
pub(crate) struct QueueBudget {
    used: AtomicUsize,
    dropped: Arc<AtomicU64>,
}

impl QueueBudget {
    /// Creates a budget that adds its drops to a shared count.
    pub fn counting(dropped: Arc<AtomicU64>) -> Arc<QueueBudget> {
        Arc::new(QueueBudget { used: AtomicUsize::new(0), dropped })
    }

    pub fn drop_some(&self, datagrams: u64) {
        self.dropped.fetch_add(datagrams, Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// A bounded queue whose writers never wait.
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    ready: Notify,
    budget: Arc<QueueBudget>,
}

#[derive(Default)]
struct Inner {
    datagrams: VecDeque<Bytes>,
    bytes: usize,
    end: Option<ResetCode>,
}

impl Queue {
    pub fn new(budget: Arc<QueueBudget>) -> Queue {
        Queue { inner: Mutex::default(), ready: Notify::new(), budget }
    }

    /// Adds a datagram. The datagram is copied, because a slice would keep the whole received batch
    /// of packets.
    pub fn push(&self, datagram: &[u8]) {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return self.budget.drop_some(1);
        }
        while !inner.datagrams.is_empty() && self.is_full(&inner, datagram.len()) {
            self.take(&mut inner);
            self.budget.drop_some(1);
        }
        if self.budget.used.load(Relaxed) + datagram.len() > BUDGET_BYTES {
            return self.budget.drop_some(1);
        }
        inner.bytes += datagram.len();
        self.budget.used.fetch_add(datagram.len(), Relaxed);
        inner.datagrams.push_back(Bytes::copy_from_slice(datagram));
        drop(inner);
        self.ready.notify_one();
    }

    /// Waits for the oldest datagram. Returns the reason of the end once the queue is empty.
    pub async fn pop(&self) -> Result<Bytes, ResetCode> {
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

    /// Ends the queue. Datagrams in it can still be taken. The first reason counts.
    pub fn end(&self, why: ResetCode) {
        self.lock().end.get_or_insert(why);
        // Wakes present and future waiters.
        self.ready.notify_waiters();
        self.ready.notify_one();
    }

    /// Reason of the end, if the queue has ended.
    pub fn ended(&self) -> Option<ResetCode> {
        self.lock().end
    }

    fn is_full(&self, inner: &Inner, more: usize) -> bool {
        inner.datagrams.len() >= QUEUE_DATAGRAMS
            || inner.bytes + more > QUEUE_BYTES
            || self.budget.used.load(Relaxed) + more > BUDGET_BYTES
    }

    fn take(&self, inner: &mut Inner) -> Option<Bytes> {
        let datagram = inner.datagrams.pop_front()?;
        inner.bytes -= datagram.len();
        self.budget.used.fetch_sub(datagram.len(), Relaxed);
        Some(datagram)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
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
    async fn the_oldest_datagram_is_dropped_and_counted() {
        let budget = Arc::new(QueueBudget::default());
        let queue = Queue::new(budget.clone());
        for n in 0..QUEUE_DATAGRAMS + 3 {
            queue.push(&(n as u32).to_be_bytes());
        }
        assert_eq!(budget.dropped(), 3);
        assert_eq!(queue.pop().await.unwrap()[..], 3u32.to_be_bytes());
        for _ in 0..4 {
            queue.push(&vec![1; QUEUE_BYTES / 2]);
        }
        assert_eq!(queue.lock().bytes, QUEUE_BYTES);
        assert_eq!(budget.dropped(), 3 + (QUEUE_DATAGRAMS as u64 - 1) + 2);
        queue.end(ResetCode::Idle);
        queue.push(b"late");
        assert_eq!(queue.pop().await.unwrap().len(), QUEUE_BYTES / 2);
        assert_eq!(queue.pop().await.unwrap().len(), QUEUE_BYTES / 2);
        assert_eq!(queue.pop().await, Err(ResetCode::Idle));
        assert_eq!(budget.used.load(Relaxed), 0);
    }

    /// One flow cannot use memory that others hold.
    #[test]
    fn queues_of_a_connection_share_a_budget() {
        let budget = Arc::new(QueueBudget::default());
        let queues: Vec<Queue> = (0..100).map(|_| Queue::new(budget.clone())).collect();
        for queue in &queues {
            for _ in 0..2 {
                queue.push(&vec![0; QUEUE_BYTES / 2]);
            }
        }
        assert_eq!(budget.used.load(Relaxed), BUDGET_BYTES);
        assert_eq!(budget.dropped(), 200 - (2 * BUDGET_BYTES / QUEUE_BYTES) as u64);
        drop(queues);
        assert_eq!(budget.used.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn the_end_wakes_all_waiters() {
        let queue = Queue::new(Arc::default());
        let end = async {
            tokio::task::yield_now().await;
            queue.end(ResetCode::Aborted);
        };
        let (one, other, ()) = tokio::join!(queue.pop(), queue.pop(), end);
        assert_eq!((one, other), (Err(ResetCode::Aborted), Err(ResetCode::Aborted)));
    }
}
