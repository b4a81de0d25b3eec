//! Formats the document as tables, 80 columns wide.

use std::time::Duration;

use bentpipe_gateway::config::Detail;
use bentpipe_gateway::status::{
    ClassEntry, Document, ExperienceEntry, FlowEntry, Gateway, GroundEntry, LinkEntry, Moved,
    PathEntry, RateEntry, Session,
};
use bentpipe_units::{BitRate, ByteSize};

/// Columns of the narrowest usual terminal.
const COLUMNS: usize = 80;

/// Width of the first column.
const NAME: usize = 30;

/// Tolerated delay of a file on a busy machine.
const LATE: Duration = Duration::from_secs(1);

/// Assumed interval of a file that does not state its own. Gateways rarely write less often.
const UNTOLD: Duration = Duration::from_secs(60);

/// Formats the document, which was written `age` ago.
pub fn of(document: &Document, age: Duration) -> String {
    let mut text = head(document, age);
    for session in &document.sessions {
        text += "\n";
        text += &session_table(session, document.detail);
    }
    if document.sessions.is_empty() {
        text +=
            "\nno session of the radio transport: of others the counters below are all there is\n";
    }
    text + &egresses(document) + &grounds(document) + &experience(document) + &counters(document)
}

fn head(document: &Document, age: Duration) -> String {
    let which = match document.gateway {
        Gateway::Air => "air",
        Gateway::Ground => "ground",
    };
    let (version, up) = (&document.version, span(Duration::from_micros(document.uptime_us)));
    let mut text = format!("{which} gateway {version}, up {up}; written {} ago\n", span(age));
    if age >= patience(document) {
        text += &format!("{}\n", no_news(age));
    }
    text
}

/// Time to wait for the next file before it counts as missing.
pub fn patience(document: &Document) -> Duration {
    match document.interval_ms {
        0 => UNTOLD,
        ms => Duration::from_millis(ms.saturating_mul(2)) + LATE,
    }
}

/// Message after `quiet` without a new file.
pub fn no_news(quiet: Duration) -> String {
    format!("no news for {}: is the gateway running?", span(quiet))
}

fn session_table(session: &Session, detail: Detail) -> String {
    let interval = Duration::from_micros(session.interval_us);
    let with = session.aircraft.as_deref().map_or("the ground", shown_name);
    let age = span(Duration::from_micros(session.age_us));
    let mut text = format!("{} with {with} for {age}; ", session.transport);
    text += &format!("rates, waits and drops of the last {}\n", span(interval));
    if session.keys_overdue {
        text += "keys overdue: something on the path may drop handshakes\n";
    }
    text += &session.link.as_ref().map_or_else(String::new, link_line);
    let directions = [("sends at", &session.sending), ("receives at", &session.receiving)];
    for (what, rate) in directions {
        text += &rate.as_ref().map_or_else(String::new, |rate| rate_line(what, rate));
    }
    session.paths.iter().for_each(|path| text += &path_line(path));
    text += &line(
        "",
        ["sent bit/s", "recv bit/s", "wait", "longest", "drops", "flows"].map(str::to_owned),
    );
    for class in &session.classes {
        class_rows(session, class, interval, &mut text);
    }
    let told = |what: &str, shown: usize, all: usize| match all.checked_sub(shown) {
        None | Some(0) => String::new(),
        Some(more) => format!("{more} more {what}\n"),
    };
    if detail != Detail::Classes {
        text += &told(
            "passengers, counted in each class",
            session.passengers.len(),
            session.all_passengers,
        );
    }
    if detail == Detail::Flows {
        text += &told("flows", session.flows.len(), session.all_flows);
    }
    text
}

/// Formats the state of the link.
fn link_line(link: &LinkEntry) -> String {
    let us = |us: u64| span(Duration::from_micros(us));
    let lost = 100.0 * link.lost_packets as f64 / link.judged_packets.max(1) as f64;
    let repairs = 100.0 * link.repair_bytes as f64 / link.sent_bytes.max(1) as f64;
    let state = match link.outage_us {
        0 => format!("heard {} ago", us(link.silence_us)),
        outage => format!("an outage for {}", us(outage)),
    };
    format!(
        "link: {state}, {} round trip, {} queue, {lost:.1} % lost, {repairs:.1} % repairs\n",
        us(link.round_trip_us),
        us(link.queue_us)
    )
}

