//! Rates of each direction and their limits.

use maud::{Markup, html};

use super::tables::{at, percent, share};
use crate::analysis::Analysis;
use crate::epb::Epb;
use crate::ndt7::{Ndt7, TcpInfo};
use crate::rate::{Direction, Limit, short};
use crate::statistics::quantile;

/// Tests of ndt7.
pub fn ndt7(analysis: &Analysis) -> Markup {
    let tests = &analysis.rates.tests;
    if tests.is_empty() {
        return html! { p { "There was no ndt7 test. It needs `--ndt7`." } };
    }
    html! {
        div.wide { table {
            tr { th { "direction" } th.text { "server" } th { "tests" } th { "goodput, median bit/s" } th { "lowest" }
                 th { "highest" } th { "server's min RTT, median ms" } th { "sent again" } th { "without a result" } }
            @for ((direction, server), tests) in tests {
                @let goodput = values(tests.iter().filter_map(Ndt7::goodput_bps));
                @let rtt = values(tests.iter().filter_map(|test| u64::try_from(test.server_tcp?.min_rtt).ok()));
                tr {
                    td { (direction.name()) } td.text.wrap { (server) } td { (tests.len()) }
                    @for q in [0.5, 0.0, 1.0] { td { (value(&goodput, q)) } }
                    td { (at(&rtt, 0.5)) } td { (percent(sent_again(tests))) } td { (tests.len() - goodput.len()) }
                }
            }
        } }
        p.note {
            "Goodput of one TCP connection over 10 s, by the receiver. Round-trip time and repetitions are those of the \
            sender of the data. If a proxy splits the connection, they are only those of its own part."
        }
    }
}

/// EPB tests.
pub fn epb(analysis: &Analysis) -> Markup {
    html! {
        div.wide { table {
            tr { th { "direction" } th { "tests" } th { "EPB ratio, median" } th { "lowest" } th { "highest" }
                 th { "effective, median bit/s" } th { "interface's bytes for each byte, median" } th { "resets" }
                 th { "other failures" } }
            @for (direction, tests) in &analysis.rates.epb {
                @let ratios = floats(tests.iter().filter_map(Epb::ratio));
                @let effective = values(tests.iter().filter_map(Epb::effective_bps));
                @let overhead = floats(tests.iter().filter_map(Epb::overhead));
                @let resets = tests.iter().filter(|test| test.is_reset()).count();
                @let failed = tests.iter().filter(|test| test.failure.is_some()).count();
                tr {
                    td { (direction.name()) } td { (tests.len()) }
                    @for q in [0.5, 0.0, 1.0] { td { (percent(quantile(&ratios, q).map(|part| part as f64 / 1e6))) } }
                    td { (value(&effective, 0.5)) }
                    td { (quantile(&overhead, 0.5).map_or_else(|| "–".into(), |part| format!("{:.3}", part as f64 / 1e6))) }
                    td { (resets) } td { (failed - resets) }
                }
            }
        } }
        p.note {
            "The EPB ratio is the effective bandwidth of one TCP connection, by the provisioned bandwidth that `--epb` \
            names. Tests that failed have none. NetForecast's study of proxies on satellite links (Table 3) has 57 % and \
            40 % up, with the source near the proxy, and 12 % and 2 % down, with the source far from it, at low and at \
            high congestion. Those are averages; the table has medians. The study names no size of its files. Here each has \
            1 MB and waits for a round trip, so that a perfect connection of 20 Mbit/s and 600 ms has at most 40 %. Bytes at \
            the interface include all other traffic."
        }
    }
}

/// Values in millionths, sorted.
fn floats(found: impl Iterator<Item = f64>) -> Vec<u64> {
    values(found.map(|value| (value * 1e6) as u64))
}

/// Share of bytes that the senders sent again.
fn sent_again(tests: &[Ndt7]) -> Option<f64> {
    let sender = |test: &Ndt7| match test.direction {
        Direction::Down => test.server_tcp,
        Direction::Up => test.own_tcp,
    };
    let counted = |field: fn(&TcpInfo) -> i64| -> u64 {
        tests.iter().filter_map(sender).map(|tcp| u64::try_from(field(&tcp)).unwrap_or(0)).sum()
    };
    share(counted(|tcp| tcp.bytes_retrans), counted(|tcp| tcp.bytes_sent))
}

/// The section.
pub fn section(analysis: &Analysis) -> Markup {
    let rates = &analysis.rates;
    if rates.found.is_empty() {
        return html! { p {
            "No rate was measured. It needs an own origin, a `bentpipe probe origin`. Measurements that failed: "
            (rates.failed) "."
        } };
    }
    html! {
        div.wide { table {
            tr { th { "direction" } th.text { "limit" } th { "measurements" } th { "rate, median bit/s" }
                 th { "lowest" } th { "highest" } th { "burst, median bytes" } }
            @for ((direction, name), limits) in &rates.found {
                @let rate = sorted(limits, Limit::rate_bps);
                @let burst = sorted(limits, Limit::burst_bytes);
                tr {
                    td { (direction.name()) } td.text { (name) } td { (limits.len()) }
                    @for q in [0.5, 0.0, 1.0] { td { (value(&rate, q)) } }
                    td { (value(&burst, 0.5)) }
                }
            }
        } }
        p.note {
            "Of trains from and to an own origin, in IP bits. A policer drops what exceeds its bucket and delays nothing. A \
            shaper delays it. On a slow link packets wait from the first one on. Without a limit the rate is that of the \
            fastest train. Measurements that failed: " (rates.failed) "."
        }
    }
}

fn sorted(limits: &[Limit], value: fn(Limit) -> Option<u64>) -> Vec<u64> {
    values(limits.iter().filter_map(|limit| value(*limit)))
}

fn values(found: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = found.collect();
    values.sort_unstable();
    values
}

fn value(sorted: &[u64], q: f64) -> String {
    quantile(sorted, q).map_or_else(|| "–".into(), short)
}
