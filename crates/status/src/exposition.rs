//! The document in the text format of Prometheus, version 0.0.4. docs/monitoring.md lists the metrics.

#[cfg(test)]
mod dashboard_tests;

use std::fmt::{self, Write};

use bentpipe_metering::experience::BUCKETS_S;

use super::{
    ClassEntry, Document, EgressEntry, ExperienceEntry, Gateway, GroundEntry, LinkEntry, PathEntry,
    Session,
};

/// Maximum number of sessions with metrics of the link: 15 series each.
const MAX_SESSIONS: usize = 4096;
/// Maximum number of sessions with metrics of classes: 125 series each.
const MAX_DETAILED: usize = 256;
/// End of the first bucket of a histogram of delays, in microseconds; each next one is twice as long.
const FIRST_BUCKET_US: u64 = 128;

/// Counters that are one metric with a label: their prefix, the metric, the label, and its meaning.
const FAMILIES: [(&str, &str, &str, &str); 4] = [
    ("reset_", "flow_resets", "reason", "Flows that ended with a reset."),
    ("flows_", "flows", "class", "Flows that began in this class."),
    ("refused_", "limit_refused", "limit", "Newcomers refused for a limit."),
    ("evicted_", "limit_evicted", "limit", "Entries that were evicted for a newcomer."),
];

/// Kind of a metric.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A metric of the link: its name, meaning, and value.
type LinkMetric = (&'static str, &'static str, Kind, fn(&LinkEntry) -> f64);

/// A metric of a path, which some paths do not have.
type PathMetric = (&'static str, &'static str, Kind, fn(&PathEntry) -> Option<f64>);

/// A metric of an egress, which some egresses do not have.
type EgressMetric = (&'static str, &'static str, fn(&EgressEntry) -> Option<f64>);

/// A metric of a class.
type ClassMetric = (&'static str, &'static str, Kind, fn(&ClassEntry) -> f64);

const LINK: [LinkMetric; 12] = [
    ("link_up", "1 unless there is an outage.", Kind::Gauge, |link| {
        f64::from(u8::from(link.outage_us == 0))
    }),
    ("link_rtt_seconds", "Smoothed round trip.", Kind::Gauge, |link| seconds(link.round_trip_us)),
    ("link_queue_seconds", "Queueing delay on the path.", Kind::Gauge, |link| {
        seconds(link.queue_us)
    }),
    ("link_silence_seconds", "Time since the last packet of the peer.", Kind::Gauge, |link| {
        seconds(link.silence_us)
    }),
    ("link_outage_seconds_total", "Length of all outages.", Kind::Counter, |link| {
        seconds(link.outages_us)
    }),
    ("link_mtu_bytes", "Largest packet with data, with its IP header.", Kind::Gauge, |link| {
        link.mtu_bytes as f64
    }),
    ("link_sent_bytes_total", "IP bytes sent.", Kind::Counter, |link| link.sent_bytes as f64),
    ("link_repair_bytes_total", "Bytes of repair packets sent.", Kind::Counter, |link| {
        link.repair_bytes as f64
    }),
    ("link_retransmitted_bytes_total", "Bytes sent again.", Kind::Counter, |link| {
        link.retransmission_bytes as f64
    }),
    (
        "link_reported_packets_total",
        "Sent packets that reports are about.",
        Kind::Counter,
        |link| link.judged_packets as f64,
    ),
    ("link_lost_packets_total", "Sent packets that were lost.", Kind::Counter, |link| {
        link.lost_packets as f64
    }),
    ("link_breaker_trips_total", "Times the breaker lowered the rate.", Kind::Counter, |link| {
        link.breaker_trips as f64
    }),
];

