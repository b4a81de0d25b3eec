//! A load between real kernels: the lab's servers at the address of each domain, certificates by
//! the lab's authority, and the page-load client or real Chromium in the cabin.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use time::OffsetDateTime;

use super::{Choice, Loaded};
use crate::browser::{self, Browser};
use crate::emu::{Host, SERVER, is_site};
use crate::experiment::stand::{Spec, Stand, Tunings};
use crate::loader::{self, Load, Protocol, Tickets};
use crate::result::Sample;
use crate::scratch::no_folder;
use crate::site::{Authority, ServerSettings, Site, SiteServer};
use crate::system::SystemUnderTest;

/// Pause between the visit that provides tickets and the measured one, in addition to two round
/// trips.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of the visit that provides tickets. No archive has this number.
const WARMING: u64 = 1 << 32;

/// System under test and client of a load.
pub struct By<'a> {
    /// System under test.
    pub system: &'static dyn SystemUnderTest,
    /// `true` for real Chromium, `false` for the page-load client.
    pub browser: bool,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// Existing empty folder for keys, configuration files and a browser's profile.
    pub folder: &'a Path,
}

/// Checks that the lab can serve `site` and load it.
pub fn check(site: &Site, protocol: Protocol, in_browser: bool) -> Result<(), String> {
    let is_ours = |ip| is_site(ip) || ip == SERVER.v4;
    if let Some(domain) = site.domains.iter().find(|domain| !is_ours(domain.address)) {
        return Err(format!(
            "the domain {} has the address {}, where no server of the lab is: give it one below 198.19.0.0/16",
            domain.name, domain.address
        ));
    }
    if in_browser {
        browser::flags(site, protocol, "").map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Loads the site once, in a new testbed with the losses of `seed`.
pub fn run(choice: &Choice<'_>, by: &By<'_>, seed: u64) -> anyhow::Result<Loaded> {
    let By { system, browser, program, folder } = *by;
    let hosts = &choice.site.hosts();
    let spec = Spec {
        system,
        profile: choice.profile,
        beside: &[],
        granted: choice.profile,
        seed,
        tunings: Tunings::default(),
        program,
        folder,
        hosts,
        settings: &toml::Table::new(),
    };
    let stand = Stand::start(&spec, || ())?;
    let (authority, congestion) = (Authority::new()?, system.ends());
    let settings = ServerSettings { congestion, ..ServerSettings::new(authority.clone()) };
    let server = SiteServer::start(&stand.testbed.server, choice.site, &settings)?;
    let client = &stand.testbed.client;
    let loaded = client.block_on(async || match browser {
        true => in_browser(choice, &authority, client, folder).await,
        false => lightly(choice, &authority, system).await,
    })??;
    drop(server);
    stand.finish()?;
    Ok(loaded)
}

async fn lightly(
    choice: &Choice<'_>,
    authority: &Authority,
    system: &dyn SystemUnderTest,
) -> anyhow::Result<Loaded> {
    let congestion = system.ends();
    let load = Load { congestion, ..Load::new(choice.site, choice.protocol, choice.deadline) };
    let mut tickets = Tickets::new(authority)?;
    if choice.protocol.resumes() {
        let warmed = loader::warm(&load, &mut tickets, WARMING).await;
        warmed.map_err(|why| anyhow!("{system}: the visit that brings tickets: {why}"))?;
        // The connections of the first visit close in this time.
        tokio::time::sleep(PAUSE + 2 * choice.profile.rtt()).await;
    }
    let begun = OffsetDateTime::now_utc();
    let visit = loader::load(&load, &mut tickets).await;
    Ok(Loaded::of(&visit, &load, begun))
}

async fn in_browser(
    choice: &Choice<'_>,
    authority: &Authority,
    client: &Host,
    folder: &Path,
) -> anyhow::Result<Loaded> {
    let (site, protocol) = (choice.site, choice.protocol);
    let flags = browser::flags(site, protocol, &authority.key_hash())?;
    let profile = tempfile::tempdir_in(folder).map_err(no_folder)?;
    let scheme = if protocol == Protocol::Http1 { "http" } else { "https" };
    let (url, shell) = (site.url(scheme, 0), client.command("sh"));
    let visit = Browser::view(shell, &flags, profile.path(), &url, choice.deadline).await;
    let visit = visit?;
    let ours = visit.requests_of(site, scheme);
    let late = || {
        let late = visit.loaded.is_none();
        late.then(|| format!("cut off after {} s", choice.deadline.as_secs()))
    };
    let failed = visit.fault(&ours).or_else(late);
    let took = visit.loaded.unwrap_or(choice.deadline).as_secs_f64();
    Ok(Loaded {
        plt: if failed.is_none() { Sample::Finished(took) } else { Sample::Cut(took) },
        bytes: ours.iter().map(|one| one.bytes).sum(),
        came: ours.iter().filter(|one| one.came()).count(),
        failed,
        har: visit.har(&site.name),
    })
}
