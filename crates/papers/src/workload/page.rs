//! `page` and `archive`: a document with its objects on one domain, or a site with several, loaded
//! with empty caches by the page-load client or by real Chromium.

use std::time::Duration;

use bentpipe_lab::emu::{EmuError, LinkCounters};
use bentpipe_lab::loader::{
    DEFAULT_CONNECTIONS, Load, Protocol, Qlog, RATE_SLOT, Tickets, Visit, load, warm,
};
use bentpipe_lab::site::{DEFAULT_MAX_STREAMS, ServerSettings, Site, SiteServer, TlsVersion};
use bentpipe_results::{self as results, Row};
use time::OffsetDateTime;

use super::chromium;
use super::error::{SiteError, WorkError};
use super::scope::{Scope, keep};
use super::sites::site;
use super::values::nothing;
use crate::figures::per;
use crate::raw;
use crate::settle::PAUSE;

/// First number of visits that only obtain tickets.
const WARMING: u64 = 1 << 32;

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let site = site(scope.job, scope.number)?;
    serve(scope, &site)?;
    let changes = &scope.scene.changes;
    let name = scope.job.planned.cell.on("protocol").unwrap_or_default();
    let protocol: Protocol = name.parse().map_err(SiteError::from)?;
    if scope.job.is_in_browser() {
        return chromium::run(scope, &site, protocol);
    }
    let connections = scope.job.whole("connections").map_or(DEFAULT_CONNECTIONS, |n| n as usize);
    let qlog = scope
        .raw
        .filter(|_| protocol.is_quic())
        .map(|folder| raw::make(folder, scope.job, scope.run, ".sqlog", Qlog::create));
    let qlog = qlog.transpose().map_err(SiteError::from)?;
    let asked = Load {
        connections,
        qlog: qlog.as_ref(),
        max_streams: changes.max_streams,
        tls: tls(scope),
        connect_retry: changes.connect_retry_ms.map(Duration::from_millis),
        header_bytes: scope.job.whole("header-bytes").map(|bytes| bytes as usize),
        fast_open: changes.fast_open.unwrap_or(false),
        congestion: scope.ends,
        rates: scope.job.grid.metrics.iter().any(|metric| metric == "rate"),
        ..Load::new(&site, protocol, scope.job.planned.deadline)
    };
    let visited = match visit(scope, &asked)? {
        Ok(visited) => visited,
        // The preceding visit, which obtains tickets, failed: count a failed load.
        Err(why) => {
            scope.failed = Some(format!("the visit that brings tickets: {why}"));
            return Ok(nothing(scope.job));
        }
    };
    values(scope, &asked, &visited)
}

/// A visit that was measured.
struct Measured {
    before: LinkCounters,
    after: LinkCounters,
    begun: OffsetDateTime,
    visit: Visit,
}

/// Loads the site, after a visit for tickets if the protocol needs them. The inner error is the
/// failure of that visit.
fn visit(scope: &Scope<'_>, asked: &Load<'_>) -> Result<Result<Measured, String>, WorkError> {
    let mut tickets = Tickets::new(&scope.sites.authority).map_err(SiteError::from)?;
    let (testbed, number, farewells) = (scope.testbed, scope.number, PAUSE + 2 * scope.scene.rtt());
    let visited = testbed.client.block_on(async || {
        if asked.protocol.resumes() {
            if let Err(error) = warm(asked, &mut tickets, WARMING + number).await {
                return Ok(Err(error));
            }
            // Its connections close meanwhile, so that none of their packets counts for the
            // measured visit.
            tokio::time::sleep(farewells).await;
        }
        let (before, begun) = (testbed.radio_counters()?, OffsetDateTime::now_utc());
        let visit = load(asked, &mut tickets).await;
        Ok::<_, EmuError>(Ok((before, begun, visit)))
    })??;
    let after = testbed.radio_counters()?;
    Ok(visited.map(|(before, begun, visit)| Measured { before, after, begun, visit }))
}