/// Formats the state of one path of several.
fn path_line(path: &PathEntry) -> String {
    let us = |us: u64| span(Duration::from_micros(us));
    let rate = path
        .sending
        .rate_bps
        .map_or_else(|| "an unknown rate".to_owned(), |bps| BitRate::from_bps(bps).to_string());
    let use_now = match path.use_now.as_str() {
        "all" => "carries everything",
        "bulk" => "carries long downloads",
        "standby" => "on standby",
        "doubted" => "waited for",
        "silent" => "silent, probed",
        "unproven" => "not answered yet",
        "spent" => "closed until 00:00 UTC, because its daily limit is used up",
        other => shown_name(other),
    };
    let size = |bytes: u64| ByteSize::from_bytes(bytes).to_string();
    let day = path
        .daily_limit_bytes
        .zip(path.daily_used_bytes)
        .map_or_else(String::new, |(limit, used)| {
            format!(", {} of {} a day used", size(used), size(limit))
        });
    let with = path
        .loses_with
        .map_or_else(String::new, |other| format!(", at the same times as path {other}"));
    format!(
        "path {}: {use_now}; sends at {rate} ({}), {} round trip, {:.1} % lost{with}{day}\n",
        shown_name(&path.label()),
        shown_name(&path.sending.source),
        us(path.round_trip_us),
        path.loss_permille as f64 / 10.0
    )
}

/// Formats the rate of one direction with its origin and its ceiling.
fn rate_line(what: &str, rate: &RateEntry) -> String {
    let shown = |bps: u64| BitRate::from_bps(bps).to_string();
    let value = rate.rate_bps.map_or_else(|| "an unknown rate".to_owned(), shown);
    let ceiling =
        rate.ceiling_bps.map_or_else(String::new, |bps| format!(", at most {}", shown(bps)));
    format!("{what} {value} ({}{ceiling})\n", shown_name(&rate.source))
}

/// Adds the rows of a class, its passengers, and their flows.
fn class_rows(session: &Session, class: &ClassEntry, interval: Duration, text: &mut String) {
    let of_class = |other: &str| other == class.class;
    let is_used = class.open_flows > 0 || class.total != Moved::default();
    if !is_used {
        return;
    }
    *text += &row(&class.class, &class.recent, Some(class.open_flows), interval);
    let flow_row = |flow: &FlowEntry, indent: &str| {
        let name = format!("{indent}{} {}", flow.protocol, flow.target);
        row(&name, &flow.recent, None, interval)
    };
    for seat in session.passengers.iter().filter(|seat| of_class(&seat.class)) {
        let name = match &seat.name {
            Some(name) => format!("  {name}"),
            None => format!("  passenger {}", seat.passenger),
        };
        *text += &row(&name, &seat.recent, Some(seat.open_flows), interval);
        let theirs = |flow: &&FlowEntry| of_class(&flow.class) && flow.passenger == seat.passenger;
        for flow in session.flows.iter().filter(theirs) {
            *text += &flow_row(flow, "    ");
        }
    }
    // Flows of passengers who are not among the busiest.
    let is_shown = |flow: &&FlowEntry| {
        session
            .passengers
            .iter()
            .any(|seat| (&seat.class, seat.passenger) == (&flow.class, flow.passenger))
    };
    for flow in session.flows.iter().filter(|flow| of_class(&flow.class) && !is_shown(flow)) {
        *text += &flow_row(flow, "  … ");
    }
}

fn row(name: &str, moved: &Moved, flows: Option<usize>, interval: Duration) -> String {
    let rate = |bytes: u64| rate(bytes, interval);
    let wait = |micros: u64| if moved.sent_packets > 0 { short(micros) } else { "–".to_owned() };
    line(
        name,
        [
            rate(moved.sent_bytes),
            rate(moved.received_bytes),
            wait(moved.delay_mean_us),
            wait(moved.delay_max_us),
            moved.dropped_packets.to_string(),
            flows.map_or_else(String::new, |flows| flows.to_string()),
        ],
    )
}

/// Formats a line: a long name is truncated, and numbers are right-aligned.
fn line(name: &str, [sent, received, wait, longest, drops, flows]: [String; 6]) -> String {
    let mut cut = shown_name(name).to_owned();
    if cut.chars().count() > NAME {
        cut = cut.chars().take(NAME - 1).collect::<String>() + "…";
    }
    let text =
        format!("{cut:<NAME$}{sent:>11}{received:>11}{wait:>8}{longest:>8}{drops:>6}{flows:>6}");
    text.trim_end().to_owned() + "\n"
}

/// Hides names with control characters, which could move a terminal's cursor.
fn shown_name(name: &str) -> &str {
    if name.chars().any(char::is_control) { "?" } else { name }
}

