//! Gateways restarted by a service manager: clients' connections go on.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;

use super::gateway::{Gateway, PATIENCE, free_address};

const CLIENTS: usize = 20;
const STEP: usize = 50_000;

/// The side of the service manager that `sd_notify(3)` describes: it keeps one descriptor of a service.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(folder: &Path, service: &str) -> Self {
        let path = folder.join(format!("{service}.notify"));
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path }
    }

    /// Waits for the descriptor that the service stores.
    fn stored(&self) -> OwnedFd {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let (mut rights, mut text) = (RecvAncillaryBuffer::new(&mut space), [0; 4_096]);
            let mut into = [IoSliceMut::new(&mut text)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let count = recvmsg(&self.socket, &mut into, &mut rights, flags).unwrap().bytes;
            let mut descriptors = rights.drain().flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
                _ => Vec::new(),
            });
            if let Some(stored) = descriptors.next() {
                let said = String::from_utf8_lossy(&text[..count]);
                let mut lines: Vec<_> = said.lines().collect();
                lines.sort_unstable();
                assert_eq!(lines, ["FDNAME=handover", "FDPOLL=0", "FDSTORE=1"]);
                return stored;
            }
        }
    }

    /// Waits until the service has taken what was stored. Otherwise a crash would give it back.
    fn forgets(&self) {
        let mut text = [0; 4_096];
        loop {
            let count = self.socket.recv(&mut text).expect("FDSTOREREMOVE");
            if text[..count] == *b"FDSTOREREMOVE=1\nFDNAME=handover\n" {
                return;
            }
        }
    }

    /// Starts a gateway, which inherits the descriptor that the previous one has stored.
    fn start(&self, what: &str, folder: &Path, stored: Option<OwnedFd>) -> Gateway {
        let program = env!("CARGO_BIN_EXE_bentpipe");
        let mut command = Command::new(program);
        if let Some(stored) = stored {
            // The shell keeps its process id, and the gateway has it then.
            command = Command::new("sh");
            let run = "LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 0</dev/null";
            command.args(["-c", run, program]).stdin(stored);
            command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "handover");
        }
        command.env("NOTIFY_SOCKET", &self.path).env("FDSTORE", "1");
        Gateway::start_by(command, &[], what, folder)
    }

    /// Stops a gateway and starts it again.
    fn restart(&self, gateway: Gateway, what: &str, folder: &Path) -> Gateway {
        let log = gateway.stop().join("\n");
        assert!(log.contains(&format!("flows={CLIENTS}")), "{log}");
        let next = self.start(what, folder, Some(self.stored()));
        next.says("taken over from the previous process");
        self.forgets();
        next
    }
}

fn keys(folder: &Path, file: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    let output = command.args(["keys", "--out", file]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes both configurations. Returns the address for SOCKS5.
fn configure(folder: &Path) -> SocketAddr {
    let (ground, air) = (keys(folder, "ground.key"), keys(folder, "air.key"));
    let free_udp = free_address();
    let socks = free_address();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    write(
        "ground.toml",
        format!(
            "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{free_udp}\"\n\
             [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"127.0.0.1:9\"]\n\
             [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{air}\"\nrate = \"50 Mbit/s\"\n"
        ),
    );
    write(
        "air.toml",
        format!(
            "[link]\nprivate-key-file = \"air.key\"\npeer = \"{free_udp}\"\n\
             peer-public-key = \"{ground}\"\nrate = \"50 Mbit/s\"\nkeep-flows = true\n\
             [listen]\nsocks5 = \"{socks}\"\n"
        ),
    );
    socks
}

/// An origin that echoes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            std::thread::spawn(move || {
                let mut back = tcp.try_clone().unwrap();
                let _ = std::io::copy(&mut tcp, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

/// A client of the SOCKS5 proxy, connected to `to` (RFC 1928).
fn client(socks: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect(socks).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(to.port().to_be_bytes());
    tcp.write_all(&request).unwrap();
    tcp.read_exact(&mut [0; 12]).unwrap();
    tcp
}

/// Sends half of a step, restarts a gateway by `restart`, sends the other half, and reads the echo.
fn through(clients: &mut [TcpStream], restart: impl FnOnce()) {
    let step: Vec<u8> = (0..STEP).map(|at| (at % 251) as u8).collect();
    let (first, second) = step.split_at(STEP / 2);
    clients.iter_mut().for_each(|tcp| tcp.write_all(first).unwrap());
    restart();
    for tcp in clients {
        tcp.write_all(second).unwrap();
        let mut back = vec![0; STEP];
        tcp.read_exact(&mut back).unwrap();
        assert!(back == step, "other bytes than were sent");
    }
}

#[test]
fn connections_outlive_restarts_of_both_gateways() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (socks, origin) = (configure(folder), echo());
    let managers = ["ground", "air"].map(|service| Manager::new(folder, service));
    let mut ground = Some(managers[0].start("ground", folder, None));
    ground.as_ref().unwrap().says("serving");
    let mut air = Some(managers[1].start("air", folder, None));
    air.as_ref().unwrap().says("serving SOCKS5");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(socks, origin)).collect();
    through(&mut clients, || {});
    for _ in 0..2 {
        through(&mut clients, || {
            ground = ground.take().map(|it| managers[0].restart(it, "ground", folder));
        });
        through(&mut clients, || {
            air = air.take().map(|it| managers[1].restart(it, "air", folder));
        });
    }
    for mut tcp in clients {
        tcp.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(tcp.read(&mut [0]).unwrap(), 0, "a clean end");
    }
}
