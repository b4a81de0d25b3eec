//! Both gateways, unmodified, on threads of this process, so that the counters of their links are
//! readable.

use std::fmt::{Display, Write as _};
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::transports::{self, link};
use bentpipe_gateway::{air, counters, ground};
use bentpipe_link::io::{Air, Hub, UdpSocket};
use bentpipe_link::{Class, ClassCounters, Counters, LeaseMode, Limits, PerClass, SnapshotLimits};
use bentpipe_net::Inherited;
use bentpipe_units::BitRate;

use super::order::port;
use crate::emu::{AIR_CABIN, GROUND, GROUND_INTERNET, Host, SERVER, Testbed};
use crate::emu::{Service, Serving};
use crate::profile::Profile;
use crate::system::pair::{PairSpec, PassedQuic, Rates};
use crate::traffic::{ClassLimits, DOWN, UP};

const SOCKS_PORT: u16 = 1080;
const LINK_PORT: u16 = 4500;

/// Maximum time until the session is up. The handshake is retried every 1.5 round trips.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Polling interval during the start.
const LOOK: Duration = Duration::from_millis(20);

/// Both gateways; they run until dropped.
pub struct Gateways {
    air: Air,
    hub: Hub,
    /// Counters of the air gateway.
    pub counted: Arc<counters::Counters>,
    _air: Service,
    _ground: Service,
}

/// Further settings for the gateways' configuration files.
#[derive(Debug, Clone, Default)]
pub struct More {
    /// Tables for `air.toml`.
    pub air: String,
    /// Tables for `ground.toml`.
    pub ground: String,
    /// Names that the ground resolves from this list.
    pub hosts: Vec<(String, IpAddr)>,
    /// Origin of the rates.
    pub rates: Rates,
    /// Rates at which the ground sends on paths besides the first. A path without one here learns
    /// its rate, as it does by the ground's file, which cannot name a path.
    pub ground_rates: Vec<BitRate>,
}

impl Gateways {
    /// Starts both gateways, with their files in `folder`. `quic` is the treatment of QUIC.
    pub fn start(
        testbed: &Testbed,
        profile: &Profile,
        limits: &ClassLimits,
        quic: PassedQuic,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::start_with(testbed, profile, limits, quic, More::default(), folder)
    }

    /// Like [`Self::start`], with `more` in the files.
    pub fn start_with(
        testbed: &Testbed,
        profile: &Profile,
        limits: &ClassLimits,
        quic: PassedQuic,
        more: More,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let peer = SocketAddr::new(GROUND.v4.into(), LINK_PORT);
        let spec = PairSpec {
            allow: vec![format!("{}/24", GROUND_INTERNET.v4)],
            intercepts: Some("cabin"),
            quic,
            hosts: more.hosts,
            rates: more.rates,
            classes: [
                classes(&limits[DOWN]) + &more.ground,
                classes(&limits[UP]) + &rules() + &more.air,
            ],
            ..PairSpec::new(profile, SocketAddr::new(AIR_CABIN.v4.into(), SOCKS_PORT), peer)
        };
        spec.write(folder)?;
        let config = GroundConfig::load(&folder.join("ground.toml")).map_err(failed("ground"))?;
        let rates = more.ground_rates;
        let begin = move || start_ground(&config, peer, &rates);
        let (_ground, hub) = start("ground", &testbed.ground, begin)?;
        let config = AirConfig::load(&folder.join("air.toml"), None).map_err(failed("air"))?;
        let (_air, (air, counted)) = start("air", &testbed.air, move || start_air(&config, peer))?;
        Ok(Self { air, hub, counted, _air, _ground })
    }

