//! Session of a cell, and its start in either engine.

use std::path::Path;
use std::time::Duration;

use bentpipe_link::Settings;
use bentpipe_units::ByteSize;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::emulated::EmulatedScene;
use super::stage::Stage;
use super::traffic::Other;
use super::{CAP, Cell, Lease};
use crate::emu::Congestion;
use crate::experiment::engine::Engine;
use crate::sim::rival::bulk::{Bulk, Controller};
use crate::sim::rival::{Call, End, Rival, Session};
use crate::sim::scene::Scene;
use crate::system::pair::Rates;

/// Session of a cell before its traffic.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Origin of the rate.
    pub lease: Lease,
    /// `false` if the session sends no padding to learn its rate.
    pub padded: bool,
    /// Other senders, and the beginning of each.
    pub others: &'a [(Other, Duration)],
    /// End of the run.
    pub end: Duration,
    /// Seed of the run.
    pub seed: u64,
}

impl Plan<'_> {
    /// Brings the session up.
    pub fn start(&self, engine: &Engine<'_>) -> Result<Box<dyn Stage>, String> {
        match engine {
            Engine::Sim => self.simulate(),
            Engine::Emu(emulator) => self.emulate(emulator.folder),
        }
    }

    /// Settings of the air and the hub.
    pub fn settings(&self) -> Result<(Settings, Settings), String> {
        let link = &self.cell.link.link;
        let of = |rate| {
            let settings = self.lease.settings(rate).map_err(|error| error.to_string())?;
            let learn_bytes =
                if self.padded { settings.learn_bytes } else { ByteSize::from_bytes(0) };
            Ok::<_, String>(Settings { learn_bytes, ..settings })
        };
        Ok((of(link.return_.rate())?, of(self.cell.first_rate.or(link.forward.rate()))?))
    }

    fn simulate(&self) -> Result<Box<dyn Stage>, String> {
        let (air, hub) = self.settings()?;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let rivals = self.others.iter().map(|(other, from)| -> Result<Box<dyn Rival>, String> {
            let seed = random.random();
            let bulk = |controller| Bulk::new(controller, *from, seed).map_err(|it| it.to_string());
            Ok(match other {
                Other::Cubic => Box::new(bulk(Controller::Cubic)?),
                Other::Bbr => Box::new(bulk(Controller::Bbr)?),
                Other::Session => Box::new(Session::new(&air, &hub, *from, seed)),
                Other::Call => Box::new(Call::new(End::Hub, *from, self.end)),
            })
        });
        let rivals = rivals.collect::<Result<Vec<_>, String>>()?;
        let scene = Scene::new(&self.cell.link, &air, &hub, rivals, self.seed);
        Ok(Box::new(scene.map_err(|error| error.to_string())?))
    }

    fn emulate(&self, folder: &Path) -> Result<Box<dyn Stage>, String> {
        let rates = match self.lease {
            Lease::None => Rates::Congestion(CAP),
            Lease::Static => Rates::Typed,
            Lease::Learned if self.padded => Rates::Learned,
            Lease::Learned => Rates::LearnedUnpadded,
        };
        let others = self.others.iter().map(|(other, from)| match other {
            Other::Cubic => Ok((Congestion::Cubic, *from)),
            Other::Bbr => Ok((Congestion::Bbr, *from)),
            Other::Session | Other::Call => Err(format!("{other:?} has no emulated engine")),
        });
        let others = others.collect::<Result<Vec<_>, String>>()?;
        let scene = EmulatedScene::start(&self.cell.link, rates, others, self.seed, folder);
        Ok(Box::new(scene.map_err(|error| format!("{error:#}"))?))
    }
}
