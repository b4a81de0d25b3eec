//! A testbed with a measured link and a running system under test: the basis of emulated runs.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::contender::{Contender, Running, Stage};
use crate::emu::{Lateness, Tuning, World};
use crate::profile::Profile;
use crate::workload::client::first_byte;
use crate::workload::origin::Origin;
use anyhow::{anyhow, bail};

/// Maximum time until the first byte arrives through a system under test. The gateways' handshake
/// is retried every 1.5 round trips, and up to 40 % of all packets may be lost.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Description of a stand.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// System under test.
    pub contender: &'static dyn Contender,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Seed of the link's losses.
    pub seed: u64,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Existing empty folder for keys and configuration files.
    pub folder: &'a Path,
    /// Names of the server's addresses.
    pub hosts: &'a [(String, IpAddr)],
}

/// A running stand. Its tunnel is up, so that runs compare tunnels and not their handshakes.
pub struct Stand {
    name: &'static str,
    // Fields drop in order: the system under test before its hosts.
    running: Box<dyn Running>,
    _origin: Origin,
    /// The hosts and the link between them.
    pub world: World,
}

impl Stand {
    /// Brings up the testbed, calls `measured` once its link is as declared, and starts the system
    /// under test.
    pub fn start(spec: &Spec<'_>, measured: impl FnOnce()) -> anyhow::Result<Self> {
        let Spec { contender, profile, seed, program, folder, hosts } = *spec;
        let world = World::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
        world.measure()?;
        measured();
        let (congestion, receive_window_bytes) =
            (Some(contender.ends()), contender.receive_window());
        let tuning = Tuning { congestion, receive_window_bytes, ..Tuning::default() };
        world.tune_client(&tuning)?;
        world.tune_server(&tuning)?;
        let _origin = Origin::start(&world.server)?;
        let settings = toml::Table::new();
        let stage = Stage { world: &world, profile, folder, program, hosts, settings: &settings };
        let name = contender.name();
        let failed = |error| anyhow!("{name}: {error}");
        let mut running = contender.start(&stage).map_err(failed)?;
        if let Err(why) = world.client.block_on(async || first_byte(SILENCE).await)? {
            running.check().map_err(failed)?;
            let (seconds, said) = (SILENCE.as_secs(), running.said());
            bail!("{name}: nothing came through within {seconds} s ({why}){said}");
        }
        Ok(Self { name, running, _origin, world })
    }

    /// Checks that the system under test still runs and that the link followed its model. Returns
    /// the lateness of its packets.
    pub fn finish(mut self) -> anyhow::Result<Lateness> {
        self.running.check().map_err(|error| anyhow!("{}: {error}", self.name))?;
        Ok(Lateness::of([&self.world.sound_counters()?]))
    }
}
