//! The command as a process, in one binary. `bare` has its own, because CI runs it with a static
//! program.

mod explain;
mod gateway;
mod geofeed;
mod hosts;
mod init;
mod kill;
mod lab;
mod log;
mod masque;
mod openwrt;
mod out;
mod quick_start;
mod reload;
mod restart;
