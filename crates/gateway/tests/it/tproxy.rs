//! Interception with a real kernel: two connected network namespaces, nftables and policy routing.
//! Needs root, or user namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transport::Carried;
use bentpipe_net::Inherited;
use nix::sched::{CloneFlags, unshare};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::until;
use crate::wire;

/// Set in the copy of this test that runs as root of a user namespace.
const INSIDE: &str = "BENTPIPE_TEST_INSIDE_USERNS";
const NAME: &str = "tproxy::intercepts_both_families_and_cleans_up";
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns `true` if a program is installed.
pub fn has(program: &str) -> bool {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    folders.iter().any(|folder| Path::new(folder).join(program).exists())
}

/// Reason why this test cannot run here, if any.
fn obstacle() -> Option<&'static str> {
    match (has("nft"), has("ip")) {
        (false, _) => Some("nft is not installed"),
        (_, false) => Some("ip is not installed"),
        _ => None,
    }
}

#[test]
fn intercepts_both_families_and_cleans_up() {
    as_root(NAME, in_gateway);
}

/// Runs `test`, which is called `name`, as root in its own thread, whose namespaces end with it.
/// Prints the reason if that is not possible.
pub fn as_root(name: &str, test: fn()) {
    if let Some(why) = obstacle() {
        return skipped(why);
    }
    if nix::unistd::geteuid().is_root() {
        std::thread::spawn(test).join().expect("the gateway's side succeeds");
    } else if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("this test has a path");
        let command = ["-Urn".into(), this.into_os_string(), "--exact".into(), name.into()];
        // A failure to create namespaces must be distinguished from a failed test.
        match Command::new("unshare").args(["-Urn", "true"]).status() {
            Ok(status) if status.success() => {
                let status = Command::new("unshare").args(command).env(INSIDE, "1").status();
                assert!(status.is_ok_and(|status| status.success()), "interception failed");
            }
            other => skipped(&format!("neither root nor user namespaces ({other:?})")),
        }
    }
}

/// Reports a skipped test on the real stderr, because the test harness captures macro output.
pub fn skipped(why: &str) {
    let line = format!("SKIPPED: what needs network namespaces is not tested: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
}

/// Enters new namespaces: a new network, and /sys as seen from that network.
pub fn new_network() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make network namespaces");
    sh("ip link set lo up");
}

fn in_gateway() {
    new_network();
    let (send_tid, tid) = mpsc::channel();
    let (send_ready, ready) = mpsc::channel::<()>();
    let (send_back, back) = mpsc::channel::<()>();
    let client = std::thread::spawn(move || {
        new_network();
        send_tid.send(nix::unistd::gettid()).unwrap();
        ready.recv_timeout(PATIENCE).unwrap();
        as_client();
        send_back.send(()).unwrap();
    });
    let tid = tid.recv_timeout(PATIENCE).unwrap();
    sh(&format!(
        "ip link add cabin0 type veth peer name seat0 netns {tid}\n\
         ip addr add 10.9.0.1/24 dev cabin0\n\
         ip addr add fd09::1/64 dev cabin0 nodad\n\
         ip link set cabin0 up"
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(send_ready, back));
    client.join().expect("the client's side succeeds");
    let left = sh(
        "nft list ruleset; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all",
    );
    for trace in ["bentpipe", "0x6270", "25200"] {
        assert!(!left.contains(trace), "{trace} is left behind:\n{left}");
    }
}

/// Configuration of an air gateway that intercepts.
fn intercepting(tproxy: &str) -> AirConfig {
    let folder = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let text = format!(
        "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n[listen]\n{tproxy}\n"
    );
    AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap()
}

async fn serve(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    // Leftovers of a crashed run.
    sh("nft add table inet bentpipe_air\n\
        nft add chain inet bentpipe_air old\n\
        ip rule add fwmark 0x6270 lookup 25200 priority 25200\n\
        ip route add local default dev lo table 25200");
    let config = intercepting("tproxy = { port = 1081, interfaces = [\"cabin0\"] }");
    let (up, down) = wire::link([0; 32]);
    let air = Air::bind(&config, &mut Inherited::default(), up.clone()).unwrap();
    let rules = sh("nft list ruleset");
    assert!(!rules.contains("chain old"), "{rules}");
    assert_eq!(sh("ip rule").matches("0x6270").count(), 1);
    tokio::spawn(async move {
        while let Some(incoming) = bentpipe_gateway::transport::Acceptor::accept(&*down).await {
            let Carried::Stream(mut stream) = incoming.carries else { panic!("TCP was sent") };
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            let answer = format!("{} said {}", incoming.target, String::from_utf8_lossy(&word));
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let counters = air.counters();
    let stop = async move {
        ready.send(()).unwrap();
        tokio::task::spawn_blocking(move || back.recv_timeout(PATIENCE)).await.unwrap().unwrap();
        let mut itself = tokio::net::TcpStream::connect("127.0.0.1:1081").await.unwrap();
        assert!(itself.read_u8().await.is_err());
    };
    let serving = air.serve(stop);
    tokio::time::timeout(PATIENCE, serving).await.expect("it stops");
    assert_eq!(up.opened().len(), 2);
    assert_eq!(counters.finished.get(), 2);
    assert_eq!(counters.garbage.get(), 1, "the listener carries nothing sent to itself");
}

#[test]
fn rules_that_another_program_removes_come_back() {
    as_root("tproxy::rules_that_another_program_removes_come_back", || {
        new_network();
        sh("ip link add cabin0 type veth peer name seat0; ip link set cabin0 up");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for fail_closed in [false, true] {
            runtime.block_on(flush(fail_closed));
        }
    });
}

async fn flush(fail_closed: bool) {
    let tproxy = format!(
        "tproxy = {{ port = 1081, interfaces = [\"cabin0\"], fail-closed = {fail_closed} }}"
    );
    let config = intercepting(&tproxy);
    let air = Air::bind(&config, &mut Inherited::default(), wire::link([0; 32]).0).unwrap();
    let rules = || {
        let listed = sh("nft list table inet bentpipe_air; ip rule; ip -6 rule");
        // Counters and sets of sources change by themselves.
        let stays =
            |line: &&str| ["tproxy", "drop", "jump", "fwmark"].iter().any(|it| line.contains(it));
        let lines = listed.lines().filter(stays);
        lines.map(|line| line.split(" counter ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = rules();
    assert!(before.len() > 8, "{before:?}");
    let counters = air.counters();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(air.serve(async { drop(stopped.await) }));
    for (number, remove) in [
        "nft flush ruleset",
        "nft flush table inet bentpipe_air",
        "ip rule del fwmark 0x6270; ip -6 rule del fwmark 0x6270",
    ]
    .into_iter()
    .enumerate()
    {
        sh(remove);
        until(remove, || counters.rules_restored.get() == number as u64 + 1).await;
        assert_eq!(rules(), before, "{remove}");
    }
    stop.send(()).unwrap();
    serving.await.unwrap();
}

fn as_client() {
    sh("ip addr add 10.9.0.2/24 dev seat0\n\
        ip addr add fd09::2/64 dev seat0 nodad\n\
        ip link set seat0 up\n\
        ip route add default via 10.9.0.1\n\
        ip -6 route add default via fd09::1");
    for target in ["198.51.100.7:443", "[2001:db8:7::7]:8443"] {
        let address: SocketAddr = target.parse().unwrap();
        let mut tcp = TcpStream::connect_timeout(&address, PATIENCE).expect(target);
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(b"ping").unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).expect(target);
        assert_eq!(answer, format!("{target} said ping"));
    }
}
