//! The two engines behind one seam.

use std::path::Path;

use bentpipe_link::{ClassSettings, Limits, PerClass, Settings};

use super::emu::EmuTraffic;
use super::{DOWN, Traffic, UP};
use crate::experiment::ExperimentError;
use crate::profile::Profile;
use crate::sim::parallel;
use crate::sim::traffic::SimTraffic;
use crate::sim::transfer::NoSession;

/// Rate that all emulated links together carry at once, if everybody's packets are to be on time …
const CARRIED_BPS: u64 = 10_000_000;
/// … in no more worlds than this: each has two gateways, and as many threads that go first.
const WORLDS_AT_ONCE: u64 = 2;

/// Limits of each class: for the ground's sending, and for the air's.
pub type ClassLimits = [PerClass<Limits>; 2];

/// Engine that carries traffic.
#[derive(Debug, Clone, Copy)]
pub enum Engine<'a> {
    /// The transport alone, in virtual time.
    Sim,
    /// Gateways between real kernels, in real time.
    Emu(Emulator<'a>),
}

/// Folder in which the emulator stores its keys and configurations.
#[derive(Debug, Clone, Copy)]
pub struct Emulator<'a> {
    /// Exists; each run makes a folder of its own in it.
    pub folder: &'a Path,
}

/// Reason for which there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// In virtual time.
    #[error(transparent)]
    NoSession(#[from] NoSession),
    /// In the emulator.
    #[error(transparent)]
    Emulated(#[from] ExperimentError),
}

impl Engine<'_> {
    /// As rows have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Emu(_) => "emu",
        }
    }

    /// Lets `run` have traffic over `profile`'s radio link, once a session is up. What it returns
    /// counts only if everything was in order until its end.
    pub fn carry<T>(
        &self,
        profile: &Profile,
        limits: &ClassLimits,
        seed: u64,
        run: impl FnOnce(&mut dyn Traffic) -> T,
    ) -> Result<T, EngineError> {
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

    /// Results of `run` for `jobs` over `profile`, in their order: as many at once as there are
    /// processors, or as are punctual together.
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
                let worlds = (CARRIED_BPS / rate).clamp(1, WORLDS_AT_ONCE);
                parallel::map_on(worlds as usize, jobs, run)
            }
        }
    }
}
