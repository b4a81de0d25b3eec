//! `kcptun`, the tunnel from the system's package of that name.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io, thread};

use bentpipe_units::BitRate;

use super::process::Process;
use super::relay::{PORT, Relays, Way};
use super::{Running, Spread, Stage, SystemError, SystemUnderTest};
use crate::emu::Congestion;
use crate::emu::{GROUND, Host};

/// Debian's package.
pub const PACKAGE: &str = "kcptun";
/// The program on the client's side.
pub const CLIENT: &str = "kcptun-client";
const SERVER: &str = "kcptun-server";

/// Port for connections to the client, on the air host's loopback.
const NEAR_PORT: u16 = 12_948;
/// Server's port for datagrams.
const LINK_PORT: u16 = 29_900;

/// UDP payload of a full packet: 1,428 bytes with the headers of IPv4 and UDP.
const MTU_BYTES: u64 = 1400;

/// Assumed rate of a link that declares none, for the computation of a window.
const MAX_RATE: BitRate = BitRate::from_bps(200_000_000);
/// Minimum round trip for the computation of a window.
const MIN_RTT: Duration = Duration::from_millis(10);
/// Minimum window. It equals kcptun's default for sending; a smaller window stalls at single
/// losses.
const MIN_WINDOW: u64 = 128;

/// Time within which a program that cannot start ends.
const START_GRACE: Duration = Duration::from_millis(300);

/// The system under test.
pub static KCPTUN: Kcptun = Kcptun;

/// KCP: a reliable protocol on UDP, with Reed-Solomon parity in addition to retransmissions.
#[derive(Debug)]
pub struct Kcptun;

impl SystemUnderTest for Kcptun {
    fn name(&self) -> &'static str {
        "kcptun"
    }

    fn about(&self) -> &'static str {
        "kcptun from the system's packages between two relays: mode fast3 (no congestion control), \
         3 parity shards for each 10, windows of rate × round trip in packets of 1,400 bytes, \
         no compression, AES-128. It ends a connection in both directions at once."
    }

    fn carries_udp(&self) -> bool {
        false
    }

    fn starts_cold(&self) -> bool {
        true
    }

    fn spread(&self) -> Spread {
        Spread::Wide
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        let link = &stage.profile.link;
        let rtt = link.rtt().max(MIN_RTT);
        let [down, up] = [&link.forward, &link.return_]
            .map(|way| window_packets(way.rate().unwrap_or(MAX_RATE), rtt));
        let near = SocketAddr::new([127, 0, 0, 1].into(), NEAR_PORT);
        let hub = SocketAddr::new(GROUND.v4.into(), LINK_PORT);
        let relay = SocketAddr::new([127, 0, 0, 1].into(), PORT);
        let run = |host: &Host, program: &'static str, which: [(&str, SocketAddr); 2], windows| {
            let mut command = host.command(program);
            command.args(which.iter().flat_map(|(flag, at)| [flag.to_string(), at.to_string()]));
            tune(&mut command, windows);
            Process::start(command, &stage.folder.join(format!("{program}.log")))
                .map_err(|error| cannot_run(program, error))
        };
        let (air, ground) = (&stage.testbed.air, &stage.testbed.ground);
        let server = run(ground, SERVER, [("--listen", hub), ("--target", relay)], [down, up])?;
        let client = run(air, CLIENT, [("--localaddr", near), ("--remoteaddr", hub)], [up, down])?;
        let way = Way { to: near, at: relay, congestion: Congestion::Cubic, multipath: false };
        let relays = Relays::start(stage.testbed, way)?;
        let mut tunnel = Tunnel { client, server, _relays: relays };
        let began = Instant::now();
        while began.elapsed() < START_GRACE {
            tunnel.check()?;
            thread::sleep(START_GRACE / 10);
        }
        Ok(Box::new(tunnel))
    }
}

/// Sets the options that both ends share, and the send and receive windows of this end.
fn tune(command: &mut Command, [send, receive]: [u64; 2]) {
    command
        .args(["--mode", "fast3", "--nocomp", "--crypt", "aes-128", "--key", "the lab's own"])
        .args(["--datashard", "10", "--parityshard", "3", "--smuxver", "2", "--quiet"])
        .args(["--mtu", &MTU_BYTES.to_string()])
        .args(["--sndwnd", &send.to_string(), "--rcvwnd", &receive.to_string()]);
}

/// Capacity of the path in packets. Parity adds 0.3 of that and waits in the link's queue.
fn window_packets(rate: BitRate, rtt: Duration) -> u64 {
    rate.bytes_in(rtt).div_ceil(MTU_BYTES).max(MIN_WINDOW)
}

fn cannot_run(program: &'static str, error: io::Error) -> SystemError {
    match error.kind() {
        io::ErrorKind::NotFound => SystemError::Missing { program },
        _ => SystemError::Kernel { doing: "run kcptun", source: error },
    }
}

/// Both programs and both relays; they run until dropped.
struct Tunnel {
    client: Process,
    server: Process,
    _relays: Relays,
}

impl Running for Tunnel {
    fn check(&mut self) -> Result<(), SystemError> {
        for (program, process) in [(CLIENT, &mut self.client), (SERVER, &mut self.server)] {
            if process.ended().is_some() {
                return Err(SystemError::Ended { program, said: process.tail() });
            }
        }
        Ok(())
    }

    fn said(&self) -> String {
        let (client, server) = (self.client.tail(), self.server.tail());
        format!("\n{CLIENT}'s last lines:\n{client}\n{SERVER}'s:\n{server}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_the_path_holds() {
        let rtt = Duration::from_millis(540);
        assert_eq!(window_packets(BitRate::from_bps(10_000_000), rtt), 483);
        assert_eq!(window_packets(BitRate::from_bps(64_000), rtt), MIN_WINDOW);
    }
}