/// Values of a measured visit, and its HAR file.
fn values(scope: &mut Scope<'_>, asked: &Load<'_>, it: &Measured) -> Result<Vec<Row>, WorkError> {
    let Measured { before, after, begun, visit } = it;
    let protocol = asked.protocol;
    // After a broken connection there may be no ticket left for the next one: that is a failed
    // load.
    if protocol.resumes() && visit.connections_anew > 0 && !visit.failed() {
        let (anew, connections) = (visit.connections_anew, visit.connections);
        return Err(SiteError::Anew { protocol: protocol.name(), anew, connections }.into());
    }
    if let Some(raw) = scope.raw {
        keep(raw, scope, "", &visit.har(asked, *begun).to_string()).map_err(SiteError::from)?;
    }
    scope.failed = visit.entries.iter().find_map(|entry| entry.failed.clone());
    let mut values = of_visit(visit, scope.scene.rate_bps(false));
    let ways = [(&before.forward, &after.forward), (&before.return_, &after.return_)];
    let sum = |of: fn(&bentpipe_lab::emu::WireCounters) -> u64| -> f64 {
        ways.iter().map(|(before, after)| (of(after) - of(before)) as f64).sum()
    };
    let packets = sum(|wire| wire.own().offered.packets).max(1.0);
    values.push(Row::of("packets-small", sum(|wire| wire.small) / packets, visit.finished));
    values.push(Row::of("packets-large", sum(|wire| wire.large) / packets, visit.finished));
    Ok(values)
}

fn tls(scope: &Scope<'_>) -> TlsVersion {
    let declared = scope.job.grid.settings.get("tls").and_then(toml::Value::as_str);
    match (scope.scene.changes.tls, declared) {
        (Some(results::TlsVersion::V1_2), _) | (None, Some("1.2")) => TlsVersion::Tls12,
        _ => TlsVersion::Tls13,
    }
}

/// Starts the server of the cell's site, and stops any other.
fn serve(scope: &mut Scope<'_>, site: &Site) -> Result<(), WorkError> {
    let cell = &scope.job.planned.cell;
    if scope.sites.serving.as_ref().is_some_and(|(serving, _)| serving == cell) {
        return Ok(());
    }
    // The previous server must release its ports first.
    scope.sites.serving = None;
    let settings = ServerSettings {
        tls: tls(scope),
        max_streams: scope.scene.changes.max_streams.unwrap_or(DEFAULT_MAX_STREAMS),
        congestion: scope.ends,
        ..ServerSettings::new(scope.sites.authority.clone())
    };
    let server = SiteServer::start(&scope.testbed.server, site, &settings)?;
    scope.sites.serving = Some((cell.clone(), server));
    Ok(())
}

/// Values of a visit.
fn of_visit(visit: &Visit, rate_bps: f64) -> Vec<Row> {
    let whole = visit.finished && !visit.failed();
    let bits = 8.0 * visit.bytes() as f64;
    let answered = visit.entries.iter().filter(|entry| entry.bytes > 0);
    let first = answered.map(|entry| entry.started + entry.time() - entry.receive).min();
    let receiving = visit.took.saturating_sub(first.unwrap_or(visit.took));
    let mut values = vec![
        Row::of("plt", visit.took.as_secs_f64(), whole),
        Row::of("goodput", per(bits, visit.took), whole),
        Row::of("utilization", per(bits, receiving) / rate_bps, whole),
        Row::of("connections", f64::from(visit.connections), true),
        Row::of("connections-dropped", f64::from(visit.connections_dropped), true),
        Row::of("failed", f64::from(u8::from(!whole)), true),
    ];
    for entry in &visit.entries {
        let came = entry.failed.is_none() && entry.status.is_some();
        // A waterfall's bars start when the connection is open.
        let at = (entry.started + entry.connect.unwrap_or_default()).as_secs_f64();
        let times =
            [("block", entry.block), ("wait", entry.send + entry.wait), ("receive", entry.receive)];
        for (metric, time) in times {
            let value = Row::of(metric, time.as_secs_f64(), came);
            values.push(value.in_series(entry.url.clone()).at(at));
        }
    }
    for (number, slots) in visit.rates.iter().enumerate() {
        let used = |bytes: &&u64| **bytes > 0;
        let Some(from) = slots.iter().position(|bytes| used(&bytes)) else { continue };
        let to = slots.iter().rposition(|bytes| used(&bytes)).unwrap_or(from);
        for (slot, bytes) in slots.iter().enumerate().take(to + 1).skip(from) {
            let bps = 8.0 * *bytes as f64 / RATE_SLOT.as_secs_f64();
            let at = slot as f64 * RATE_SLOT.as_secs_f64();
            values.push(Row::of("rate", bps, true).in_series(number.to_string()).at(at));
        }
    }
    values
}
