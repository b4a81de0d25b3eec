//! Many simulations in parallel, on as many threads as there are processors.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Results of `run` for `jobs`, in the order of `jobs`.
pub fn map<T: Sync, R: Send>(jobs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_on(thread::available_parallelism().map_or(1, NonZero::get), jobs, run)
}

/// Like [`map`], with this number of threads.
pub fn map_on<T: Sync, R: Send>(
    threads: usize,
    jobs: &[T],
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let found: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some((job, place)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(index).zip(found.get(index))
        } {
            let one = run(job);
            *place.lock() = Some(one);
        }
    };
    thread::scope(|scope| {
        (0..threads.min(jobs.len())).for_each(|_| drop(scope.spawn(worker)));
    });
    let found = found.into_iter().map(|one| {
        let one = one.into_inner();
        one.expect("every job was run, or its panic was passed on")
    });
    found.collect()
}
