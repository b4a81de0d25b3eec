//! A queue of bytes in chunks. It grows without copying, and gives chunks back that are taken.

use std::collections::VecDeque;

/// Length of a chunk, unless fewer bytes begin it.
const CHUNK_BYTES: usize = 16 << 10;

/// Minimum length of a chunk.
const MIN_CHUNK_BYTES: usize = 1 << 10;

/// A queue of bytes.
#[derive(Debug, Default)]
pub struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    /// Number of bytes of the first chunk that were taken.
    taken: usize,
    length: usize,
}

impl Chunks {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends `bytes`.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len();
        while !bytes.is_empty() {
            let room = self.chunks.back().map_or(0, |last| last.capacity() - last.len());
            if room == 0 {
                let length = bytes.len().clamp(MIN_CHUNK_BYTES, CHUNK_BYTES);
                self.chunks.push_back(Vec::with_capacity(length));
                continue;
            }
            let (some, rest) = bytes.split_at(room.min(bytes.len()));
            if let Some(last) = self.chunks.back_mut() {
                last.extend_from_slice(some);
            }
            bytes = rest;
        }
    }

    /// Takes the first `count` bytes away. There must be as many.
    pub fn take(&mut self, count: usize) {
        self.length -= count;
        self.taken += count;
        while let Some(first) = self.chunks.front()
            && self.taken >= first.len()
        {
            self.taken -= first.len();
            self.chunks.pop_front();
        }
    }

    /// Bytes from position `at` that lie together; none at the end.
    pub fn from(&self, at: usize) -> &[u8] {
        let mut at = self.taken + at;
        for chunk in &self.chunks {
            match chunk.get(at..) {
                Some([]) | None => at -= chunk.len(),
                Some(some) => return some,
            }
        }
        &[]
    }

    /// All bytes, in parts that lie together.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.chunks.iter().skip(1).map(Vec::as_slice);
        self.chunks.front().map(|first| &first[self.taken..]).into_iter().chain(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in prop::collection::vec((0_usize..40_000, 0_usize..60_000), 0..30)) {
            let (mut chunks, mut queue, mut next) = (Chunks::default(), VecDeque::<u8>::new(), 0_u8);
            for (more, fewer) in steps {
                let bytes: Vec<u8> = (0..more).map(|_| { next = next.wrapping_mul(5).wrapping_add(3); next }).collect();
                chunks.extend(&bytes);
                queue.extend(&bytes);
                let fewer = fewer.min(queue.len());
                chunks.take(fewer);
                queue.drain(..fewer);
                prop_assert_eq!(chunks.len(), queue.len());
                let parts: Vec<u8> = chunks.parts().flatten().copied().collect();
                prop_assert!(queue.iter().eq(&parts));
                let at = queue.len() / 2;
                let some = chunks.from(at);
                prop_assert_eq!(some.is_empty(), at == queue.len());
                prop_assert!(queue.iter().skip(at).zip(some).all(|(one, other)| one == other));
            }
            prop_assert!(chunks.chunks.len() <= 2 + chunks.len() / (MIN_CHUNK_BYTES / 2));
        }
    }
}
