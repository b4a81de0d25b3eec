//! A static program on an otherwise empty machine. Both gateways run in a folder with only the
//! program, their configurations and keys; there is no `/etc`, `/lib`, `/dev` or `/proc`.
//!
//! `BENTPIPE_STATIC` names the program, as `.ci/run` builds it for musl.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Set in the process that has its own namespaces.
const INSIDE: &str = "BENTPIPE_TEST_BARE";

const NAME: &str = "a_static_program_carries_traffic_where_there_is_nothing_else";

#[test]
fn a_static_program_carries_traffic_where_there_is_nothing_else() {
    let Some(program) = std::env::var_os("BENTPIPE_STATIC") else {
        return skipped("BENTPIPE_STATIC names no static program");
    };
    if std::env::var_os(INSIDE).is_some() {
        return inside(Path::new(&program));
    }
    let namespaces = ["-Urn", "--mount"];
    let probe = Command::new("unshare").args(namespaces).arg("true").status();
    if !probe.is_ok_and(|status| status.success()) {
        return skipped("there are no user namespaces");
    }
    let this = std::env::current_exe().unwrap();
    let again: [&OsStr; 4] =
        [this.as_ref(), "--exact".as_ref(), NAME.as_ref(), "--nocapture".as_ref()];
    let status = Command::new("unshare").args(namespaces).args(again).env(INSIDE, "1").status();
    assert!(status.unwrap().success());
}

/// Reports a skipped test on the real stderr, because the test harness captures macro output.
fn skipped(why: &str) {
    let line = format!("SKIPPED: a static program is not tested: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A running gateway, killed when dropped.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bentpipe(folder: &Path) -> Command {
    let mut command = Command::new("chroot");
    command.arg(folder).arg("/bentpipe").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
}

/// Starts a gateway and waits until it logs `ready`.
fn start(folder: &Path, what: &str, ready: &str) -> Gateway {
    let mut command = bentpipe(folder);
    command.args([what, "--config", &format!("/{what}.toml")]);
    let mut gateway = Gateway(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(gateway.0.stderr.take().unwrap()).lines();
    let is_ready = log.by_ref().map_while(Result::ok).any(|line| {
        eprintln!("{what}: {line}");
        line.contains(ready)
    });
    assert!(is_ready, "{what} has ended");
    // Read to the end, so that the gateway can continue to log.
    std::thread::spawn(move || log.for_each(drop));
    gateway
}

fn keys(folder: &Path, file: &str) -> String {
    let output = bentpipe(folder).args(["keys", "--out", file]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn inside(program: &Path) {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::copy(program, folder.join("bentpipe")).unwrap();
    let (air, ground) = (keys(folder, "/air.key"), keys(folder, "/ground.key"));
    let write = |file: &str, text: String| fs::write(folder.join(file), text).unwrap();
    write(
        "air.toml",
        format!(
            "[link]\nprivate-key-file = \"air.key\"\npeer = \"127.0.0.1:4500\"\n\
             peer-public-key = \"{ground}\"\nrate = \"10 Mbit/s\"\n\
             [listen]\nsocks5 = \"127.0.0.1:1080\"\nhttp-proxy = \"127.0.0.1:3128\"\n\
             [http-cache]\n[dns]\nlisten = [\"127.0.0.1:53\"]\n"
        ),
    );
    write(
        "ground.toml",
        format!(
            "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"127.0.0.1:4500\"\n\
             [[aircraft]]\nname = \"A\"\npublic-key = \"{air}\"\nrate = \"10 Mbit/s\"\n\
             [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"127.0.0.1:5353\"]\n\
             [hosts]\n\"origin.test\" = [\"127.0.0.1\"]\n"
        ),
    );
    let origin = TcpListener::bind("127.0.0.1:8080").unwrap();
    std::thread::spawn(move || {
        for tcp in origin.incoming() {
            let mut tcp = tcp.unwrap();
            let mut line = String::new();
            BufReader::new(tcp.try_clone().unwrap()).read_line(&mut line).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            tcp.write_all(answer.as_bytes()).unwrap();
        }
    });
    let _ground = start(folder, "ground", "serving");
    let _air = start(folder, "air", "serving HTTP proxy");
    let mut tcp = TcpStream::connect("127.0.0.1:3128").unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET http://origin.test:8080/ HTTP/1.1\r\nHost: origin.test:8080\r\n\
                   Connection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
}
