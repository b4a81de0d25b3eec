//! A host of the emulated network: a network namespace held by a descriptor and by nothing else.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;

use super::error::EmuError;

/// The namespace of the calling thread, which need not be that of the process.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// One host. Clones are handles to the same one; with the last of them, its sockets and its
/// programs gone, the kernel removes the namespace and everything in it.
#[derive(Clone, Debug)]
pub struct Host {
    name: &'static str,
    namespace: Arc<File>,
}

impl Host {
    /// Makes an empty host: a namespace with nothing but a loopback that is down.
    pub(super) fn new(name: &'static str) -> Result<Self, EmuError> {
        let made = on_thread(name, || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(OWN_NAMESPACE)
        })?;
        match made {
            Ok(namespace) => Ok(Self { name, namespace: Arc::new(namespace) }),
            Err(source) if source.raw_os_error() == Some(libc::ENOSPC) => {
                let (what, sysctl) = ("network namespaces", "max_net_namespaces");
                Err(EmuError::TooManyNamespaces { what, sysctl, source })
            }
            Err(source) => Err(EmuError::Namespace { host: name, source }),
        }
    }

    /// The host's name: `client`, `air`, `ground` or `server`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The namespace, for setns(2) or to move an interface into.
    pub fn namespace(&self) -> &File {
        &self.namespace
    }

    /// Runs `work` on a thread inside the host and returns its result.
    ///
    /// Sockets made by `work` stay the host's wherever they are used afterwards.
    ///
    /// # Panics
    /// When `work` panics, or when a process that entered the emulator has since given up its
    /// capabilities.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, EmuError> {
        on_thread(self.name, || {
            self.enter().expect("a namespace held open can be entered by who made it");
            work()
        })
    }

    /// Starts a thread that lives inside the host: a runtime, a client, a server.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, EmuError> {
        let host = self.clone();
        let thread = thread::Builder::new().name(self.name.into());
        let inside = move || {
            host.enter().expect("a namespace held open can be entered by who made it");
            drop(host);
            work()
        };
        thread.spawn(inside).map_err(EmuError::Thread)
    }

    /// A command that will run inside the host and is killed when its starter dies.
    ///
    /// The kernel ties that to the *thread* which starts it: start it from one that outlives it.
    #[allow(unsafe_code)]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.namespace);
        let starter = nix::unistd::getpid();
        let enter = move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() != starter {
                // The starter died before the line above: nobody would ever kill this program.
                return Err(io::ErrorKind::Interrupted.into());
            }
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
        };
        // SAFETY: between fork and exec the closure makes three system calls and allocates nothing.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// A UDP socket of this host, bound to `addr`.
    pub fn udp_socket(&self, addr: SocketAddr) -> Result<UdpSocket, EmuError> {
        self.run(|| UdpSocket::bind(addr))?.map_err(|e| self.failed(format!("bind UDP {addr}"), e))
    }

    /// A listening TCP socket of this host, bound to `addr`.
    pub fn tcp_listener(&self, addr: SocketAddr) -> Result<TcpListener, EmuError> {
        let bound = self.run(|| TcpListener::bind(addr))?;
        bound.map_err(|e| self.failed(format!("listen on TCP {addr}"), e))
    }

    pub(super) fn failed(
        &self,
        doing: String,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> EmuError {
        EmuError::Configure { host: self.name, doing, source: source.into() }
    }

    fn enter(&self) -> io::Result<()> {
        setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
    }
}

/// A thread of its own for `work`, so that no other thread's namespace ever changes.
fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, EmuError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.into());
        let running = thread.spawn_scoped(scope, work).map_err(EmuError::Thread)?;
        Ok(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
