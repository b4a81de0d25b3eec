//! Both ends of the radio transport over a link in virtual time, configured by the gateways' files.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::transport::{Connector, Reach};
use bentpipe_gateway::transports::link;
use bentpipe_link::SecretKey;
use bentpipe_link::io::{Air, Hub};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::profile::Profile;
use crate::sim::net::Net;

/// Maximum time until the link is up.
const PATIENCE: Duration = Duration::from_secs(60);

const GROUND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const AIRCRAFT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

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
        let folder = tempfile::tempdir()?;
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (air, ground) = configs(profile, &folder, &mut rng, more)?;
        let net = Net::new(rng.random());
        let (hub_node, air_node) = (net.node(GROUND)?, net.node(AIRCRAFT)?);
        net.join(&hub_node, &air_node, &profile.link);
        let hub_socket = hub_node.bind(4500)?;
        let settings = link::air_config(&air, hub_socket.local_addr(), 1)?;
        let hub_settings = link::hub_config(&ground)?;
        let hub = Hub::start_seeded(Box::new(hub_socket), hub_settings, rng.random());
        let far = Air::start_seeded(Box::new(air_node.bind(0)?), settings, rng.random());
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
