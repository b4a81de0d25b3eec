//! The tables.

use maud::{Markup, html};

use crate::address::{Witness, prefix, providers};
use crate::analysis::{Analysis, Stay};
use crate::clock::utc;
use crate::dns::{Cause, ResolverKind};
use crate::live::ms;
use crate::orbit::{Kind, WINDOW_S};
use crate::statistics::quantile;
use crate::target::Side;

/// Targets with latency and loss.
pub fn targets(analysis: &Analysis) -> Markup {
    html! {
        div.wide { table {
            tr {
                th { "target" } th.text { "address" } th.text { "method" } th { "pings" } th { "min ms" }
                th { "median ms" } th { "p95 ms" } th { "lost" } th { "late" } th { "not sent" }
            }
            @for (key, figures) in &analysis.pings.targets {
                @let sorted = figures.sorted();
                tr {
                    td { (key.name) } td.text { (key.address) } td.text { (key.method) }
                    td { (figures.total.sent) }
                    @for q in [0.0, 0.5, 0.95] { td { (at(&sorted, q)) } }
                    td { (percent(figures.total.loss())) } td { (figures.total.late) }
                    td { (figures.total.failed) }
                }
            }
        } }
        p.note {
            "Lost: no reply within 10 s. Late: a reply after 2 s and within 10 s. Replies after 10 s: "
            (analysis.pings.stragglers) ". A target has a line for each method that was used. TCP handshakes may be \
            answered by a proxy in the cabin."
        }
    }
}

/// Kinds of access of each session.
pub fn access(analysis: &Analysis) -> Markup {
    let start = |session: usize, window: u64| {
        let began = analysis.sessions[session].began.plus_us(window * WINDOW_S * 1_000_000);
        began.utc()
    };
    html! {
        div.wide { table {
            tr { th { "from (UTC)" } th.text { "until" } th.text { "kind" } th { "min ms" } th { "15 s rhythm" } }
            @for session in 0..analysis.sessions.len() {
                @for segment in analysis.segments(session) {
                    tr {
                        td { (start(session, segment.from)) } td.text { (start(session, segment.to + 1)) }
                        td.text { (segment.kind.map_or("unknown", Kind::name)) }
                        td { (ms(segment.minimum_us)) } td { (format!("{:.1}", segment.rhythm)) }
                    }
                }
            }
        } }
        p.note {
            "Inferred from ICMP and UDP pings and the provider, in windows of 5 minutes. A minimum below 477 ms excludes a \
            geostationary orbit, one below 107 ms a medium orbit. A 15 s rhythm above 3 speaks for a low orbit. The \
            inference assumes an access in flight: on the ground it names what the access resembles."
        }
    }
}

/// Public networks with their providers, and table 1 of the paper.
pub fn providers(analysis: &Analysis) -> Markup {
    let list = providers::list();
    let paper = list.providers.iter().filter_map(|p| Some((p, p.carriers.as_deref()?)));
    html! {
        @if analysis.addresses.stays.is_empty() { p { "No public address was learned." } }
        @else { div.wide { table {
            tr { th { "from (UTC)" } th.text { "until" } th.text { "network" } th.text { "AS" } th.text { "provider" }
                 th.text { "table" } th.text { "by" } }
            @for stay in &analysis.addresses.stays {
                tr {
                    td { (utc(stay.wall_us.0)) } td.text { (utc(stay.wall_us.1)) } td.text { (prefix(stay.network)) }
                    @match &stay.system {
                        Some(system) => {
                            td.text { (system.asn) } td.text { (system.name) } td.text { (system.table) }
                        }
                        None => { td.text { "–" } td.text { "not in the table" } td.text { "" } }
                    }
                    td.text { @match stay.method { Witness::Stun => "STUN", Witness::Http => "HTTP" } }
                }
            }
        } } }
        p.note {
            "A line ends when the public address changes, also within a network. Checks without an answer: "
            (analysis.addresses.failed) ". Ranges of the built-in table: " (list.ranges_source) ", "
            (list.ranges_date) ". It has only providers of access in flight; --as-table names a full one."
        }
        div.wide { table {
            tr { th { "provider in the paper" } th.text { "AS" } th.text { "carriers" } th { "networks here" } }
            @for (provider, carriers) in paper {
                @let own = |stay: &&Stay| stay.system.as_ref().is_some_and(|s| s.asn == provider.asn);
                tr {
                    td.wrap { (provider.name) } td.text { (provider.asn) } td.text.wrap { (carriers) }
                    td { (analysis.addresses.stays.iter().filter(own).count()) }
                }
            }
        } }
        p.note { "Source: " (list.paper) "; names of today added on " (list.providers_date) "." }
    }
}

