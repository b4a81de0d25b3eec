//! The command as a process, in one binary. `bare` has its own, because CI runs it with a static
//! program; so has `contenders`, because it needs a process with a single thread.

mod gateway;
mod hosts;
mod kill;
#[cfg(feature = "lab")]
mod lab;
mod masque;
mod out;
#[cfg(feature = "lab")]
mod papers;
mod reload;
#[cfg(feature = "lab")]
mod report;
