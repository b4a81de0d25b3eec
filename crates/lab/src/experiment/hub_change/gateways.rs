//! Real gateways of a script, each under a service manager.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::script::Event;
use crate::emu::{Host, Manager, Testbed, hand_over};
use crate::system::process::Process;

/// Maximum time for the orderly end of a gateway.
const MAX_STOP: Duration = Duration::from_secs(10);
/// Interval at which it is polled.
const STOP_INTERVAL: Duration = Duration::from_millis(2);

/// Gateways of a script. Those that were killed do not run.
pub struct Gateways<'a> {
    testbed: &'a Testbed,
    airs: Vec<Gateway<'a>>,
    hubs: [Gateway<'a>; 2],
    egresses: [Gateway<'a>; 2],
}

impl<'a> Gateways<'a> {
    /// Starts all gateways with the files in `folder`. `proxies` are the air gateways' SOCKS5
    /// addresses, at which the service manager listens.
    pub fn start(
        program: &'a Path,
        folder: &Path,
        testbed: &'a Testbed,
        proxies: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let start = |host, role, name: String, listener| {
            let manager = Manager::new(&folder.join(format!("{name}.notify")))?;
            let folder = folder.into();
            let mut gateway =
                Gateway { program, folder, host, role, name, manager, listener, process: None };
            gateway.start(None)?;
            anyhow::Ok(gateway)
        };
        let egress = |which| start(&testbed.server, "ground", format!("egress-{which}"), None);
        let hub = |which| start(&testbed.ground, "ground", format!("hub-{which}"), None);
        let air = |(number, proxy): (usize, &SocketAddr)| {
            let listener = testbed.air.tcp_listener(*proxy)?;
            start(&testbed.air, "air", format!("air-{number}"), Some(listener))
        };
        let (egresses, hubs) = ([egress(0)?, egress(1)?], [hub(0)?, hub(1)?]);
        let airs = proxies.iter().enumerate().map(air).collect::<Result<_, _>>()?;
        Ok(Self { testbed, airs, hubs, egresses })
    }

    /// Makes an event happen.
    pub fn happen(&mut self, event: Event) -> anyhow::Result<()> {
        let [hub, second] = &mut self.hubs;
        match event {
            Event::HubLeaves => hub.signal(Signal::SIGTERM)?,
            // Dropping a program kills it.
            Event::HubDies => hub.process = None,
            Event::EgressDies => self.egresses[0].process = None,
            Event::EgressComes => self.egresses[0].start(None)?,
            Event::HubRestarts => restart(std::slice::from_mut(hub))?,
            Event::AirRestarts => restart(&mut self.airs)?,
            // All hubs are behind one radio, so those out of reach do not run.
            Event::SecondHubOut => second.process = None,
            Event::RadioOut => {
                self.testbed.cut(0, true);
                (hub.process, second.process) = (None, None);
                second.start(None)?;
            }
            Event::RadioElsewhere => {
                self.testbed.move_air()?;
                self.testbed.cut(0, false);
            }
        }
        Ok(())
    }
}

/// Restarts gateways at the same time, in an orderly way.
fn restart(gateways: &mut [Gateway<'_>]) -> anyhow::Result<()> {
    gateways.iter().try_for_each(|gateway| gateway.signal(Signal::SIGTERM))?;
    gateways.iter_mut().try_for_each(Gateway::start_again)
}

/// A gateway, and what its service manager keeps.
struct Gateway<'a> {
    program: &'a Path,
    folder: PathBuf,
    host: &'a Host,
    role: &'static str,
    name: String,
    manager: Manager,
    /// Socket on which clients wait while the gateway does not run.
    listener: Option<TcpListener>,
    process: Option<Process>,
}

impl Gateway<'_> {
    /// Starts the program, with the descriptor that the previous one has stored.
    fn start(&mut self, stored: Option<OwnedFd>) -> anyhow::Result<()> {
        let mut command = self.host.command(&self.program.to_string_lossy());
        command.arg(self.role).arg("--config").arg(self.folder.join(format!("{}.toml", self.name)));
        self.manager.manage(&mut command);
        let mut inherited = Vec::new();
        if let Some(listener) = &self.listener {
            inherited.push(("socks5", listener.try_clone()?.into()));
        }
        inherited.extend(stored.map(|stored| ("handover", stored)));
        if !inherited.is_empty() {
            hand_over(&mut command, inherited)?;
        }
        let log = self.folder.join(format!("{}.log", self.name));
        self.process = Some(Process::start(command, &log)?);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process =
            self.process.as_ref().with_context(|| format!("{} does not run", self.name))?;
        Ok(kill(Pid::from_raw(process.id() as i32), signal)?)
    }

    /// Starts the program again once it has ended.
    fn start_again(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while self.process.as_mut().is_some_and(|process| process.ended().is_none()) {
            if since.elapsed() > MAX_STOP {
                bail!("{} does not end", self.name);
            }
            thread::sleep(STOP_INTERVAL);
        }
        let stored = self.manager.take()?;
        self.start(stored)
    }
}
