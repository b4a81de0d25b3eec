//! A caching proxy at the first hop, and the origin behind it.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::hosts::{Chain, Host};
use crate::probe::PROGRAM;

/// Longest time that a server may take to start.
const START: Duration = Duration::from_secs(20);

/// A program that ends with its handle.
pub struct Service {
    child: Child,
    _folder: TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        // The child is this process's own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Squid on port 80 of the first hop, with a cache in memory, in front of the origin. `None` if it is missing.
pub fn squid(chain: &Chain) -> Option<Service> {
    let found = Command::new("squid").arg("-v").output();
    if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("squid.conf");
    let (own, origin) = (chain.hop(1, false), chain.target(false));
    let text = format!(
        "http_port 80 accel defaultsite={own} no-vhost\n\
         cache_peer {origin} parent 8080 0 no-query originserver\n\
         visible_hostname {own}\n\
         http_access allow all\ncache_mem 32 MB\nmaximum_object_size_in_memory 2 MB\n\
         access_log none\ncache_log /dev/null\npid_filename none\npinger_enable off\n\
         icp_port 0\nnetdb_filename none\n"
    );
    fs::write(&file, text).expect("a file");
    // Squid gives up its rights and must still read its folder.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
        .expect("a folder of its own");
    let child = chain.router(1).spawn("squid", &["-N", "-f", &file.display().to_string()]);
    let service = Service { child, _folder: folder };
    wait_for(chain.router(1), 80);
    Some(service)
}

/// The program's own origin on port 8080 of the target.
pub fn origin(chain: &Chain) -> Service {
    let child = chain.far().spawn(PROGRAM, &["origin", "--listen", "0.0.0.0:8080"]);
    let service = Service { child, _folder: tempfile::tempdir().expect("a folder") };
    wait_for(chain.far(), 8080);
    service
}

fn wait_for(host: &Host, port: u16) {
    let began = Instant::now();
    let listens = move || loop {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        if began.elapsed() > START {
            return false;
        }
        sleep(Duration::from_millis(50));
    };
    assert!(host.thread(listens).join().expect("a thread"), "nothing listens on port {port}");
}