const PATHS: [PathMetric; 10] = [
    ("path_up", "1 if the path carries data.", Kind::Gauge, |path| {
        Some(f64::from(u8::from(matches!(path.use_now.as_str(), "all" | "bulk"))))
    }),
    ("path_rtt_seconds", "Smoothed round trip.", Kind::Gauge, |path| {
        Some(seconds(path.round_trip_us))
    }),
    ("path_queue_seconds", "Queueing delay on the path.", Kind::Gauge, |path| {
        Some(seconds(path.queue_us))
    }),
    ("path_rate_bytes_per_second", "Rate in use.", Kind::Gauge, |path| {
        Some(path.sending.rate_bps.unwrap_or(0) as f64 / 8.0)
    }),
    ("path_sent_bytes_total", "IP bytes sent.", Kind::Counter, |path| Some(path.sent_bytes as f64)),
    ("path_received_bytes_total", "IP bytes received.", Kind::Counter, |path| {
        Some(path.received_bytes as f64)
    }),
    (
        "path_reported_packets_total",
        "Sent packets that reports are about.",
        Kind::Counter,
        |path| Some(path.judged_packets as f64),
    ),
    ("path_lost_packets_total", "Sent packets that were lost.", Kind::Counter, |path| {
        Some(path.lost_packets as f64)
    }),
    ("path_daily_limit_bytes", "Maximum bytes in a day of UTC.", Kind::Gauge, |path| {
        path.daily_limit_bytes.map(|bytes| bytes as f64)
    }),
    ("path_daily_used_bytes", "Bytes used of the daily limit.", Kind::Gauge, |path| {
        path.daily_used_bytes.map(|bytes| bytes as f64)
    }),
];

const CLASSES: [ClassMetric; 7] = [
    ("class_open_flows", "Open flows.", Kind::Gauge, |class| class.open_flows as f64),
    ("class_queued_bytes", "Memory of queued datagrams.", Kind::Gauge, |class| {
        class.queued_bytes as f64
    }),
    ("class_sent_bytes_total", "Contents sent over the link.", Kind::Counter, |class| {
        class.total.sent_bytes as f64
    }),
    ("class_received_bytes_total", "Contents received over the link.", Kind::Counter, |class| {
        class.total.received_bytes as f64
    }),
    ("class_overhead_bytes_total", "Repairs, retransmissions, headers.", Kind::Counter, |class| {
        class.overhead_bytes as f64
    }),
    (
        "class_sent_packets_total",
        "Datagrams, or pieces of a stream, sent.",
        Kind::Counter,
        |class| class.total.sent_packets as f64,
    ),
    ("class_dropped_packets_total", "Datagrams dropped unsent.", Kind::Counter, |class| {
        class.total.dropped_packets as f64
    }),
];

const EGRESSES: [EgressMetric; 3] = [
    ("egress_up", "1 if new flows may go to the egress.", |egress| {
        Some(f64::from(u8::from(egress.is_up)))
    }),
    ("egress_rtt_seconds", "Round trip to the egress.", |egress| egress.round_trip_us.map(seconds)),
    ("egress_flows", "Flows that the egress dials for this gateway.", |egress| {
        Some(egress.flows_now as f64)
    }),
];

/// A histogram of waiting times: its name, meaning, numbers by bucket, and sum.
type WaitMetric =
    (&'static str, &'static str, fn(&ExperienceEntry) -> &[u64], fn(&ExperienceEntry) -> u64);

const WAITS: [WaitMetric; 2] = [
    (
        "experience_first_byte_seconds",
        "Time from the client's last byte to the first byte of the answer.",
        |entry| &entry.first_byte_histogram,
        |entry| entry.first_byte_sum_us,
    ),
    (
        "experience_completion_seconds",
        "Time from the client's last byte to the last byte of the answer.",
        |entry| &entry.completion_histogram,
        |entry| entry.completion_sum_us,
    ),
];

/// Returns all metrics.
pub fn of(document: &Document) -> String {
    let mut text = String::new();
    put(document, &mut text).expect("a string takes everything");
    text
}

fn put(document: &Document, to: &mut String) -> fmt::Result {
    let gateway = match document.gateway {
        Gateway::Air => "air",
        Gateway::Ground => "ground",
    };
    head(to, "build_info", "The gateway and its release.", Kind::Gauge)?;
    let version = escaped(&document.version);
    writeln!(to, "bentpipe_build_info{{gateway=\"{gateway}\",version=\"{version}\"}} 1")?;
    head(to, "uptime_seconds", "Time since the gateway started.", Kind::Gauge)?;
    writeln!(to, "bentpipe_uptime_seconds {}", seconds(document.uptime_us))?;
    head(to, "sessions", "Sessions of the radio transport.", Kind::Gauge)?;
    writeln!(to, "bentpipe_sessions {}", document.sessions.len())?;
    grounds(document, to)?;
    egresses(&document.egresses, to)?;
    counters(document, to)?;
    waits(document, to)?;
    let sessions = &document.sessions[..document.sessions.len().min(MAX_SESSIONS)];
    links(sessions, to)?;
    paths(sessions, to)?;
    classes(&sessions[..sessions.len().min(MAX_DETAILED)], to)
}