    /// Waits until the session is up.
    pub fn wait(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.air.counters().is_none() {
            if began.elapsed() > CONNECT_LIMIT {
                bail!("bentpipe: nothing came through within {} s", CONNECT_LIMIT.as_secs());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Counters of the senders of each direction; zero if there is no session.
    pub fn counters(&self) -> [Counters; 2] {
        let hub = self.hub.status().first().map(|(_, status)| status.counters);
        [hub.unwrap_or_default(), self.air.counters().unwrap_or_default()]
    }

    /// Rate at which the hub sends.
    pub fn hub_rate(&self) -> Option<BitRate> {
        let aircraft = self.hub.status().first()?.1.aircraft;
        self.hub.traffic(&aircraft, SnapshotLimits { passengers: 0, flows: 0 })?.sending.rate
    }

    /// IP bytes charged to a class so far, in each direction.
    pub fn class_bytes(&self, class: Class) -> [u64; 2] {
        let hub = self.hub.status().first().map(|(id, _)| *id);
        let hub = hub.and_then(|id| self.hub.class_counters(id, class));
        let paid = |counters: ClassCounters| counters.sent.bytes + counters.charged_bytes;
        [hub, self.air.class_counters(class)].map(|counters| counters.map_or(0, paid))
    }
}

/// Starts one gateway on a thread of `host`. Returns its end of the link once it serves.
fn start<T: Send + 'static>(
    which: &'static str,
    host: &Host,
    begin: impl FnOnce() -> Result<(T, Serving), String> + Send + 'static,
) -> anyhow::Result<(Service, T)> {
    Service::ready(host, begin).map_err(failed(which))
}

fn start_ground(
    config: &GroundConfig,
    listen: SocketAddr,
    rates: &[BitRate],
) -> Result<(Hub, Serving), String> {
    let ground = ground::Ground::new(config).map_err(text)?;
    let mut of_hub = link::hub_config(config).map_err(text)?;
    for aircraft in &mut of_hub.aircraft {
        for (path, rate) in aircraft.settings.paths.iter_mut().zip(rates) {
            (path.rate, path.lease) = (*rate, LeaseMode::Static);
        }
    }
    let hub = Hub::start(Box::new(socket(listen)?), of_hub);
    let arrivals = hub.clone();
    let serving = async move { ground.serve(vec![Arc::new(arrivals)], pending()).await };
    Ok((hub, Box::pin(serving)))
}

/// The air's end of the link, and the counters of its gateway.
type AirEnd = (Air, Arc<counters::Counters>);

fn start_air(config: &AirConfig, peer: SocketAddr) -> Result<(AirEnd, Serving), String> {
    let far = transports::call(&mut Inherited::default(), config, &[peer], 1).map_err(text)?;
    let gateway = air::Air::bind(config, &mut Inherited::default(), Arc::new(far.clone()));
    let gateway = gateway.map_err(text)?;
    let counted = gateway.counters();
    Ok(((far, counted), Box::pin(async move { gateway.serve(pending()).await })))
}

fn socket(address: SocketAddr) -> Result<UdpSocket, String> {
    std::net::UdpSocket::bind(address).and_then(UdpSocket::from_std).map_err(text)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn failed<E: Display>(which: &'static str) -> impl Fn(E) -> anyhow::Error {
    move |error| anyhow!("the {which} gateway: {error}")
}

/// Class limits in the format of the configuration file.
fn classes(limits: &PerClass<Limits>) -> String {
    let mut text = String::new();
    for (class, Limits { rate, ceil }) in limits.iter() {
        if rate.is_none() && ceil.is_none() {
            continue;
        }
        writeln!(text, "\n[classes.{class}]").expect("a string takes all");
        for (name, rate) in [("rate", rate), ("ceil", ceil)] {
            if let Some(rate) = rate {
                writeln!(text, "{name} = \"{} bit/s\"", rate.bps()).expect("a string takes all");
            }
        }
    }
    text
}

/// Rules that map each port of the server to a class.
fn rules() -> String {
    let network = Ipv4Addr::from_bits(SERVER.v4.to_bits() & !0xff);
    let rule = |class: Class| {
        let port = port(class);
        format!("\n[[rule]]\nprefix = \"{network}/24\"\nport = {port}\nclass = \"{class}\"\n")
    };
    Class::ALL.map(rule).concat()
}
