//! Passes sockets to a program as a service manager does (`sd_listen_fds(3)`). The program may run
//! in one network namespace and own sockets of another.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;

/// Number of the first descriptor that is passed, by that convention.
const FIRST_FD: i32 = 3;

/// First descriptor number for the copies made before the program starts. It is above their final
/// numbers.
const COPIES_FROM_FD: i32 = 200;

/// Makes `command` inherit `sockets` under their names, and end with the thread that starts it.
#[allow(unsafe_code)]
pub fn hand_over(command: &mut Command, sockets: Vec<(&str, OwnedFd)>) -> io::Result<()> {
    let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    let mut copies = Vec::new();
    for (_, socket) in &sockets {
        let copy = fcntl(socket, FcntlArg::F_DUPFD_CLOEXEC(COPIES_FROM_FD))?;
        // SAFETY: the descriptor was just made and nobody else owns it.
        copies.push(unsafe { OwnedFd::from_raw_fd(copy) });
    }
    let starter = nix::unistd::getpid();
    let place = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if nix::unistd::getppid() != starter {
            // The starter died before the line above, so nobody would ever end this program.
            return Err(io::ErrorKind::Interrupted.into());
        }
        for (place, copy) in (FIRST_FD..).zip(&copies) {
            // SAFETY: dup2 takes two numbers. What it closes is this child's own copy of a
            // descriptor that the new program does not know.
            if unsafe { libc::dup2(copy.as_raw_fd(), place) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls and allocates nothing.
    unsafe { command.pre_exec(place) };
    Ok(())
}
