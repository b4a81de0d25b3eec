//! Spare buffers for reuse. For blocks of these sizes, an allocator takes longer than the copy into
//! them.

use std::cell::RefCell;
use std::collections::VecDeque;

use parking_lot::Mutex;

/// Maximum number of spare buffers for contents of symbols in each thread: 768 KiB with packets of
/// 1,500 bytes.
const MAX_CONTENTS: usize = 512;
/// Maximum number of spare queues in the process: 4 MiB.
const MAX_QUEUES: usize = 16;
/// Maximum capacity of a spare queue.
const MAX_QUEUE_BYTES: usize = 256 << 10;
/// Minimum capacity of a spare buffer, because an allocator is fast at shorter ones.
const MIN_CONTENT_BYTES: usize = 1024;

thread_local! {
    static CONTENTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Spare queues of all threads, because different threads write, send, receive and read a flow.
static QUEUES: Mutex<Vec<VecDeque<u8>>> = Mutex::new(Vec::new());

/// Returns an empty buffer with room for `room` bytes.
pub fn content(room: usize) -> Vec<u8> {
    let mut content = CONTENTS.with_borrow_mut(Vec::pop).unwrap_or_default();
    content.reserve_exact(room);
    content
}

/// Returns the content in a smaller buffer, if its own has much spare room.
pub fn fitted(content: Vec<u8>) -> Vec<u8> {
    if content.len() >= content.capacity() / 4 * 3 {
        return content;
    }
    let short = content.as_slice().into();
    give_content(content);
    short
}

/// Takes back a buffer of [`content`].
pub fn give_content(mut content: Vec<u8>) {
    content.clear();
    CONTENTS.with_borrow_mut(|spare| {
        if spare.len() < MAX_CONTENTS && content.capacity() >= MIN_CONTENT_BYTES {
            spare.push(content);
        }
    });
}

/// Returns an empty queue, which has capacity if one is spare.
pub fn queue() -> VecDeque<u8> {
    QUEUES.lock().pop().unwrap_or_default()
}

/// Takes back an empty queue.
pub fn give_queue(queue: VecDeque<u8>) {
    if (1..=MAX_QUEUE_BYTES).contains(&queue.capacity()) && queue.is_empty() {
        let mut spare = QUEUES.lock();
        if spare.len() < MAX_QUEUES {
            spare.push(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_and_short_contents_do_not_occupy_it() {
        let mut first = content(1_400);
        let room = first.capacity();
        first.extend([7; 1_400]);
        let kept = fitted(first);
        assert_eq!((kept.len(), kept.capacity()), (1_400, room));
        give_content(kept);
        let mut second = content(1_400);
        assert_eq!((second.len(), second.capacity()), (0, room));
        second.extend([7; 60]);
        let short = fitted(second);
        assert_eq!((short.len(), short.capacity()), (60, 60));
        assert_eq!(content(1).capacity(), room, "the buffer is reused");
        give_content(short);
        assert_eq!(content(1).capacity(), 1, "a short buffer is not kept");
    }
}
