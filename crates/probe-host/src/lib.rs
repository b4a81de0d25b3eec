//! The probe on a machine: sockets, disk, terminal, command line. `bentpipe-probe` holds everything that can
//! do without them.
//!
//! | module | contents |
//! |---|---|
//! | `address` | the question for the public address |
//! | `args` | the command line |
//! | `arrival` | times of arrival from the kernel |
//! | `channel` | connections in the clear and under TLS |
//! | `clock` | the machine's clocks |
//! | `failure` | errors of the system in OONI's words |
//! | `random` | random bytes |
//! | `network` | routes and resolvers |
//! | `error` | errors that end the command |
//! | `event` | messages from the measuring threads to the session |
//! | `icmp` | ICMP sockets, and whether they are allowed |
//! | `pinger` | the thread of pings |
//! | `tracer` | traceroutes |
//! | `resolver` | DNS lookups |
//! | `objects` | HTTP objects |
//! | `origin` | the server of own objects and trains |
//! | `ndt7` | ndt7 tests |
//! | `token` | the secret that sender and receiver share |
//! | `tcp_info` | the kernel's view of a TCP connection |
//! | [`epb`] | EPB tests with an own origin |
//! | `rate` | trains of packets from and to an own origin |
//! | `gps` | positions of gpsd |
//! | `web` | HTTP requests in the clear |
//! | `secure` | one HTTP request under TLS |
//! | `portal` | the check for a captive portal |
//! | `lane` | the thread of all jobs but pings |
//! | [`store`] | the SQLite file |
//! | `screen` | the terminal |
//! | `session` | a run: threads, store, screen |
//! | `upload` | the upload of records to a receiver |
//! | `offline` | report and export |

mod address;
mod args;
mod arrival;
mod channel;
mod clock;
pub mod epb;
mod error;
mod event;
mod failure;
mod gps;
mod icmp;
mod lane;
mod ndt7;
mod network;
mod objects;
mod offline;
mod origin;
mod pinger;
mod portal;
mod random;
mod rate;
mod resolver;
mod screen;
mod secure;
mod session;
pub mod store;
mod tcp_info;
mod token;
mod tracer;
mod upload;
mod web;

pub use args::Args;
pub use error::Error;

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Error> {
    match &args.command {
        None => session::run(&args.run),
        Some(args::Command::Report(report)) => offline::report(report),
        Some(args::Command::Export(export)) => offline::export(export),
        Some(args::Command::Origin(origin)) => {
            origin::serve(origin.listen, origin.tls(), origin.uploads())
        }
        Some(args::Command::Upload(upload)) => upload::run(upload),
    }
}
