//! A load between real kernels: the lab's servers at the address of each domain, certificates by the
//! lab's authority, and the light loader or real Chromium in the cabin.

use std::path::Path;
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use tokio::runtime;
use tokio::time::timeout;

use super::{Choice, Loaded};
use crate::browser::{self, Browser, Request};
use crate::contender::{Contender, Running, Stage};
use crate::emu::{EmuError, SERVER, Tuning, World, is_site};
use crate::experiment::ExperimentError;
use crate::loader::{self, Load, Protocol, Tickets};
use crate::result::Sample;
use crate::site::{Authority, ServerSettings, Site, SiteServer};
use crate::workload::fetch::{Client, Route};
use crate::workload::origin::Origin;

/// Time within which the first byte must come through a contender.
const SILENCE: Duration = Duration::from_secs(60);
/// An attempt to get it.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Between two attempts, and between a visit that brings tickets and the measured one.
const PAUSE: Duration = Duration::from_millis(200);
/// The number of the visit that brings tickets: another than any archive's.
const WARMING: u64 = 1 << 32;

/// Client, protocol and contender of a load.
pub struct By<'a> {
    /// System under test.
    pub contender: &'static dyn Contender,
    /// In real Chromium, else by the light loader.
    pub browser: bool,
    /// The `bentpipe` program.
    pub program: &'a Path,
    /// For keys, configs and a browser's profile; exists and is empty.
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

/// The site once, in a world of its own whose losses are those of `seed`.
pub fn run(choice: &Choice<'_>, by: &By<'_>, seed: u64) -> Result<Loaded, ExperimentError> {
    let profile = choice.profile;
    let world = World::new(&profile.link, profile.terrestrial.as_ref(), seed)?;
    world.measure()?;
    let ends = by.contender.ends();
    let receive_window_bytes = by.contender.receive_window();
    let tuning = Tuning { congestion: Some(ends), receive_window_bytes, ..Tuning::default() };
    world.tune_client(&tuning)?;
    world.tune_server(&tuning)?;
    let origin = Origin::start(&world.server, SERVER.v4.into())?;
    let authority = Authority::new().map_err(lab)?;
    let settings = ServerSettings { congestion: ends, ..ServerSettings::new(authority.clone()) };
    let _server = SiteServer::start(&world.server, choice.site, &settings)?;
    let stage = Stage {
        world: &world,
        profile,
        folder: by.folder,
        program: by.program,
        hosts: &choice.site.hosts(),
        settings: &toml::Table::new(),
    };
    let name = by.contender.name();
    let running = by.contender.start(&stage);
    let mut running =
        running.map_err(|source| ExperimentError::Contender { contender: name, source })?;
    let client = Client { route: Route::Direct, origin: origin.address(ends), congestion: ends };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(EmuError::Thread)?;
    let loaded = world.client.run(|| {
        runtime.block_on(async {
            first_byte(name, &client, running.as_mut()).await?;
            if by.browser {
                in_browser(choice, &authority, &world, by.folder).await
            } else {
                lightly(choice, &authority, by.contender).await
            }
        })
    })??;
    let checked = running.check();
    checked.map_err(|source| ExperimentError::Contender { contender: name, source })?;
    match world.radio_counters()?.unmodelled() {
        0 => Ok(loaded),
        lost => Err(ExperimentError::Unmodelled(lost)),
    }
}

fn lab(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Lab(error.to_string())
}

/// Asks for a byte until it comes: loads are compared between tunnels that are up.
async fn first_byte(
    contender: &'static str,
    client: &Client,
    running: &mut dyn Running,
) -> Result<(), ExperimentError> {
    let (began, mut why) = (Instant::now(), String::new());
    while began.elapsed() < SILENCE {
        match timeout(ATTEMPT, client.fetch("/object/1")).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => why = format!(" ({error})"),
            Err(_) => {}
        }
        running.check().map_err(|source| ExperimentError::Contender { contender, source })?;
        tokio::time::sleep(PAUSE).await;
    }
    let seconds = SILENCE.as_secs();
    Err(ExperimentError::Silent { contender, seconds, why: why + &running.said() })
}

async fn lightly(
    choice: &Choice<'_>,
    authority: &Authority,
    contender: &dyn Contender,
) -> Result<Loaded, ExperimentError> {
    let congestion = contender.ends();
    let load = Load { congestion, ..Load::new(choice.site, choice.protocol, choice.deadline) };
    let mut tickets = Tickets::new(authority).map_err(lab)?;
    if choice.protocol.resumes() {
        let warmed = loader::warm(&load, &mut tickets, WARMING).await;
        warmed.map_err(|why| lab(format!("{contender}: the visit that brings tickets: {why}")))?;
        // Its connections close meanwhile.
        tokio::time::sleep(PAUSE + 2 * choice.profile.rtt()).await;
    }
    let begun = OffsetDateTime::now_utc();
    let visit = loader::load(&load, &mut tickets).await;
    Ok(Loaded::of(&visit, &load, begun))
}

async fn in_browser(
    choice: &Choice<'_>,
    authority: &Authority,
    world: &World,
    folder: &Path,
) -> Result<Loaded, ExperimentError> {
    let (site, protocol) = (choice.site, choice.protocol);
    let flags = browser::flags(site, protocol, &authority.key_hash()).map_err(lab)?;
    let profile = tempfile::tempdir_in(folder).map_err(ExperimentError::Folder)?;
    let scheme = if protocol == Protocol::Http1 { "http" } else { "https" };
    let start = Browser::start(world.client.command("sh"), &flags, profile.path());
    let mut browser = start.await.map_err(lab)?;
    let visit = browser.visit(&site.url(scheme, 0), choice.deadline).await;
    browser.close().await.map_err(lab)?;
    let visit = visit.map_err(lab)?;
    // What it asks for that the archive has not, the site's icon for one, is nobody's failure.
    let urls: Vec<String> = (0..site.resources.len()).map(|n| site.url(scheme, n)).collect();
    let requests = visit.record.requests();
    let ours: Vec<&Request> = requests.iter().filter(|one| urls.contains(&one.url)).collect();
    let came = |one: &&&Request| one.failed.is_none() && one.status == 200;
    let failed = visit.failed.clone().or_else(|| ours.iter().find_map(|one| one.failed.clone()));
    let late = || {
        let late = visit.loaded.is_none();
        late.then(|| format!("cut off after {} s", choice.deadline.as_secs()))
    };
    let failed = failed.or_else(late);
    let took = visit.loaded.unwrap_or(choice.deadline).as_secs_f64();
    Ok(Loaded {
        plt: if failed.is_none() { Sample::Finished(took) } else { Sample::Cut(took) },
        bytes: ours.iter().map(|one| one.bytes).sum(),
        came: ours.iter().filter(came).count(),
        failed,
        har: visit.har(&site.name),
    })
}
