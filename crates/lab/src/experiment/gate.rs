//! A limit on concurrent work.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A counting semaphore. It admits a number of holders; the others wait.
#[derive(Clone)]
pub struct Gate(Arc<(Mutex<usize>, Condvar)>);

/// Admission by the gate. Dropping it admits the next holder.
pub struct Pass(Gate);

impl Gate {
    /// A gate for `places` concurrent holders, at least one.
    pub fn new(places: usize) -> Self {
        Self(Arc::new((Mutex::new(places.max(1)), Condvar::new())))
    }

    /// Waits for a place.
    pub fn enter(&self) -> Pass {
        let (places, freed) = &*self.0;
        let mut places = places.lock();
        freed.wait_while(&mut places, |places| *places == 0);
        *places -= 1;
        Pass(self.clone())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let (places, freed) = &*self.0.0;
        *places.lock() += 1;
        freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn no_more_are_inside_than_there_are_places() {
        let (gate, inside, most) = (Gate::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _pass = gate.enter();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
    }
}
