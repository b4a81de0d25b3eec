//! A site in real Chromium, with a profile that was never used: each run starts a browser of its own, and
//! where a repeat view is asked for another one with what that has left in its cache.

use std::path::Path;

use bentpipe_lab::browser::{self, Browser, BrowserError, Request, Visit};
use bentpipe_lab::loader::Protocol;
use bentpipe_lab::site::Site;

use super::page::{SiteError, keep};
use super::{Scope, WorkError};
use crate::figures::per;
use crate::job::Value;

/// Metrics of a repeat view; a grid that asks for one of them has such views.
const REPEATED: [&str; 2] = ["repeat-plt", "repeat-lcp"];

/// Loads the site over the protocol.
pub fn run(
    scope: &mut Scope<'_>,
    site: &Site,
    protocol: Protocol,
) -> Result<Vec<Value>, WorkError> {
    let hash = scope.sites.key_hash();
    let flags = browser::flags(site, protocol, &hash).map_err(SiteError::NotInBrowsers)?;
    let scheme = if protocol == Protocol::Http1 { "http" } else { "https" };
    let folder = tempfile::tempdir_in(scope.folder).map_err(SiteError::Folder)?;
    let of: &Scope<'_> = scope;
    let view = || view(of, &flags, &site.url(scheme, 0), folder.path());
    let first = view()?;
    keep_har(scope, &first, site, "")?;
    let mut failed = why(&first, site, scheme);
    let deadline = scope.job.planned.deadline.as_secs_f64();
    let mut values = values(&first, site, scheme, deadline, scope.scene.rate_bps(false));
    if scope.job.grid.metrics.iter().any(|metric| REPEATED.contains(&metric.as_str())) {
        let again = view()?;
        keep_har(scope, &again, site, ".repeat")?;
        failed = failed.or_else(|| why(&again, site, scheme));
        let [plt, lcp] = REPEATED;
        values.extend(times(&again, site, scheme, deadline, [plt, lcp]));
    }
    scope.failed = failed;
    Ok(values)
}

/// One view by a browser whose profile lies in `folder`.
fn view(scope: &Scope<'_>, flags: &[String], url: &str, folder: &Path) -> Result<Visit, WorkError> {
    let client = &scope.world.client;
    let visit = scope.in_client(async || {
        let mut browser = Browser::start(client.command("sh"), flags, folder).await?;
        let visit = browser.visit(url, scope.job.planned.deadline).await;
        browser.close().await?;
        visit
    })?;
    Ok(visit.map_err(SiteError::Browser)?)
}

fn keep_har(scope: &Scope<'_>, visit: &Visit, site: &Site, which: &str) -> Result<(), SiteError> {
    match scope.raw {
        Some(raw) => Ok(keep(raw, scope, which, &visit.har(&site.name).to_string())?),
        None => Ok(()),
    }
}

/// The site's own requests; what the browser asks for of itself, the site's icon, is left out.
fn requests<'a>(visit: &'a Visit, site: &Site, scheme: &str) -> Vec<&'a Request> {
    let urls: Vec<String> =
        (0..site.resources.len()).map(|number| site.url(scheme, number)).collect();
    visit.record.requests().iter().filter(|request| urls.contains(&request.url)).collect()
}

fn came(request: &Request) -> bool {
    request.failed.is_none() && request.status == 200
}

/// Reason for which a view failed, or else its first request that did.
fn why(visit: &Visit, site: &Site, scheme: &str) -> Option<String> {
    let requests = requests(visit, site, scheme);
    let of = || requests.iter().find_map(|one| one.failed.clone());
    visit.failed.clone().or_else(of)
}

/// Returns `true` if the page was loaded, with every object.
fn is_whole(visit: &Visit, site: &Site, requests: &[&Request]) -> bool {
    visit.failed.is_none()
        && visit.loaded.is_some()
        && requests.len() == site.resources.len()
        && requests.iter().all(|request| came(request))
}

/// The two times of a view, under these names. A page that has nothing to paint has the first only.
fn times(
    visit: &Visit,
    site: &Site,
    scheme: &str,
    deadline: f64,
    [plt, lcp]: [&'static str; 2],
) -> Vec<Value> {
    let whole = is_whole(visit, site, &requests(visit, site, scheme));
    let Some(took) = visit.loaded else {
        return [plt, lcp].map(|metric| Value::of(metric, deadline, false)).to_vec();
    };
    let mut values = vec![Value::of(plt, took.as_secs_f64(), whole)];
    values.extend(visit.painted.map(|painted| Value::of(lcp, painted.as_secs_f64(), whole)));
    values
}

/// Values of the browser for the first view.
fn values(visit: &Visit, site: &Site, scheme: &str, deadline: f64, rate_bps: f64) -> Vec<Value> {
    let requests = requests(visit, site, scheme);
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
        Value::of("goodput", bits / took.max(1e-3), whole),
        Value::of("utilization", per(bits, receiving) / rate_bps, whole),
        Value::of("connections", connections.len() as f64, true),
        Value::of("failed", f64::from(u8::from(!whole)), true),
    ]);
    for request in &requests {
        let phases = request.phases();
        let connected = (phases.dns + phases.connect).as_secs_f64();
        let at = request.wanted - began + connected;
        let waited = phases.send + phases.wait;
        for (metric, time) in
            [("block", phases.blocked), ("wait", waited), ("receive", phases.receive)]
        {
            let value = Value::of(metric, time.as_secs_f64(), came(request));
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
