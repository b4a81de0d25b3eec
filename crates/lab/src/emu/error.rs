//! Reasons why the emulator cannot run, with what to do about each.

use std::io;

/// Reason why the emulator, or one of its testbeds, could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The kernel offers no TUN device.
    #[error(
        "/dev/net/tun, through which emulated links run, is not there ({0}): load the module \
         (`modprobe tun`), or give the container the device (`--device /dev/net/tun`)"
    )]
    NoTun(#[source] io::Error),
    /// The TUN device exists, but this user may not open it.
    #[error(
        "this user may not open /dev/net/tun ({0}): run as root, or let the administrator give it \
         its usual mode (`chmod 0666 /dev/net/tun`); opening it gives no right over the host's \
         network"
    )]
    TunDenied(#[source] io::Error),
    /// Neither privileged nor allowed to make a user namespace.
    #[error(
        "not privileged, and a user namespace is refused ({0}): run as root, or allow them with \
         whichever of these your system has: `sysctl kernel.unprivileged_userns_clone=1` \
         (Debian), `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), in a \
         container a seccomp profile that permits `unshare`"
    )]
    NoUserNamespace(#[source] io::Error),
    /// The limit on the number of namespaces is reached.
    #[error(
        "the limit on {what} is reached ({source}): close other testbeds, or raise \
         `sysctl user.{sysctl}`"
    )]
    TooManyNamespaces {
        /// Kind of namespace.
        what: &'static str,
        /// The sysctl below `user.` that sets the limit.
        sysctl: &'static str,
        /// Error from the kernel.
        source: io::Error,
    },
    /// A user namespace can only be entered while the process has one thread.
    #[error(
        "a user namespace cannot be entered once the process has {0} threads: call emu::enter() \
         first thing in main"
    )]
    ManyThreads(usize),
    /// The user namespace was made but its files could not be written.
    #[error("cannot write {path} to become root of the new user namespace: {source}")]
    MapUser {
        /// The file below /proc/self.
        path: &'static str,
        /// Error from the kernel.
        source: io::Error,
    },
    /// An observation is full: it holds this number of packets.
    #[error(
        "an observation of the emulated link holds {0} packets and there were more: \
         observe a shorter run, or a slower link"
    )]
    LongObservation(usize),
    /// The emulator could not make or open a network namespace.
    #[error("cannot make a network namespace for the host {host:?}: {source}")]
    Namespace {
        /// The host it was for.
        host: &'static str,
        /// Error from the kernel.
        source: io::Error,
    },
    /// The kernel refused an interface, address or route.
    #[error("cannot {doing} on the host {host:?}: {source}")]
    Configure {
        /// The host to be configured.
        host: &'static str,
        /// Action that failed.
        doing: String,
        /// Error from the kernel.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The emulator itself lost packets.
    #[error(
        "the emulator lost {0} packets that its model let pass: this machine is too busy; run \
         fewer testbeds at once"
    )]
    Unmodelled(u64),
    /// A thread or its wake-up event could not be created.
    #[error("cannot start a thread of the emulator: {0}")]
    Thread(#[source] io::Error),
}
