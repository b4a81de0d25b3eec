//! Passengers' traffic through the gateways, between real kernels.
//!
//! Both gateways run in this process, each on a thread inside its host, so that the lab can read what
//! the link counts for each class; whatever they say to others goes through the kernels of
//! [`crate::emu::World`]. Passengers are addresses of the client's host, intercepted by TPROXY; a flow's
//! class is its destination's port, by rules of the air gateway's config. Clients and servers share a
//! clock, and run at real-time priority: how late they are woken is not the link's doing.
//!
//! What differs from `sim`: waits have in them what kernels and gateways take, and what this machine
//! does meanwhile. A world is measured before it is used, and a run in which the emulator lost a
//! packet counts for nothing.

mod client;
mod fault;
pub(crate) mod gateways;
mod log;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::Class;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Carry, ClassLimits, Counted, Course, Talk, Traffic, Transit};
use crate::contender::pair::PassedQuic;
use crate::emu::World;
use crate::experiment::ExperimentError;
use crate::profile::Profile;
use crate::workload::service::Service;
use fault::Fault;
use gateways::Gateways;
use log::Log;

/// The port of what is in a class.
fn port(class: Class) -> u16 {
    7000 + u16::from(class.to_u8())
}

/// Next action of the client's host.
enum Order {
    Carry(usize, Carry),
    Talk(usize, Talk),
}

/// Everything at work, until it is dropped.
pub struct EmuTraffic {
    log: Arc<Log>,
    /// Part of the log that has been seen.
    seen: u64,
    // Fields drop in order: clients and servers, the gateways, their links. The experiment itself
    // bounds how many orders there are.
    orders: UnboundedSender<Order>,
    _client: Service,
    _server: Service,
    gateways: Gateways,
    world: World,
}

impl EmuTraffic {
    /// Brings up the radio link of `profile`, sees that it is as declared, and starts gateways with
    /// `limits`, their files in a folder below `folder`.
    pub fn start(
        profile: &Profile,
        limits: &ClassLimits,
        seed: u64,
        folder: &Path,
    ) -> Result<Self, ExperimentError> {
        let world = World::new(&profile.link, None, seed)?;
        world.measure()?;
        Self::on(world, profile, limits, folder)
    }

    /// The same in a world that has been measured.
    pub fn on(
        world: World,
        profile: &Profile,
        limits: &ClassLimits,
        folder: &Path,
    ) -> Result<Self, ExperimentError> {
        let folder = tempfile::tempdir_in(folder).map_err(ExperimentError::Folder)?;
        let gateways =
            Gateways::start(&world, profile, limits, PassedQuic::default(), folder.path())?;
        let log = Arc::new(Log::new());
        let _server = server::start(&world.server, log.clone())?;
        let (orders, ordered) = unbounded_channel();
        let _client = client::start(&world.client, log.clone(), ordered)?;
        gateways.wait()?;
        Ok(Self { log, seen: 0, orders, _client, _server, gateways, world })
    }

    /// World of the traffic.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Checks that everything was in order until now.
    pub fn finish(&self) -> Result<(), ExperimentError> {
        if let Some(fault) = self.log.fault() {
            return Err(fault.into());
        }
        match self.world.radio_counters()?.unmodelled() {
            0 => Ok(()),
            lost => Err(ExperimentError::Unmodelled(lost)),
        }
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_err() {
            self.log.failed(Fault::lab("the clients", "have ended"));
        }
    }
}

impl Traffic for EmuTraffic {
    fn now(&self) -> Duration {
        self.log.now()
    }

    fn open(&mut self, carry: Carry) -> usize {
        let number = self.log.opened(&carry);
        self.order(Order::Carry(number, carry));
        number
    }

    fn course(&self, stream: usize) -> Course {
        self.log.course(stream)
    }

    fn talk(&mut self, talk: Talk) -> usize {
        let number = self.log.talks(&talk);
        self.order(Order::Talk(number, talk));
        number
    }

    fn has_begun(&self, talk: usize) -> bool {
        self.log.began(talk).is_some()
    }

    fn transits(&self, talk: usize, way: usize) -> Vec<Transit> {
        self.log.transits(talk, way)
    }

    fn step(&mut self, end: Duration) {
        self.seen = self.log.wait(self.seen, end);
    }

    fn counted(&mut self) -> Counted {
        let link = match self.world.radio_counters() {
            Ok(counters) => [counters.forward.model, counters.return_.model],
            Err(error) => {
                self.log.failed(Fault::lab("the link's counters", error));
                Default::default()
            }
        };
        Counted { at: self.now(), sent: self.gateways.counters(), link }
    }

    fn class_bytes(&mut self, class: Class) -> [u64; 2] {
        self.gateways.class_bytes(class)
    }
}