/// Formats the egresses of a hub.
fn egresses(document: &Document) -> String {
    if document.egresses.is_empty() {
        return String::new();
    }
    let heads = ["is up", "round trip", "", "", "", "flows"].map(str::to_owned);
    let mut text = "\n".to_owned() + &line("egresses", heads);
    for egress in &document.egresses {
        let is_up = if egress.is_up { "yes" } else { "no" };
        let rtt = egress.round_trip_us.map(|us| span(Duration::from_micros(us)));
        let (rtt, flows) = (rtt.unwrap_or_else(|| "–".to_owned()), egress.flows_now.to_string());
        text += &line(&egress.name, [is_up, &rtt, "", "", "", &flows].map(str::to_owned));
    }
    text
}

/// Formats the other grounds of the fleet.
fn grounds(document: &Document) -> String {
    if document.grounds.is_empty() {
        return String::new();
    }
    let heads = ["role", "last news", "speaks", "load", "", ""].map(str::to_owned);
    let mut text = "\n".to_owned() + &line("other grounds of the fleet", heads);
    for ground in &document.grounds {
        text += &ground_line(ground);
    }
    text
}

fn ground_line(ground: &GroundEntry) -> String {
    let roles = match (ground.is_hub, ground.is_egress) {
        (true, true) => "hub+egress",
        (true, false) => "hub",
        (false, true) => "egress",
        (false, false) => "–",
    };
    let speaks = match (&ground.through, ground.is_connected, ground.is_leaving) {
        (_, _, true) => "stops",
        (Some(_), ..) => "relayed",
        (None, true, _) => "yes",
        (None, false, _) => "no",
    };
    let age = ground.age_us.map_or_else(|| "–".to_owned(), |us| span(Duration::from_micros(us)));
    let load = ground.load_permille.map_or_else(|| "–".to_owned(), |it| format!("{} %", it / 10));
    let parts = [roles, &age, speaks, &load, "", ""].map(str::to_owned);
    line(&ground.name, parts)
}

/// Formats the waiting times of clients.
fn experience(document: &Document) -> String {
    if document.experience.is_empty() {
        return String::new();
    }
    let up_to = |entry: &ExperienceEntry, end: Option<f64>| match end {
        Some(end) => format!("{end} s"),
        None if entry.exchanges() == entry.failed => "–".to_owned(),
        None => "longer".to_owned(),
    };
    let heads = ["first byte", "complete", "index", "", "none", "all"].map(str::to_owned);
    let mut text = "\n".to_owned() + &line("answers: half, 95 %, since start", heads);
    for entry in &document.experience {
        let name = match &*entry.rule {
            "" => entry.class.clone(),
            rule => format!("{}, {rule}", entry.class),
        };
        let index = entry.index_permille.unwrap_or_default() as f64 / 1e3;
        let index = format!("{index:.2}");
        let half = up_to(entry, entry.first_byte_p50_s());
        let most = up_to(entry, entry.completion_p95_s());
        let (failed, all) = (entry.failed.to_string(), entry.exchanges().to_string());
        text += &line(&name, [half, most, index, String::new(), failed, all]);
    }
    text
}

/// Formats the gateway's non-zero counters in as many columns as fit.
fn counters(document: &Document) -> String {
    let counted: Vec<String> = document
        .counters
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| format!("{} {n}", shown_name(name)))
        .collect();
    if counted.is_empty() {
        return String::new();
    }
    let mut text = "\nsince the gateway started:".to_owned();
    let mut width = COLUMNS;
    for one in counted {
        let length = one.chars().count();
        if width + 3 + length > COLUMNS {
            text += "\n  ";
            width = 2;
        } else {
            text += "   ";
            width += 3;
        }
        text += &one;
        width += length;
    }
    text + "\n"
}

fn rate(bytes: u64, interval: Duration) -> String {
    let seconds = interval.as_secs_f64();
    if seconds == 0.0 {
        return "–".to_owned();
    }
    let bps = bytes as f64 * 8.0 / seconds;
    match bytes {
        0 => "–".to_owned(),
        _ if bps < 1e3 => format!("{bps:.0}"),
        _ if bps < 1e6 => format!("{:.1} k", bps / 1e3),
        _ => format!("{:.2} M", bps / 1e6),
    }
}

/// Formats a delay in a short form.
fn short(micros: u64) -> String {
    let ms = micros as f64 / 1e3;
    match micros {
        0..10_000 => format!("{ms:.1} ms"),
        10_000..10_000_000 => format!("{ms:.0} ms"),
        _ => format!("{:.0} s", ms / 1e3),
    }
}

/// Formats a duration in its two largest units.
fn span(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} days {} h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests;