/// Hops of traceroutes, by target.
pub fn hops(analysis: &Analysis) -> Markup {
    let paths = &analysis.paths;
    if paths.hops.is_empty() {
        return html! { p { "There was no traceroute." } };
    }
    let ends = paths.ends(analysis.minimum_rtt().map(|minimum| minimum.rtt_us));
    html! {
        div.wide { table {
            tr { th { "target" } th { "hop" } th.text { "address" } th { "probes" } th { "answered" } th { "min ms" }
                 th { "median ms" } th { "p95 ms" } }
            @for ((target, ttl), hop) in &paths.hops {
                @let sorted = { let mut rtts = hop.rtts_us.clone(); rtts.sort_unstable(); rtts };
                tr {
                    td { (target) } td { (ttl) }
                    td.text { @for address in hop.senders.keys() { (address) " " } }
                    td { (hop.probes) } td { (percent(share(sorted.len() as u64, hop.probes))) }
                    @for q in [0.0, 0.5, 0.95] { td { (at(&sorted, q)) } }
                }
            }
        } }
        p.note {
            "Ends: " (ends.reached) " reached their target, " (ends.refused) " were refused, "
            (ends.died_in_air) " died in the aircraft, " (ends.died_on_ground) " died beyond the radio, "
            (ends.died) " died without telling where."
        }
    }
}

/// Resolvers with the quadrants of their pairs.
pub fn resolvers(analysis: &Analysis) -> Markup {
    let Some(minimum) = analysis.minimum_rtt() else {
        return html! { p { "Without a minimum round-trip time to the ground, hits and misses cannot be told apart." } };
    };
    html! {
        div.wide { table {
            tr { th { "resolver" } th.text { "kind" } th { "pairs" } th { "both hit" } th { "miss, hit" } th { "hit, miss" }
                 th { "both miss" } th { "failed" } th { "unique names hit" } th.text { "double misses by" } }
            @for (address, resolver) in &analysis.lookups.resolvers {
                @let found = resolver.quadrants(minimum.rtt_us);
                @let total = u64::from(found.total());
                tr {
                    td { (address) }
                    td.text { @match resolver.kind { ResolverKind::Local => "local", ResolverKind::Other => "other" } }
                    td { (total) }
                    @for part in [found.both_hit, found.miss_hit, found.hit_miss, found.both_miss] {
                        td { (percent(share(part.into(), total))) }
                    }
                    td { (found.failed) } td { (percent(resolver.impossible_hits(minimum.rtt_us))) }
                    td.text { @match resolver.cause(minimum.rtt_us) {
                        Cause::Cluster => "caches that share nothing", Cause::SomeNames => "names that are not stored",
                        Cause::Unclear => "–",
                    } }
                }
            }
        } }
        p.note {
            "A hit is an answer faster than the minimum round-trip time to the ground, " (ms(minimum.rtt_us))
            " ms. Nobody can have asked for the unique names before, so their first lookups should not hit. If they \
            do, the resolver invents answers or is nearer than the targets of the pings."
        }
    }
}

/// Records by kind, portals and gaps.
pub fn records(analysis: &Analysis) -> Markup {
    let [captive, open, unknown] = analysis.portals;
    let [api_captive, api_open, failed] = analysis.portal_apis;
    let missing: u64 = analysis.gaps.iter().map(|gap| gap.records).sum();
    html! {
        div.wide { table {
            tr { th { "kind" } th { "records" } }
            @for (kind, count) in &analysis.kinds { tr { td { (kind) } td { (count) } } }
        } }
        p.note {
            "Portal checks: " (captive) " captive, " (open) " open, " (unknown) " without an answer. Answers of \
            networks' own APIs (RFC 8908): " (api_captive) " captive, " (api_open) " open, " (failed) " failed. Steps of the clock \
            and suspensions: " (analysis.clock_events) ". Records that could not be stored: " (missing) "."
        }
        @for session in &analysis.sessions {
            p.note {
                "Session " (session.id) ": from " (session.began.utc()) " UTC, version " (session.software_version)
                ", " (session.platform) ", names of " (session.name_list) ", "
                (session.targets.iter().filter(|target| target.side == Side::Far).count()) " targets beyond the radio."
            }
        }
    }
}

/// A quantile in milliseconds, or a dash.
pub fn at(sorted_us: &[u64], q: f64) -> String {
    quantile(sorted_us, q).map_or_else(|| "–".into(), ms)
}

/// A share in per cent, or a dash.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.1} %", 100.0 * share))
}

/// A part of a total.
pub fn share(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}
