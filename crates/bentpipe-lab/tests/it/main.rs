//! The command as a process, in one binary. `systems` has its own, because it needs a process
//! with a single thread.

mod lab;
mod papers;
mod report;