fn counters(document: &Document, to: &mut String) -> fmt::Result {
    for (prefix, metric, label, help) in FAMILIES {
        let members = document
            .counters
            .iter()
            .filter_map(|(name, count)| Some((name.strip_prefix(prefix)?, count)));
        let mut members = members.peekable();
        if members.peek().is_some() {
            head(to, &format!("{metric}_total"), help, Kind::Counter)?;
        }
        for (name, count) in members {
            writeln!(to, "bentpipe_{metric}_total{{{label}=\"{}\"}} {count}", escaped(name))?;
        }
    }
    let is_alone = |name: &str| FAMILIES.iter().all(|(prefix, ..)| !name.starts_with(prefix));
    for (name, count) in document.counters.iter().filter(|(name, _)| is_alone(name)) {
        head(
            to,
            &format!("{name}_total"),
            &format!("Counter {name} of docs/status.md."),
            Kind::Counter,
        )?;
        writeln!(to, "bentpipe_{name}_total {count}")?;
    }
    Ok(())
}

/// Other grounds of the fleet.
fn grounds(document: &Document, to: &mut String) -> fmt::Result {
    if document.grounds.is_empty() {
        return Ok(());
    }
    let count = |is_one: fn(&GroundEntry) -> bool| {
        document.grounds.iter().filter(|ground| is_one(ground)).count()
    };
    let rows = [
        ("speaking", count(|it| it.through.is_none() && it.age_us.is_some() && it.is_connected)),
        (
            "disconnected",
            count(|it| it.through.is_none() && it.age_us.is_some() && !it.is_connected),
        ),
        ("silent", count(|it| it.age_us.is_none())),
        ("passed_on", count(|it| it.through.is_some())),
    ];
    head(to, "grounds", "Other grounds of the fleet, by what is heard of them.", Kind::Gauge)?;
    for (state, count) in rows {
        writeln!(to, "bentpipe_grounds{{state=\"{state}\"}} {count}")?;
    }
    Ok(())
}

fn egresses(all: &[EgressEntry], to: &mut String) -> fmt::Result {
    for (name, help, value) in EGRESSES {
        let mut values = all.iter().filter_map(|one| Some((&one.name, value(one)?))).peekable();
        if values.peek().is_some() {
            head(to, name, help, Kind::Gauge)?;
        }
        for (egress, value) in values {
            writeln!(to, "bentpipe_{name}{{egress=\"{}\"}} {value}", escaped(egress))?;
        }
    }
    Ok(())
}

/// Waiting times of passengers.
fn waits(document: &Document, to: &mut String) -> fmt::Result {
    let labels = |entry: &ExperienceEntry| {
        format!("class=\"{}\",rule=\"{}\"", escaped(&entry.class), escaped(&entry.rule))
    };
    for (name, help, counts, sum_us) in WAITS {
        writeln!(to, "# HELP bentpipe_{name} {help}\n# TYPE bentpipe_{name} histogram")?;
        for entry in &document.experience {
            let (labels, mut sum) = (labels(entry), 0);
            let ends = BUCKETS_S.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (count, end) in counts(entry).iter().zip(ends) {
                sum += count;
                writeln!(to, "bentpipe_{name}_bucket{{{labels},le=\"{end}\"}} {sum}")?;
            }
            writeln!(to, "bentpipe_{name}_sum{{{labels}}} {}", seconds(sum_us(entry)))?;
            writeln!(to, "bentpipe_{name}_count{{{labels}}} {sum}")?;
        }
    }
    let name = "experience_failed_total";
    head(to, name, "Exchanges that ended without an answer.", Kind::Counter)?;
    for entry in &document.experience {
        writeln!(to, "bentpipe_{name}{{{}}} {}", labels(entry), entry.failed)?;
    }
    Ok(())
}

