//! Namespaces and the paths between them. Each is held by a child process, which ends with its handle.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// Permits this process to make namespaces: as root, or as root of a new user namespace.
pub fn enter() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    if !uid.is_root() {
        unshare(CloneFlags::CLONE_NEWUSER)
            .map_err(|error| format!("no user namespace: {error}"))?;
        let write =
            |path, text: &str| fs::write(path, text).map_err(|error| format!("{path}: {error}"));
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
        write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    }
    for program in ["ip", "nsenter", "setpriv", "unshare"] {
        let found = Command::new(program).arg("--version").output();
        if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(format!("`{program}` is missing"));
        }
    }
    let mut command = Command::new("unshare");
    let made = command
        .args(["--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"])
        .status();
    match made {
        Ok(status) if status.success() => Ok(()),
        _ => Err("network namespaces with veth cannot be made".into()),
    }
}

/// A namespace.
pub struct Host(Child);

impl Host {
    fn new() -> Self {
        let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
        let child =
            Command::new("unshare").args(["--net", "sleep", "600"]).spawn().expect("unshare");
        let host = Self(child);
        // Until it has moved, it is in this process's namespace.
        while fs::read_link(format!("/proc/{}/ns/net", host.pid()))
            .is_ok_and(|namespace| namespace == own)
        {
            sleep(Duration::from_millis(5));
        }
        host.run("ip link set lo up");
        host
    }

    /// Identifier of the process that holds the namespace.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Starts a program in the namespace.
    pub fn spawn(&self, program: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid().to_string(), "-n", program]).args(arguments);
        command.stdout(std::process::Stdio::null()).spawn().expect("nsenter")
    }

    fn run(&self, line: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("nsenter")
            .args(["-t", &pid, "-n", "sh", "-c", line])
            .status()
            .expect("nsenter");
        assert!(status.success(), "{line}");
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace =
            fs::File::open(format!("/proc/{}/ns/net", self.pid())).expect("a namespace");
        std::thread::spawn(move || {
            nix::sched::setns(&namespace, CloneFlags::CLONE_NEWNET)
                .expect("a namespace of this process");
            work()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The child is this process's own.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client, routers and a target in a row. Link i is between hosts i and i + 1.
pub struct Chain {
    hosts: Vec<Host>,
}

impl Chain {
    /// A chain with so many routers.
    pub fn new(routers: usize) -> Self {
        let hosts: Vec<Host> = (0..routers + 2).map(|_| Host::new()).collect();
        let chain = Self { hosts };
        let last = routers + 1;
        for link in 0..last {
            let (near, far) = (&chain.hosts[link], &chain.hosts[link + 1]);
            near.run(&format!(
                "ip link add down{link} type veth peer name up{link} netns {}",
                far.pid()
            ));
            near.run(&format!(
                "ip addr add 10.0.{link}.1/30 dev down{link} && ip addr add fd00:{link}::1/64 dev down{link} nodad && ip link set down{link} up"
            ));
            far.run(&format!(
                "ip addr add 10.0.{link}.2/30 dev up{link} && ip addr add fd00:{link}::2/64 dev up{link} nodad && ip link set up{link} up"
            ));
        }
        for index in 0..=last {
            // Linux answers each host with one error a second; a path of real routers has other limits.
            chain.hosts[index].run(
                "cd /proc/sys/net && echo 1 > ipv4/ip_forward && echo 1 > ipv6/conf/all/forwarding \
                 && echo 0 > ipv4/icmp_ratelimit && echo 0 > ipv6/icmp/ratelimit",
            );
            if index < last {
                chain.hosts[index].run(&format!(
                    "ip route add default via 10.0.{index}.2 && ip -6 route add default via fd00:{index}::2"
                ));
            }
            for link in 0..index.saturating_sub(1) {
                let back = index - 1;
                chain.hosts[index].run(&format!(
                    "ip route add 10.0.{link}.0/30 via 10.0.{back}.1 && ip -6 route add fd00:{link}::/64 via fd00:{back}::1"
                ));
            }
        }
        chain
    }

    /// The client.
    pub fn client(&self) -> &Host {
        &self.hosts[0]
    }

    /// A router, by its hop.
    pub fn router(&self, hop: usize) -> &Host {
        &self.hosts[hop]
    }

    /// The target.
    pub fn far(&self) -> &Host {
        &self.hosts[self.hosts.len() - 1]
    }

    /// Address of the target.
    pub fn target(&self, v6: bool) -> IpAddr {
        self.hop(self.hosts.len() - 1, v6)
    }

    /// Address from which hop `hop` answers.
    pub fn hop(&self, hop: usize, v6: bool) -> IpAddr {
        let link = u16::try_from(hop - 1).expect("a short path");
        match v6 {
            false => Ipv4Addr::new(10, 0, link as u8, 2).into(),
            true => Ipv6Addr::new(0xfd00, link, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// Lets hop `hop` drop all packets to the target without a word.
    pub fn drop_at(&self, hop: usize) {
        self.hosts[hop].run(&format!("ip route add blackhole {}/32", self.target(false)));
    }

    /// Undoes [`Chain::drop_at`].
    pub fn pass_at(&self, hop: usize) {
        self.hosts[hop].run(&format!("ip route del blackhole {}/32", self.target(false)));
    }

    /// Polices UDP from `port` of the target at hop `hop`: `rate` bytes a second with a bucket of `burst` bytes.
    pub fn police_at(&self, hop: usize, port: u16, rate: u32, burst: u32) {
        self.hosts[hop].run(&format!(
            "nft 'add table ip police; add chain ip police down {{ type filter hook forward priority 0; }}; \
             add rule ip police down udp sport {port} limit rate over {rate} bytes/second burst {burst} bytes drop'"
        ));
    }

    /// Shapes the link of the client to so many bits per second down and up.
    pub fn shape(&self, down: u64, up: u64) {
        for (host, interface, rate) in [(1, "up0", down), (0, "down0", up)] {
            self.hosts[host].run(&format!(
                "tc qdisc add dev {interface} root tbf rate {rate}bit burst 16kb latency 300ms"
            ));
        }
    }

    /// Lets the target ignore ICMP echo.
    pub fn ignore_echo(&self) {
        self.far().run("echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all");
    }

    /// Takes the client's network away.
    pub fn cut(&self) {
        self.client().run("ip link set down0 down");
    }
}
