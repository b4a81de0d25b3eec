//! Many simulations or testbeds in parallel.

use std::num::NonZero;
use std::thread;

use parking_lot::Mutex;

/// Results of `run` for `jobs`, in the order of `jobs`, on as many threads as there are processors.
pub fn map<T: Sync, R: Send>(jobs: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    map_on(processors(), jobs, run)
}

/// Number of processors.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Results of `run` for `jobs`, in the order of `jobs`, on `threads` threads. The jobs begin in
/// their order.
pub fn map_on<J, R: Send>(
    threads: usize,
    jobs: impl IntoIterator<Item = J, IntoIter: ExactSizeIterator + Send>,
    run: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    let jobs = jobs.into_iter();
    let threads = threads.min(jobs.len());
    let found: Vec<_> = (0..jobs.len()).map(|_| Mutex::new(None)).collect();
    let jobs = Mutex::new(jobs.enumerate());
    let next = || jobs.lock().next();
    let worker = || {
        while let Some((index, job)) = next() {
            let one = run(job);
            *found[index].lock() = Some(one);
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker))));
    let found = found.into_iter().map(|one| {
        let one = one.into_inner();
        one.expect("every job was run, or its panic was passed on")
    });
    found.collect()
}
