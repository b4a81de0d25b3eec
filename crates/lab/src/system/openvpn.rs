//! OpenVPN over the kernel's MPTCP: a VPN that bonds all radio links, from the system's packages.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;
use super::{Running, Spread, Stage, SystemError, SystemUnderTest, mptcp};
use crate::emu::{CLIENT, GROUND, Host, PASSENGERS, SERVER, SITES};

/// Programs, from the packages of these names.
const VPN: &str = "openvpn";
const MPTCP: &str = "mptcpize";

/// Addresses of the tunnel's ends.
const AIR_END: &str = "198.18.60.1";
const GROUND_END: &str = "198.18.60.2";
const TUN: &str = "vpn";
const PORT: &str = "1194";

/// Line of output that says that the tunnel is up, and the time within which it must come.
const IS_UP: &str = "Initialization Sequence Completed";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// The system under test.
pub static OPENVPN_MPTCP: OpenVpn = OpenVpn;

/// A tunnel in one MPTCP connection over all radio links.
#[derive(Debug)]
pub struct OpenVpn;

impl SystemUnderTest for OpenVpn {
    fn name(&self) -> &'static str {
        "openvpn-mptcp"
    }

    fn about(&self) -> &'static str {
        "OpenVPN from the system's packages, whose TCP connection mptcpize turns into the kernel's MPTCP over all radio links: \
         default scheduler, CUBIC on each link and end to end."
    }

    fn has_tcp_on_link(&self) -> bool {
        true
    }

    fn carries_udp(&self) -> bool {
        true
    }

    fn starts_cold(&self) -> bool {
        false
    }

    fn spread(&self) -> Spread {
        Spread::Slow
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        let (air, ground) = (&stage.testbed.air, &stage.testbed.ground);
        mptcp::use_all_radios(stage.testbed)?;
        let key = stage.folder.join("vpn.key");
        let mut make = air.command(VPN);
        make.args(["--genkey", "secret"]).arg(&key);
        let made = make.output().map_err(|error| cannot_run(VPN, error))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(SystemError::Ended { program: VPN, said });
        }
        let hub = GROUND.v4.to_string();
        let at_ground = ["--proto", "tcp-server", "--local", &hub, "--lport", PORT];
        let at_air = ["--proto", "tcp-client", "--remote", &hub, PORT, "--connect-retry", "1"];
        let run = |host: &Host, name: &str, ends: [&str; 2], own: &[&str]| {
            let mut command = host.command(MPTCP);
            command.args(["run", VPN]).args(own).args(["--ifconfig", ends[0], ends[1]]);
            share(&mut command, &key);
            Process::start(command, &stage.folder.join(format!("{name}.log")))
                .map_err(|error| cannot_run(MPTCP, error))
        };
        let server = run(ground, "vpn-ground", [GROUND_END, AIR_END], &at_ground)?;
        let client = run(air, "vpn-air", [AIR_END, GROUND_END], &at_air)?;
        let mut tunnel = Tunnel { ends: [client, server] };
        let began = Instant::now();
        while !tunnel.is_up() {
            tunnel.check()?;
            if began.elapsed() > PATIENCE {
                return Err(SystemError::Ended { program: VPN, said: tunnel.said() });
            }
            thread::sleep(LOOK);
        }
        for (host, networks) in
            [(air, [(SERVER.v4, 24), SITES]), (ground, [(CLIENT.v4, 24), PASSENGERS])]
        {
            networks.into_iter().try_for_each(|network| lead(host, network))?;
        }
        Ok(Box::new(tunnel))
    }
}

/// Sets the options that both ends share.
fn share(command: &mut Command, key: &Path) {
    command.arg("--secret").arg(key);
    command.args(["--cipher", "AES-256-CBC"]);
    command.args(["--dev", TUN, "--dev-type", "tun", "--tcp-nodelay", "--disable-dco"]);
}

/// Leads a network through the tunnel.
fn lead(host: &Host, (address, bits): (Ipv4Addr, u8)) -> Result<(), SystemError> {
    let doing = "lead packets through the VPN with `ip route` (iproute2)";
    let failed = |source| SystemError::Kernel { doing, source };
    let network = Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - u32::from(bits))));
    let network = format!("{network}/{bits}");
    let mut command = host.command("ip");
    command.args(["route", "replace", &network, "dev", TUN]);
    let output = command.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(failed(io::Error::other(said.trim()))) }
}

fn cannot_run(program: &'static str, error: io::Error) -> SystemError {
    match error.kind() {
        io::ErrorKind::NotFound => SystemError::Missing { program },
        _ => SystemError::Kernel { doing: "run OpenVPN", source: error },
    }
}

/// Both ends of the tunnel; they run until dropped.
struct Tunnel {
    ends: [Process; 2],
}

impl Tunnel {
    fn is_up(&self) -> bool {
        self.ends.iter().all(|end| end.output().contains(IS_UP))
    }
}

impl Running for Tunnel {
    fn check(&mut self) -> Result<(), SystemError> {
        match self.ends.iter_mut().find_map(|end| end.ended().map(|_| end.tail())) {
            Some(said) => Err(SystemError::Ended { program: VPN, said }),
            None => Ok(()),
        }
    }

    fn said(&self) -> String {
        let [air, ground] = self.ends.each_ref().map(Process::tail);
        format!("\nlast lines of {VPN} on the air host:\n{air}\non the ground host:\n{ground}")
    }
}
