//! A site in real Chromium, with a profile that was never used: each run starts a browser of its own.

use bentpipe_lab::browser::{Browser, BrowserError, Request, Visit};
use bentpipe_lab::loader::Protocol;
use bentpipe_lab::site::Site;

use super::page::SiteError;
use super::{Scope, WorkError};
use crate::figures::per;
use crate::job::Value;

/// Loads the site over the protocol.
pub fn run(scope: &Scope<'_>, site: &Site, protocol: Protocol) -> Result<Vec<Value>, WorkError> {
    let flags = flags(site, protocol, &scope.sites.key_hash())?;
    let scheme = if protocol == Protocol::Http1 { "http" } else { "https" };
    let url = site.url(scheme, 0);
    let deadline = scope.job.planned.deadline;
    let folder = tempfile::tempdir_in(scope.folder).map_err(SiteError::Folder)?;
    let (client, path) = (&scope.world.client, folder.path());
    let visit = scope.in_client(async || {
        let mut browser = Browser::start(client.command("sh"), &flags, path).await?;
        let visit = browser.visit(&url, deadline).await;
        browser.close().await?;
        visit
    })?;
    let visit = visit.map_err(SiteError::Browser)?;
    Ok(values(&visit, site, scheme, deadline.as_secs_f64(), scope.scene.rate_bps(false)))
}

/// What makes it use this protocol and no other.
fn flags(site: &Site, protocol: Protocol, key_hash: &str) -> Result<Vec<String>, SiteError> {
    let maps: Vec<String> =
        site.hosts().iter().map(|(name, address)| format!("MAP {name} {address}")).collect();
    let mut flags = vec![
        format!("--host-resolver-rules={}", maps.join(", ")),
        format!("--ignore-certificate-errors-spki-list={key_hash}"),
        // What is asked for in clear stays in clear.
        "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable".to_owned(),
    ];
    match protocol {
        Protocol::Http1 => flags.push("--disable-quic".to_owned()),
        Protocol::Http1Tls => {
            flags.extend(["--disable-quic".to_owned(), "--disable-http2".to_owned()]);
        }
        Protocol::Http2 => flags.push("--disable-quic".to_owned()),
        Protocol::Http3 => {
            let hosts = site.hosts();
            let all: Vec<String> = hosts.iter().map(|(name, _)| format!("{name}:443")).collect();
            flags.push(format!("--origin-to-force-quic-on={}", all.join(",")));
        }
        other => return Err(SiteError::NotInBrowsers(other.name())),
    }
    Ok(flags)
}

/// What the browser says of the visit; what it asks for of itself, the site's icon, is left out.
fn values(visit: &Visit, site: &Site, scheme: &str, deadline: f64, rate_bps: f64) -> Vec<Value> {
    let urls: Vec<String> =
        (0..site.resources.len()).map(|number| site.url(scheme, number)).collect();
    let ours = |request: &&Request| urls.contains(&request.url);
    let requests: Vec<&Request> = visit.record.requests().iter().filter(ours).collect();
    let came = |request: &Request| request.failed.is_none() && request.status == 200;
    let whole = visit.failed.is_none()
        && visit.loaded.is_some()
        && requests.len() == urls.len()
        && requests.iter().all(|request| came(request));
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
    let mut values = vec![
        Value::of("plt", took, whole),
        Value::of("goodput", bits / took.max(1e-3), whole),
        Value::of("utilization", per(bits, receiving) / rate_bps, whole),
        Value::of("connections", connections.len() as f64, true),
        Value::of("failed", f64::from(u8::from(!whole)), true),
    ];
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