fn links(sessions: &[Session], to: &mut String) -> fmt::Result {
    let links: Vec<_> = sessions.iter().filter_map(|one| Some((labels(one), one.link?))).collect();
    for (name, help, kind, value) in LINK {
        head(to, name, help, kind)?;
        for (labels, link) in &links {
            writeln!(to, "bentpipe_{name}{{{labels}}} {}", value(link))?;
        }
    }
    head(to, "link_keys_overdue", "1 if the packet keys are old.", Kind::Gauge)?;
    for session in sessions {
        let is_overdue = u8::from(session.keys_overdue);
        writeln!(to, "bentpipe_link_keys_overdue{{{}}} {is_overdue}", labels(session))?;
    }
    head(to, "link_rate_bytes_per_second", "Rate in use, by direction and origin.", Kind::Gauge)?;
    for session in sessions {
        for (direction, rate) in [("send", &session.sending), ("receive", &session.receiving)] {
            let Some(rate) = rate else { continue };
            let (labels, source) = (labels(session), escaped(&rate.source));
            if let Some(bps) = rate.rate_bps {
                writeln!(
                    to,
                    "bentpipe_link_rate_bytes_per_second{{{labels},direction=\"{direction}\",\
                     source=\"{source}\"}} {}",
                    bps as f64 / 8.0
                )?;
            }
        }
    }
    Ok(())
}

/// Paths of the sessions that have several.
fn paths(sessions: &[Session], to: &mut String) -> fmt::Result {
    let rows = || {
        sessions.iter().flat_map(|session| {
            let labels = labels(session);
            let label =
                move |path: &PathEntry| format!("{labels},path=\"{}\"", escaped(&path.label()));
            session.paths.iter().map(move |path| (label(path), path))
        })
    };
    for (name, help, kind, value) in PATHS {
        let mut values =
            rows().filter_map(|(labels, path)| Some((labels, value(path)?))).peekable();
        if values.peek().is_some() {
            head(to, name, help, kind)?;
        }
        for (labels, value) in values {
            writeln!(to, "bentpipe_{name}{{{labels}}} {value}")?;
        }
    }
    Ok(())
}

fn classes(sessions: &[Session], to: &mut String) -> fmt::Result {
    let rows = || {
        sessions.iter().flat_map(|session| {
            let labels = labels(session);
            session
                .classes
                .iter()
                .map(move |class| (format!("{labels},class=\"{}\"", escaped(&class.class)), class))
        })
    };
    for (name, help, kind, value) in CLASSES {
        head(to, name, help, kind)?;
        for (labels, class) in rows() {
            writeln!(to, "bentpipe_{name}{{{labels}}} {}", value(class))?;
        }
    }
    let name = "bentpipe_class_queue_delay_seconds";
    writeln!(to, "# HELP {name} Waiting time of sent data in this gateway.")?;
    writeln!(to, "# TYPE {name} histogram")?;
    for (labels, class) in rows() {
        let (mut sum, mut end_us) = (0, FIRST_BUCKET_US);
        let (last, buckets) = class.total_delay_histogram.split_last().unwrap_or((&0, &[]));
        for count in buckets {
            sum += count;
            writeln!(to, "{name}_bucket{{{labels},le=\"{}\"}} {sum}", seconds(end_us))?;
            end_us *= 2;
        }
        sum += last;
        writeln!(to, "{name}_bucket{{{labels},le=\"+Inf\"}} {sum}")?;
        let total_s = seconds(class.total.delay_mean_us) * sum as f64;
        writeln!(to, "{name}_sum{{{labels}}} {total_s}")?;
        writeln!(to, "{name}_count{{{labels}}} {sum}")?;
    }
    Ok(())
}

fn head(to: &mut String, name: &str, help: &str, kind: Kind) -> fmt::Result {
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    writeln!(to, "# HELP bentpipe_{name} {help}\n# TYPE bentpipe_{name} {kind}")
}

/// Label of a session: its aircraft, which is empty at the air.
fn labels(session: &Session) -> String {
    format!("aircraft=\"{}\"", escaped(session.aircraft.as_deref().unwrap_or_default()))
}

/// A label's value between its quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests;
