//! The two engines behind one interface.

use std::path::{Path, PathBuf};

use bentpipe_link::{ClassSettings, PerClass, Settings};

use crate::profile::Profile;
use crate::sim::parallel;
use crate::sim::traffic::SimTraffic;
use crate::traffic::emu::EmuTraffic;
use crate::traffic::{ClassLimits, DOWN, Traffic, UP};

/// Maximum total rate of all emulated links, if packets are to be on time.
const CARRIED_BPS: u64 = 10_000_000;
/// Maximum concurrent testbeds. Each has two gateways, and as many threads with high priority.
const TESTBEDS_AT_ONCE: u64 = 2;

/// Engine that carries traffic.
#[derive(Debug, Clone, Copy)]
pub enum Engine<'a> {
    /// The transport alone, in virtual time.
    Sim,
    /// Gateways between real kernels, in real time.
    Emu(Emulator<'a>),
}

/// Kind of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Virtual time.
    Sim,
    /// Real kernels.
    Emu,
}

/// Files of emulated runs.
#[derive(Debug, Clone, Copy)]
pub struct Emulator<'a> {
    /// Existing folder for keys and configurations, in which each run makes its own folder.
    pub folder: &'a Path,
    /// Finds the `bentpipe` program. Not all experiments need it.
    pub program: fn() -> anyhow::Result<PathBuf>,
}

impl Kind {
    /// Name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu => "emu",
        }
    }
}

impl Engine<'_> {
    /// Name in rows.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sim => Kind::Sim.name(),
            Self::Emu(_) => Kind::Emu.name(),
        }
    }

    /// The emulator.
    ///
    /// # Errors
    ///
    /// Returns an error in virtual time.
    pub fn emulator(&self) -> anyhow::Result<&Emulator<'_>> {
        match self {
            Self::Sim => anyhow::bail!("this needs real kernels: add --engine emu"),
            Self::Emu(emulator) => Ok(emulator),
        }
    }

    /// Gives `run` traffic over `profile`'s radio link, once a session is up. Returns the result
    /// only if no fault occurred until its end.
    pub fn carry<T>(
        &self,
        profile: &Profile,
        limits: &ClassLimits,
        seed: u64,
        run: impl FnOnce(&mut dyn Traffic) -> T,
    ) -> anyhow::Result<T> {
        match self {
            Self::Sim => {
                let settings = |way: usize| Settings {
                    classes: PerClass::new(|class| ClassSettings {
                        limits: limits[way][class],
                        ..ClassSettings::default()
                    }),
                    ..Settings::default()
                };
                let (air, hub) = (settings(UP), settings(DOWN));
                Ok(run(&mut SimTraffic::new(profile, &air, &hub, seed)?))
            }
            Self::Emu(emulator) => {
                let mut traffic = EmuTraffic::start(profile, limits, seed, emulator.folder)?;
                let found = run(&mut traffic);
                traffic.finish()?;
                Ok(found)
            }
        }
    }

    /// Results of `run` for `jobs` over `profile`, in the order of `jobs`. As many jobs run
    /// concurrently as there are processors, or as can be punctual together.
    pub fn map<T: Sync, R: Send>(
        &self,
        profile: &Profile,
        jobs: &[T],
        run: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        match self {
            Self::Sim => parallel::map(jobs, run),
            Self::Emu(_) => {
                let rate = profile.link.forward.rate().map_or(u64::MAX, |rate| rate.bps().max(1));
                let testbeds = (CARRIED_BPS / rate).clamp(1, TESTBEDS_AT_ONCE);
                parallel::map_on(testbeds as usize, jobs, run)
            }
        }
    }
}
