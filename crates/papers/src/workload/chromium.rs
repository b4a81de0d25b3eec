//! A site in real Chromium with a new profile. Each run starts its own browser. A repeat view
//! starts another browser with the cache of the first.

use std::path::Path;

use bentpipe_lab::browser::{self, Browser, BrowserError, Request, Visit};
use bentpipe_lab::loader::Protocol;
use bentpipe_lab::site::Site;
use bentpipe_results::Row;

use super::error::{SiteError, WorkError};
use super::scope::{Scope, keep};
use crate::figures::per;

/// Metrics of a repeat view. A grid that requests one of them has repeat views.
const REPEATED: [&str; 2] = ["repeat-plt", "repeat-lcp"];

/// Loads the site with the protocol.
pub fn run(scope: &mut Scope<'_>, site: &Site, protocol: Protocol) -> Result<Vec<Row>, WorkError> {
    let hash = scope.sites.key_hash();
    let flags = browser::flags(site, protocol, &hash).map_err(SiteError::NotInBrowsers)?;
    let scheme = if protocol == Protocol::Http1 { "http" } else { "https" };
    let folder = tempfile::tempdir_in(scope.folder).map_err(SiteError::Folder)?;
    let of: &Scope<'_> = scope;
    let view = || view(of, &flags, &site.url(scheme, 0), folder.path());
    let first = view()?;
    keep_har(scope, &first, site, "")?;
    let why = |visit: &Visit| visit.fault(&visit.requests_of(site, scheme));
    let mut failed = why(&first);
    let deadline = scope.job.planned.deadline.as_secs_f64();
    let mut values = values(&first, site, scheme, deadline, scope.scene.rate_bps(false));
    if scope.job.grid.metrics.iter().any(|metric| REPEATED.contains(&metric.as_str())) {
        let again = view()?;
        keep_har(scope, &again, site, ".repeat")?;
        failed = failed.or_else(|| why(&again));
        let [plt, lcp] = REPEATED;
        values.extend(times(&again, site, scheme, deadline, [plt, lcp]));
    }
    scope.failed = failed;
    Ok(values)
}

/// Performs one view with a browser whose profile is in `folder`.
fn view(scope: &Scope<'_>, flags: &[String], url: &str, folder: &Path) -> Result<Visit, WorkError> {
    let (client, deadline) = (&scope.testbed.client, scope.job.planned.deadline);
    let shell = || client.command("sh");
    let view = async || Browser::view(shell(), flags, folder, url, deadline).await;
    Ok(client.block_on(view)??)
}

fn keep_har(scope: &Scope<'_>, visit: &Visit, site: &Site, which: &str) -> Result<(), SiteError> {
    match scope.raw {
        Some(raw) => Ok(keep(raw, scope, which, &visit.har(&site.name).to_string())?),
        None => Ok(()),
    }
}

/// Returns `true` if the page was loaded with every object.
fn is_whole(visit: &Visit, site: &Site, requests: &[&Request]) -> bool {
    visit.failed.is_none()
        && visit.loaded.is_some()
        && requests.len() == site.resources.len()
        && requests.iter().all(|request| request.came())
}

/// The two times of a view, under these names. A page without content to paint has only the first.
fn times(
    visit: &Visit,
    site: &Site,
    scheme: &str,
    deadline: f64,
    [plt, lcp]: [&'static str; 2],
) -> Vec<Row> {
    let whole = is_whole(visit, site, &visit.requests_of(site, scheme));
    let Some(took) = visit.loaded else {
        return [plt, lcp].map(|metric| Row::of(metric, deadline, false)).to_vec();
    };
    let mut values = vec![Row::of(plt, took.as_secs_f64(), whole)];
    values.extend(visit.painted.map(|painted| Row::of(lcp, painted.as_secs_f64(), whole)));
    values
}

/// Values of the first view.
fn values(visit: &Visit, site: &Site, scheme: &str, deadline: f64, rate_bps: f64) -> Vec<Row> {
    let requests = visit.requests_of(site, scheme);
    let whole = is_whole(visit, site, &requests);
    let took = visit.loaded.map_or(deadline, |took| took.as_secs_f64());
    let began = requests.iter().map(|request| request.wanted).fold(f64::INFINITY, f64::min);
    let first = requests
        .iter()
        .filter(|one| one.bytes > 0)
        .filter_map(|one| Some(one.ended? - one.phases().receive.as_secs_f64()));
    let first = first.fold(f64::INFINITY, f64::min);
    let last = requests.iter().filter_map(|one| one.ended).fold(f64::NEG_INFINITY, f64::max);
    let receiving = std::time::Duration::try_from_secs_f64(last - first).unwrap_or_default();
    let bits = 8.0 * requests.iter().map(|request| request.bytes).sum::<u64>() as f64;
    let mut connections: Vec<u64> =
        requests.iter().filter_map(|request| request.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut values = times(visit, site, scheme, deadline, ["plt", "lcp"]);
    values.extend([
        Row::of("goodput", bits / took.max(1e-3), whole),
        Row::of("utilization", per(bits, receiving) / rate_bps, whole),
        Row::of("connections", connections.len() as f64, true),
        Row::of("failed", f64::from(u8::from(!whole)), true),
    ]);
    for request in &requests {
        let phases = request.phases();
        let connected = (phases.dns + phases.connect).as_secs_f64();
        let at = request.wanted - began + connected;
        let waited = phases.send + phases.wait;
        for (metric, time) in
            [("block", phases.blocked), ("wait", waited), ("receive", phases.receive)]
        {
            let value = Row::of(metric, time.as_secs_f64(), request.came());
            values.push(value.in_series(request.url.clone()).at(at));
        }
    }
    values
}

impl From<BrowserError> for WorkError {
    fn from(error: BrowserError) -> Self {
        SiteError::Browser(error).into()
    }
}
