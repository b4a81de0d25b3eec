//! A host of the emulated network: a network namespace that exists only through an open descriptor.

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

/// The namespace of the calling thread, which may differ from that of the process.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// One host. Clones are handles to the same host. When the last handle, socket and program of the
/// host are gone, the kernel removes the namespace and everything in it.
#[derive(Clone, Debug)]
pub struct Host {
    name: &'static str,
    namespace: Arc<File>,
}

impl Host {
    /// Makes an empty host: a namespace with only a loopback interface, which is down.
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

    /// The namespace, for setns(2) or as the destination of an interface.
    pub fn namespace(&self) -> &File {
        &self.namespace
    }

    /// Runs `work` on a thread inside the host and returns its result.
    ///
    /// Sockets made by `work` stay in the host's namespace wherever they are used later.
    ///
    /// # Panics
    /// If `work` panics, or if a process that entered the emulator has given up its capabilities.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, EmuError> {
        on_thread(self.name, || {
            self.enter().expect("a namespace held open can be entered by who made it");
            work()
        })
    }

    /// Runs `work` inside the host, on its own runtime, which ends with it.
    pub fn block_on<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> Result<T, EmuError> {
        self.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            Ok(runtime.map_err(EmuError::Thread)?.block_on(work()))
        })?
    }

    /// Starts a thread inside the host, for example for a runtime, a client or a server.
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

    /// Returns a command that will run inside the host and is killed when its starter dies.
    ///
    /// The kernel ties the program to the *thread* that starts it, so that thread must outlive the
    /// program.
    #[allow(unsafe_code)]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.namespace);
        let starter = nix::unistd::getpid();
        let enter = move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() != starter {
                // The starter died before the line above, so nobody would ever end this program.
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

/// Runs `work` on a new thread, so that the namespace of no other thread changes.
fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, EmuError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.into());
        let running = thread.spawn_scoped(scope, work).map_err(EmuError::Thread)?;
        Ok(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
