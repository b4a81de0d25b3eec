//! Limits on concurrent testbeds: on their traffic, so that this machine emulates it on time, and on
//! measurements of links.

use parking_lot::{Condvar, Mutex};

/// Total traffic of all testbeds that two cores can emulate with millisecond accuracy.
pub const CARRIED_BPS: u64 = 120_000_000;

/// Admits holders while the sum of their parts stays within a limit; always admits at least one.
#[derive(Debug)]
pub struct Budget {
    whole: u64,
    taken: Mutex<u64>,
    freed: Condvar,
}

/// A part of the budget, returned when dropped.
#[derive(Debug)]
pub struct Portion<'a> {
    budget: &'a Budget,
    part: u64,
}

impl Budget {
    /// Creates a budget of `whole`, for example bits per second.
    pub fn new(whole: u64) -> Self {
        Self { whole, taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits for a portion. A portion larger than the whole budget is reduced to the whole.
    pub fn take(&self, part: u64) -> Portion<'_> {
        let part = part.min(self.whole);
        let mut taken = self.taken.lock();
        self.freed.wait_while(&mut taken, |taken| *taken + part > self.whole);
        *taken += part;
        Portion { budget: self, part }
    }
}

impl Drop for Portion<'_> {
    fn drop(&mut self) {
        *self.budget.taken.lock() -= self.part;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn portions_never_exceed_the_whole_and_a_large_one_has_its_turn() {
        let (budget, inside, most) = (Budget::new(10), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for bps in [3, 4, 12, 5, 1, 10, 6, 2] {
                let (budget, inside, most) = (&budget, &inside, &most);
                scope.spawn(move || {
                    let _portion = budget.take(bps);
                    let now = inside.fetch_add(bps.min(10), Ordering::SeqCst) + bps.min(10);
                    most.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(bps.min(10), Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 10);
    }
}
