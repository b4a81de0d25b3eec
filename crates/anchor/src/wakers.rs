//! Wakers of a flow whose two directions may be polled by different tasks.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakers of the reader and the writer. A carrier wakes both: a record that one of them reads may
/// let the other go on.
#[derive(Debug, Default)]
pub struct Wakers {
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.reader.wake();
        self.writer.wake();
    }
}

impl Wakers {
    /// Registers the reader, and returns the waker for the carrier.
    pub fn of_reader(self: &Arc<Self>, cx: &Context<'_>) -> Waker {
        self.reader.register(cx.waker());
        self.clone().into()
    }

    /// Wakes the reader, for news that the writer received.
    pub fn wake_reader(&self) {
        self.reader.wake();
    }

    /// Wakes the writer, for news that the reader received.
    pub fn wake_writer(&self) {
        self.writer.wake();
    }

    /// Registers the writer, and returns the waker for the carrier.
    pub fn of_writer(self: &Arc<Self>, cx: &Context<'_>) -> Waker {
        self.writer.register(cx.waker());
        self.clone().into()
    }
}
