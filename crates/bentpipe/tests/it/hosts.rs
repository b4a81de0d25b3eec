//! The program on restricted machines: without privileges, tools, a writable disk or IPv6. Each
//! test uses its own namespaces.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway and its log.
struct Gateway {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    /// Starts `script` with sh in new network and mount namespaces. The script ends in `exec`.
    fn start(folder: &Path, script: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-ec", &format!("ip link set lo up\n{script}")])
            .current_dir(folder)
            .env("BENTPIPE", env!("CARGO_BIN_EXE_bentpipe"))
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
        });
        Self { child, lines, said: String::new() }
    }

    /// Waits until the log contains `what`.
    fn says(&mut self, what: &str) {
        while !self.said.contains(what) {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("it did not say {what:?}, but:\n{}", self.said)
            };
            self.said += &line;
            self.said += "\n";
        }
    }

    /// Waits until it fails by itself, and returns its log.
    fn ends(mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said += &line;
            self.said += "\n";
        }
        assert!(!self.child.wait().unwrap().success(), "{}", self.said);
        std::mem::take(&mut self.said)
    }

    /// Returns the value of `key` for each of its threads.
    fn of_threads(&self, key: &str) -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        threads.map(of_thread).collect()
    }
}

/// Returns whether these tests cannot run here, and prints the reason.
pub fn obstacle(programs: &[&str]) -> bool {
    let folders = ["/usr/local/bin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let has = |program: &&&str| folders.iter().any(|at| Path::new(at).join(program).exists());
    let missing: Vec<_> = programs.iter().filter(|program| !has(program)).collect();
    let unshare = || Command::new("unshare").args(["--net", "--mount", "true"]).status();
    let why = if !nix::unistd::geteuid().is_root() {
        "not root".to_owned()
    } else if missing.is_empty() && !unshare().is_ok_and(|status| status.success()) {
        "no namespaces".to_owned()
    } else if !missing.is_empty() {
        format!("{missing:?} not installed")
    } else {
        return false;
    };
    // Not by a macro, because the test harness captures its output.
    let line = format!("SKIPPED: a gateway on another machine is not tested: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    true
}

/// A world-accessible folder with a key and `air.toml`.
fn folder(listen: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("hosts").tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("air.key"), key).unwrap();
    std::fs::create_dir(folder.path().join("state")).unwrap();
    let text = format!(
        "[link]\nprivate-key-file = \"air.key\"\nstate-file = \"state/air.state\"\n\
         peer = \"192.0.2.1:4500\"\npeer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n{listen}\n"
    );
    std::fs::write(folder.path().join("air.toml"), text).unwrap();
    let sh = "chmod 755 . && chown -R 65534:65534 state air.key && chmod 600 air.key";
    let done = Command::new("sh").args(["-c", sh]).current_dir(folder.path()).status();
    assert!(done.unwrap().success());
    folder
}

const INTERCEPTS: &str = "[listen.tproxy]\nport = 1081\ninterfaces = [\"lan0\"]";
const LAN: &str = "ip link add lan0 type veth peer name seat0\nip link set lan0 up\n";

/// Copies the program to where an unprivileged user may run it.
fn program(folder: &Path) -> PathBuf {
    let copy = folder.join("bentpipe");
    std::fs::copy(env!("CARGO_BIN_EXE_bentpipe"), &copy).unwrap();
    copy
}

/// Three capabilities suffice: user 65534, without tools, and with no other privileges afterwards.
#[test]
fn a_user_with_three_capabilities_intercepts_without_tools() {
    if obstacle(&["ip", "setpriv", "unshare"]) {
        return;
    }
    let folder = folder(INTERCEPTS);
    program(folder.path());
    let script = format!(
        "{LAN}exec setpriv --reuid=65534 --regid=65534 --clear-groups \
         --inh-caps=-all,+net_admin,+net_raw,+net_bind_service,+sys_ptrace \
         --ambient-caps=-all,+net_admin,+net_raw,+net_bind_service,+sys_ptrace \
         env -i PATH=/nonexistent RUST_LOG=info NO_COLOR=1 ./bentpipe air --config air.toml"
    );
    let mut air = Gateway::start(folder.path(), &script);
    air.says("intercepting clients");
    assert!(!air.said.contains("UDP is not intercepted"), "{}", air.said);
    assert!(!air.said.contains("not confined"), "{}", air.said);
    // CAP_NET_BIND_SERVICE is 10, CAP_NET_ADMIN 12 and CAP_NET_RAW 13.
    let kept = format!("{:016x}", 1 << 10 | 1 << 12 | 1 << 13);
    let none = "0000000000000000";
    for (key, value) in [
        ("CapPrm:", &*kept),
        ("CapEff:", &*kept),
        ("CapInh:", none),
        ("CapAmb:", none),
        ("NoNewPrivs:", "1"),
    ] {
        let of_threads = air.of_threads(key);
        assert!(of_threads.len() > 1, "the runtime has threads of its own");
        assert!(of_threads.iter().all(|it| it == value), "{key} {of_threads:?}");
    }
}

/// Without capabilities, one line says what is missing.
#[test]
fn a_user_without_capabilities_is_told() {
    if obstacle(&["ip", "setpriv", "unshare"]) {
        return;
    }
    let folder = folder(INTERCEPTS);
    program(folder.path());
    let script = format!(
        "{LAN}exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
         ./bentpipe air --config air.toml"
    );
    let said = Gateway::start(folder.path(), &script).ends();
    assert!(said.contains("transparent interception needs CAP_NET_ADMIN"), "{said}");
}

/// A read-only disk except for one folder, and no /dev/net/tun.
#[test]
fn a_read_only_machine_without_tun_is_enough() {
    if obstacle(&["ip", "mount", "unshare"]) {
        return;
    }
    let folder = folder(&format!("[listen]\nsocks5 = \"127.0.0.1:0\"\n{INTERCEPTS}"));
    let script = format!(
        "{LAN}mount -t tmpfs tmpfs state\n\
         mount -t tmpfs tmpfs /dev/net 2>/dev/null || true\n\
         for at in / /tmp; do mount -o remount,ro,bind $at 2>/dev/null || true; done\n\
         if touch here 2>/dev/null || test -e /dev/net/tun; then exit 9; fi\n\
         exec \"$BENTPIPE\" air --config air.toml"
    );
    let mut air = Gateway::start(folder.path(), &script);
    air.says("intercepting clients");
    air.says("serving SOCKS5");
}

/// If the state file's folder is not writable, one line names the setting to change.
#[test]
fn a_state_file_that_cannot_be_written_is_told() {
    if obstacle(&["ip", "mount", "unshare"]) {
        return;
    }
    let folder = folder("[listen]\nsocks5 = \"127.0.0.1:0\"");
    let script = "mount -t tmpfs -o ro tmpfs state\nexec \"$BENTPIPE\" air --config air.toml";
    let said = Gateway::start(folder.path(), script).ends();
    assert!(said.contains("state/air.state cannot be kept: Read-only file system"), "{said}");
    assert!(said.contains("with state-file under [link]"), "{said}");
}

/// Disabled IPv6 is reported once, with the right reason.
#[test]
fn ipv6_that_is_off_is_told_once() {
    if obstacle(&["ip", "unshare"]) {
        return;
    }
    let folder = folder(INTERCEPTS);
    let script = format!(
        "{LAN}echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\n\
         exec \"$BENTPIPE\" air --config air.toml"
    );
    let mut air = Gateway::start(folder.path(), &script);
    air.says("intercepting clients");
    let told: Vec<&str> = air.said.lines().filter(|line| line.contains("IPv6")).collect();
    assert_eq!(told.len(), 1, "{}", air.said);
    assert!(
        told[0].contains("only IPv4 is intercepted: IPv6 is disabled on this machine"),
        "{told:?}"
    );
    assert!(!air.said.contains("kernel with"), "{}", air.said);
}

/// Refuses IPv6 sockets like a kernel without IPv6, then runs the rest of its arguments.
const WITHOUT_IPV6: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
allow, refuse = 0x7fff0000, 0x00050000 | 97
program = b"".join([
    op(0x20, 0, 0, 0), op(0x15, 0, 3, number),
    op(0x20, 0, 0, 16), op(0x15, 0, 1, 10), op(0x06, 0, 0, refuse),
    op(0x06, 0, 0, allow)])
filter = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(program) // 8, ctypes.cast(filter, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Without IPv6 sockets (kernel without IPv6, or a restricted container), both gateways serve IPv4.
#[test]
fn a_kernel_without_ipv6_sockets_serves_ipv4() {
    if obstacle(&["ip", "python3", "unshare"]) {
        return;
    }
    let folder =
        folder(&format!("[listen]\nsocks5 = \"[::]:0\"\nclients = [\"10.0.0.0/8\"]\n{INTERCEPTS}"));
    std::fs::write(folder.path().join("without.py"), WITHOUT_IPV6).unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let ground = format!(
        "[link]\nprivate-key-file = \"air.key\"\nlisten = \"[::]:4500\"\nmasque-listen = \"[::]:4433\"\n\
         [dns]\nservers = [\"192.0.2.53\"]\n\
         [[aircraft]]\nname = \"one\"\npublic-key = \"{key}\"\nrate = \"1 Mbit/s\"\n"
    );
    std::fs::write(folder.path().join("ground.toml"), ground).unwrap();
    let run = |which| {
        let script =
            format!("{LAN}exec python3 without.py \"$BENTPIPE\" {which} --config {which}.toml");
        Gateway::start(folder.path(), &script)
    };
    let mut air = run("air");
    air.says("intercepting clients");
    assert!(
        air.said.contains("only IPv4 is intercepted: this kernel gives no IPv6 sockets"),
        "{}",
        air.said
    );
    assert!(air.said.contains("socks5 is served at 0.0.0.0:0 instead"), "{}", air.said);
    let mut ground = run("ground");
    ground.says("link is served at 0.0.0.0:4500 instead");
    ground.says("masque is served at 0.0.0.0:4433 instead");
    ground.says("serving");
}

/// A killed gateway leaves its rules; the command in the unit file removes them.
#[test]
fn remains_of_a_killed_gateway_are_removed() {
    if obstacle(&["ip", "nft", "unshare"]) {
        return;
    }
    for (closed, left) in [("false", "0"), ("true", "1")] {
        let folder = folder(&format!("{INTERCEPTS}\nfail-closed = {closed}"));
        let script = format!(
            "{LAN}\"$BENTPIPE\" air --config air.toml 2>log &\n\
             until grep -q 'intercepting clients' log; do\n\
             kill -0 $! || {{ cat log >&2; exit 1; }}; sleep 0.1; done\n\
             kill -9 $!\nnft list tables >&2\nip rule >&2\n\
             \"$BENTPIPE\" air --config air.toml --remove-rules\n\
             echo \"left: $(nft list tables | grep -c bentpipe_air)\" >&2\nexit 1"
        );
        let said = Gateway::start(folder.path(), &script).ends();
        assert!(said.contains("table inet bentpipe_air"), "{said}");
        assert!(said.contains("lookup 25200"), "{said}");
        assert!(said.contains(&format!("left: {left}")), "{said}");
    }
}

/// systemd accepts the unit files, and they start this program with valid arguments.
#[test]
fn the_unit_files_are_good() {
    let folder = tempfile::tempdir().unwrap();
    for which in ["air", "ground"] {
        let name = format!("bentpipe-{which}.service");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd").join(&name);
        let text = std::fs::read_to_string(file).unwrap();
        let commands = ["ExecStart=", "ExecStopPost=-"]
            .map(|key| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned));
        for command in commands.into_iter().flatten() {
            let arguments = command.strip_prefix("/usr/bin/bentpipe ").unwrap();
            let ran = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
                .args(arguments.split(' '))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert!(
                said.contains(&format!("/etc/bentpipe/{which}.toml: the file cannot be read")),
                "{said}"
            );
        }
        if obstacle(&["systemd-analyze"]) {
            continue;
        }
        let here = folder.path().join(&name);
        std::fs::write(&here, text.replace("/usr/bin/bentpipe", env!("CARGO_BIN_EXE_bentpipe")))
            .unwrap();
        let verified = Command::new("systemd-analyze").arg("verify").arg(&here).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(verified.status.success() && !said.contains(&name), "{said}");
    }
}
