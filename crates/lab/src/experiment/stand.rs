//! A testbed with a measured link and a running system under test: the basis of emulated runs.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::emu::{EmuError, Lateness, MeasureError, Measured, Testbed, Tuning};
use crate::profile::Profile;
use crate::system::{Running, Stage, SystemError, SystemUnderTest};
use crate::workload::client::first_byte;
use crate::workload::origin::Origin;

/// Maximum time until the first byte arrives through a system under test. The gateways' handshake
/// is retried every 1.5 round trips, and up to 40 % of all packets may be lost.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Maximum number of testbeds whose links are measured in parallel, because each measurement sends
/// bursts and needs exact timing.
pub const MEASURED_AT_ONCE: u64 = 8;

/// Description of a stand.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    /// System under test.
    pub system: &'static dyn SystemUnderTest,
    /// Profile of the link.
    pub profile: &'a Profile,
    /// Profiles of further links, which a session uses together with that one.
    pub beside: &'a [Profile],
    /// Profile from which a system that sends at a granted rate takes its rates.
    pub granted: &'a Profile,
    /// Seed of the link's losses.
    pub seed: u64,
    /// TCP settings of the hosts.
    pub tunings: Tunings,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Existing empty folder for keys and configuration files.
    pub folder: &'a Path,
    /// Names of the server's addresses.
    pub hosts: &'a [(String, IpAddr)],
    /// The experiment's settings for systems under test.
    pub settings: &'a toml::Table,
}

/// TCP settings of the hosts of a stand, within the limits of the system under test.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tunings {
    /// Settings of the client.
    pub client: Tuning,
    /// Settings of the server.
    pub server: Tuning,
    /// Settings of relays, if TCP crosses the link between them.
    pub relays: Tuning,
}

/// Reason why a stand could not be set up, or is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum StandError {
    /// The emulator reported an error.
    #[error(transparent)]
    Emulator(#[from] EmuError),
    /// The link does not match its specification.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The system under test could not be set up, or has ended.
    #[error("{name}: {source}{said}")]
    SystemUnderTest {
        /// Name of the system.
        name: &'static str,
        /// Cause.
        source: SystemError,
        /// Its last message.
        said: String,
    },
    /// No data passes the system under test.
    #[error("{name}: nothing came through within {} s ({why}){said}", SILENCE.as_secs())]
    Silent {
        /// Name of the system.
        name: &'static str,
        /// Last observation.
        why: String,
        /// Its last message.
        said: String,
    },
}

/// A running stand.
pub struct Stand {
    /// Name of the system under test.
    pub name: &'static str,
    // Fields drop in order: the system under test before its hosts.
    /// The system under test.
    pub running: Box<dyn Running>,
    /// Server of transfers.
    pub origin: Origin,
    /// The hosts and the link between them.
    pub testbed: Testbed,
    /// Measured properties of the links.
    pub measured: Measured,
}

impl Stand {
    /// Sets a stand up and waits until its tunnel is up, so that runs compare tunnels and not their
    /// handshakes. Calls `measured` once the link is as declared.
    pub fn start(spec: &Spec<'_>, measured: impl FnOnce()) -> Result<Self, StandError> {
        let mut stand = Self::set_up(spec, measured)?;
        stand.warm_up()?;
        Ok(stand)
    }

    /// Brings up the testbed, calls `measured` once its link is as declared, and starts the system
    /// under test.
    pub fn set_up(spec: &Spec<'_>, measured: impl FnOnce()) -> Result<Self, StandError> {
        let Spec { system, seed, program, folder, hosts, settings, .. } = *spec;
        let testbed = if spec.beside.is_empty() {
            Testbed::new(&spec.profile.link, spec.profile.terrestrial.as_ref(), seed)?
        } else {
            let links = [spec.profile].into_iter().chain(spec.beside);
            Testbed::bundle(&links.map(|profile| &profile.link).collect::<Vec<_>>(), seed)?
        };
        let found = testbed.measure()?;
        measured();
        tune(&testbed, system, &spec.tunings)?;
        let origin = Origin::start(&testbed.server)?;
        let profile = if system.is_granted() { spec.granted } else { spec.profile };
        let beside = spec.beside;
        let stage = Stage { testbed: &testbed, profile, beside, folder, program, hosts, settings };
        let name = system.name();
        let failed = |source| StandError::SystemUnderTest { name, source, said: String::new() };
        let running = system.start(&stage).map_err(failed)?;
        Ok(Self { name, running, origin, testbed, measured: found })
    }

    /// Waits until data passes the system under test.
    pub fn warm_up(&mut self) -> Result<(), StandError> {
        let first = self.testbed.client.block_on(async || first_byte(SILENCE).await)?;
        self.check()?;
        first.map_err(|why| {
            let (why, said) = (why.to_string(), self.running.said());
            StandError::Silent { name: self.name, why, said }
        })
    }

    /// Checks that the system under test still runs.
    pub fn check(&mut self) -> Result<(), StandError> {
        let checked = self.running.check();
        let said = || self.running.said();
        checked.map_err(|source| StandError::SystemUnderTest {
            name: self.name,
            source,
            said: said(),
        })
    }

    /// Checks that the system under test still runs and that the link followed its model. Returns
    /// the lateness of its packets.
    pub fn finish(mut self) -> Result<Lateness, StandError> {
        self.check()?;
        Ok(Lateness::of([&self.testbed.sound_counters()?]))
    }
}

/// Applies TCP settings to both ends, and to relays if TCP crosses the link between them.
fn tune(
    testbed: &Testbed,
    system: &dyn SystemUnderTest,
    Tunings { client, server, relays }: &Tunings,
) -> Result<(), EmuError> {
    let of = |tuning: &Tuning| {
        let windows = [tuning.receive_window_bytes, system.receive_window()];
        let receive_window_bytes = windows.into_iter().flatten().min();
        let congestion = tuning.congestion.or(Some(system.ends()));
        Tuning { congestion, receive_window_bytes, ..*tuning }
    };
    testbed.tune_client(&of(client))?;
    testbed.tune_server(&of(server))?;
    if system.has_tcp_on_link() {
        testbed.tune_link(relays)?;
    }
    Ok(())
}
