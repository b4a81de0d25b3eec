//! Both ends of the radio transport over a link in virtual time, configured by the gateways' files.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::transport::{Connector, Reach};
use bentpipe_gateway::transports::link;
use bentpipe_link::io::{Air, Hub, PathSockets, Socket};
use bentpipe_link::{HubConfig, LeaseMode, SecretKey};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::profile::Profile;
use crate::sim::net::Net;
use crate::traffic::emu::FurtherRates;

/// Maximum time until the link is up.
const PATIENCE: Duration = Duration::from_secs(60);

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Address of the aircraft on the radio at this index.
fn aircraft(radio: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 2 + radio as u8).into()
}

/// Both ends; they run until dropped.
pub struct VirtualLink {
    /// Configuration of the air gateway.
    pub air: AirConfig,
    /// Configuration of the ground gateway.
    pub ground: GroundConfig,
    /// The ground's end of the link.
    pub hub: Hub,
    /// The air's end of the link.
    pub far: Arc<Air>,
    _net: Net,
    _folder: TempDir,
}

impl VirtualLink {
    /// Starts both ends over `profile`'s link. `more` is added to the file of the air gateway and,
    /// for its aircraft, to that of the ground gateway.
    pub fn start(profile: &Profile, seed: u64, more: [&str; 2]) -> anyhow::Result<Self> {
        Self::over(std::slice::from_ref(profile), FurtherRates::Typed, seed, more)
    }

    /// The same over several links, which one session uses at once.
    pub fn over(
        links: &[Profile],
        rates: FurtherRates,
        seed: u64,
        more: [&str; 2],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let of_air = more[0].to_owned() + &radios(links)?;
        let (air, ground) = configs(&links[0], &folder, &mut rng, [&of_air, more[1]])?;
        let net = Net::new(rng.random());
        let hub_node = net.node(GROUND)?;
        let mut sockets: Vec<Arc<dyn Socket>> = Vec::new();
        for (radio, profile) in links.iter().enumerate() {
            let node = net.node(aircraft(radio))?;
            net.join(&hub_node, &node, &profile.link);
            sockets.push(Arc::new(node.bind(0)?));
        }
        let hub_socket = hub_node.bind(4500)?;
        let settings = link::air_config(&air, hub_socket.local_addr(), 1)?;
        let mut hub_settings = link::hub_config(&ground)?;
        if rates == FurtherRates::Typed {
            type_rates(&mut hub_settings, links);
        }
        let hub = Hub::start_seeded(Box::new(hub_socket), hub_settings, rng.random());
        let socket = Box::new(PathSockets::new(sockets));
        let far = Air::start_seeded(socket, settings, rng.random());
        Ok(Self { air, ground, hub, far: Arc::new(far), _net: net, _folder: folder })
    }

    /// Waits until the link is up.
    pub async fn up(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while Connector::reach(&*self.far) != Reach::Up {
            if began.elapsed() > PATIENCE {
                bail!("the link does not come up");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// Tables of the air's file for all radios, if there are several.
fn radios(links: &[Profile]) -> anyhow::Result<String> {
    let table = |(radio, link): (usize, &Profile)| {
        let rate = link.link.return_.rate().context("the link has no rate")?;
        let (name, address) = (&link.name, aircraft(radio));
        Ok(format!(
            "[[path]]\nname = \"{name}\"\nlocal-address = \"{address}\"\nrate = \"{rate}\"\n"
        ))
    };
    match links {
        [_] => Ok(String::new()),
        links => links.iter().enumerate().map(table).collect(),
    }
}

/// Sets the rates at which the ground sends on all links but the first.
fn type_rates(hub: &mut HubConfig, links: &[Profile]) {
    for aircraft in &mut hub.aircraft {
        for (path, link) in aircraft.settings.paths.iter_mut().zip(&links[1..]) {
            if let Some(rate) = link.link.forward.rate() {
                (path.rate, path.lease) = (rate, LeaseMode::Static);
            }
        }
    }
}

/// Runs `work` on a virtual clock, which jumps to the next timer. A gateway's listeners are real
/// sockets on which nothing arrives.
pub fn virtually<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build()?.block_on(work)
}

fn configs(
    profile: &Profile,
    folder: &TempDir,
    rng: &mut ChaCha20Rng,
    [more_air, more_ground]: [&str; 2],
) -> anyhow::Result<(AirConfig, GroundConfig)> {
    let folder = folder.path();
    let (air, ground) = (SecretKey::generate(rng), SecretKey::generate(rng));
    std::fs::write(folder.join("air.key"), air.to_base64())?;
    std::fs::write(folder.join("ground.key"), ground.to_base64())?;
    let link = &profile.link;
    let rates = link.return_.rate().zip(link.forward.rate());
    let (up, down) = rates.context("the link has no rate")?;
    let air_text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{GROUND}:4500\"\n\
         peer-public-key = \"{}\"\nrate = \"{up}\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n{more_air}",
        ground.public()
    );
    let ground_text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{GROUND}:4500\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{}\"\nrate = \"{down}\"\n{more_ground}",
        air.public()
    );
    let air = AirConfig::parse(&folder.join("air.toml"), &air_text)?;
    Ok((air, GroundConfig::parse(&folder.join("ground.toml"), &ground_text)?))
}
