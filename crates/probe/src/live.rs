//! The live table: targets, methods, round-trip times, loss, the first hop.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::address::{AddressCheck, prefix};
use crate::dns::Quadrants;
use crate::gps::GpsFix;
use crate::loss::{WINDOW_S, Window};
use crate::objects::ObjectPair;
use crate::ping::{Outcome, PATIENCE, Ping};
use crate::portal::{Api, PortalState};
use crate::rate::{Direction, Limit, short};
use crate::record::{Measurement, Network, Record};
use crate::statistics::quantile;
use crate::target::{Family, Method, Target};
use crate::trace::{Trace, TraceEnd};

/// Maximum number of round-trip times kept for each target: 28 h. 50,400 × 8 bytes = 400 kB.
const MAX_RTTS: usize = 50_400;

/// Width of the table, so that it fits a terminal of 80 columns.
const NAME_WIDTH: usize = 18;

/// State of the table.
#[derive(Debug)]
pub struct Live {
    start_us: u64,
    rows: Vec<Row>,
    traces: u64,
    trace: Option<Trace>,
    pairs: u64,
    pairs_failed: u64,
    objects: [u64; 2],
    limits: BTreeMap<Direction, Option<Limit>>,
    goodputs: BTreeMap<Direction, Option<u64>>,
    epbs: BTreeMap<Direction, Option<f64>>,
    portal: Option<PortalState>,
    api: Option<Api>,
    public: BTreeMap<Family, AddressCheck>,
    changes: u64,
    position: Option<Option<GpsFix>>,
    network: Network,
    notice: Option<String>,
}

#[derive(Debug)]
struct Row {
    name: String,
    address: IpAddr,
    method: Option<Method>,
    rtts_us: VecDeque<u64>,
    last: Option<Outcome>,
    /// Pings whose fate is known, of the last 100 s, with their time of sending.
    recent: VecDeque<(u64, Outcome)>,
}

impl Live {
    /// The table of a run that starts at boot time `start_us`.
    pub fn new(start_us: u64, targets: &[Target]) -> Self {
        let row = |target: &Target| Row {
            name: target.name.clone(),
            address: target.address,
            method: None,
            rtts_us: VecDeque::new(),
            last: None,
            recent: VecDeque::new(),
        };
        Self {
            start_us,
            rows: targets.iter().map(row).collect(),
            traces: 0,
            trace: None,
            pairs: 0,
            pairs_failed: 0,
            objects: [0; 2],
            limits: BTreeMap::new(),
            goodputs: BTreeMap::new(),
            epbs: BTreeMap::new(),
            portal: None,
            api: None,
            public: BTreeMap::new(),
            changes: 0,
            position: None,
            network: Network::default(),
            notice: None,
        }
    }

    /// Sets or clears the line about trouble, for example with the disk.
    pub fn set_notice(&mut self, notice: Option<String>) {
        self.notice = notice;
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        match &record.measurement {
            Measurement::Ping(ping) if !ping.scout => self.add_ping(record.began.boot_us, ping),
            Measurement::Trace(trace) => {
                self.traces += 1;
                self.trace = Some(trace.clone());
            }
            Measurement::Dns(pair) => {
                self.pairs += 1;
                self.pairs_failed += u64::from(Quadrants::of([pair], u64::MAX).failed);
            }
            Measurement::Objects(pair) => self.add_objects(pair),
            Measurement::Rate(check) => {
                self.limits.insert(check.direction, check.limit);
            }
            Measurement::Ndt7(test) => {
                self.goodputs.insert(test.direction, test.goodput_bps());
            }
            Measurement::Epb(test) => {
                self.epbs.insert(test.direction, test.ratio());
            }
            Measurement::Portal(check) => {
                self.portal = Some(check.state.clone());
                if check.api_answer.is_some() || check.api_failure.is_some() || check.api.is_none()
                {
                    self.api = check.api_answer.clone();
                }
            }
            Measurement::Address(check) => {
                self.changes += u64::from(check.changed);
                self.public.insert(check.family, check.clone());
            }
            Measurement::Gps(check) => self.position = Some(check.fix.clone()),
            Measurement::Network(network) => self.network = network.clone(),
            _ => {}
        }
    }

    fn add_objects(&mut self, pair: &ObjectPair) {
        for fetch in [Some(&pair.first), pair.second.as_ref()].into_iter().flatten() {
            self.objects[0] += 1;
            self.objects[1] += u64::from(!fetch.answered());
        }
    }

    fn add_ping(&mut self, sent_us: u64, ping: &Ping) {
        let Some(row) = self.rows.iter_mut().find(|row| row.name == ping.target) else { return };
        // Another method has another path: perhaps only to a proxy in the cabin.
        if row.method.replace(ping.method).is_some_and(|before| before != ping.method) {
            row.rtts_us.clear();
            row.recent.clear();
        }
        row.last = Some(ping.outcome.clone());
        row.recent.push_back((sent_us, ping.outcome.clone()));
        if let Some(rtt) = ping.outcome.rtt_us() {
            if row.rtts_us.len() == MAX_RTTS {
                row.rtts_us.pop_front();
            }
            row.rtts_us.push_back(rtt);
        }
    }

    /// The table at boot time `now_us`, as lines of at most 80 columns.
    pub fn lines(&mut self, now_us: u64) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<NAME_WIDTH$} {:<8} {:>8} {:>8} {:>8} {:>8} {:>11}",
            "target", "method", "last", "min", "median", "p95", "loss 100 s"
        )];
        for row in &mut self.rows {
            lines.push(row.line(now_us));
        }
        lines.push(String::new());
        lines.extend(self.access());
        lines.extend(self.first_hop());
        if self.pairs > 0 {
            lines.push(format!("dns        {} pairs, {} failed", self.pairs, self.pairs_failed));
        }
        if self.objects[0] > 0 {
            let [fetches, failed] = self.objects;
            lines.push(format!("http       {fetches} fetches, {failed} failed"));
        }
        for (direction, limit) in &self.limits {
            let text = limit.map_or_else(|| "no answer of the origin".into(), |limit| limit.text());
            lines.push(format!("rate {:<5} {text}", direction.name()));
        }
        for (direction, goodput) in &self.goodputs {
            let text =
                goodput.map_or_else(|| "failed".into(), |bps| format!("{}bit/s", short(bps)));
            lines.push(format!("ndt7 {:<5} {text}", direction.name()));
        }
        for (direction, ratio) in &self.epbs {
            let text =
                ratio.map_or_else(|| "failed".into(), |part| format!("{:.0} %", 100.0 * part));
            lines.push(format!("epb {:<6} {text}", direction.name()));
        }
        lines.extend(self.position.as_ref().map(|fix| position_line(fix.as_ref())));
        let elapsed = Duration::from_micros(now_us.saturating_sub(self.start_us)).as_secs();
        let (h, m, s) = (elapsed / 3600, elapsed / 60 % 60, elapsed % 60);
        lines.push(format!("running    {h}:{m:02}:{s:02}"));
        lines.extend(self.notice.iter().map(|notice| format!("! {notice}")));
        lines
    }

    fn access(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let network = &self.network;
        let routes = match (network.ipv4, network.ipv6) {
            (true, true) => "IPv4 and IPv6",
            (true, false) => "IPv4 only",
            (false, true) => "IPv6 only",
            (false, false) => {
                "no network: no route to the Internet, neither IPv4 nor IPv6. Join the Wi-Fi"
            }
        };
        lines.push(format!("access     {routes}"));
        match &self.portal {
            Some(PortalState::Captive { location }) => {
                let named = self.api.as_ref().and_then(|api| api.user_portal_url.as_deref());
                let place = named.or(location.as_deref()).unwrap_or("(it names no page)");
                lines.push(format!("portal     CAPTIVE: log in with a browser: {place}"));
            }
            Some(PortalState::Open) => lines.push("portal     open".into()),
            Some(PortalState::Unknown) => lines.push("portal     unknown: no answer".into()),
            None => {}
        }
        lines.extend(self.api.as_ref().map(api_line));
        lines.extend(self.public.values().map(public_line));
        if self.changes > 0 {
            lines.push(format!("           changes of the address: {}", self.changes));
        }
        lines
    }

    fn first_hop(&self) -> Vec<String> {
        let Some(trace) = &self.trace else { return vec!["first hop  …".into()] };
        let mut line = String::from("first hop  ");
        match trace.hops.first().filter(|hop| hop.ttl == 1).and_then(|hop| hop.fastest()) {
            Some((from, rtt_us)) => _ = write!(line, "{from}  {} ms", ms(rtt_us)),
            None => line.push_str("silent"),
        }
        _ = match trace.end {
            TraceEnd::Reached => write!(line, "; {} is hop {}", trace.target, trace.hops.len()),
            TraceEnd::Refused => write!(line, "; refused at hop {}", trace.hops.len()),
            TraceEnd::Died { after_ttl } => write!(line, "; the path dies after hop {after_ttl}"),
        };
        vec![line]
    }
}

fn position_line(fix: Option<&GpsFix>) -> String {
    let Some(fix) = fix else { return "position   unknown: no fix".into() };
    let side = |degrees: f64, sides: [char; 2]| {
        format!("{:.3} {}", degrees.abs(), sides[usize::from(degrees < 0.0)])
    };
    let mut line = String::from("position   ");
    _ = write!(line, "{} {}", side(fix.latitude, ['N', 'S']), side(fix.longitude, ['E', 'W']));
    if let Some(altitude) = fix.altitude_m {
        _ = write!(line, ", {altitude:.0} m");
    }
    line
}

/// The answer of the network's own API.
fn api_line(api: &Api) -> String {
    let mut line = String::from(if api.captive { "portal API captive" } else { "portal API open" });
    if let Some(seconds) = api.seconds_remaining {
        _ = write!(line, ", {} min left", seconds / 60);
    }
    if let Some(bytes) = api.bytes_remaining {
        _ = write!(line, ", {}B left", short(bytes));
    }
    line
}

fn public_line(check: &AddressCheck) -> String {
    let Some(network) = check.network else {
        let family = match check.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        return format!("address    {family} unknown: no answer");
    };
    let mut line = format!("address    {}", prefix(network));
    if let Some(system) = &check.system {
        _ = write!(line, "  AS{} {}", system.asn, system.name);
    }
    line
}

impl Row {
    fn line(&mut self, now_us: u64) -> String {
        let horizon = now_us.saturating_sub(WINDOW_S * 1_000_000 + crate::micros(PATIENCE));
        while self.recent.front().is_some_and(|(sent, _)| *sent < horizon) {
            self.recent.pop_front();
        }
        let mut window = Window::default();
        self.recent.iter().for_each(|(_, outcome)| window.count(outcome));
        let mut sorted: Vec<u64> = self.rtts_us.iter().copied().collect();
        sorted.sort_unstable();
        let at = |q| quantile(&sorted, q).map_or_else(|| "–".into(), ms);
        let last = match &self.last {
            None => "…".into(),
            Some(Outcome::Lost) => "lost".into(),
            Some(Outcome::Failed { .. }) => "unsent".into(),
            Some(reply) => reply.rtt_us().map_or_else(String::new, ms),
        };
        let loss = match window.loss() {
            None => "–".into(),
            Some(loss) => format!("{:.0} % of {}", 100.0 * loss, window.sent),
        };
        let method = self.method.map_or_else(|| "…".into(), |method| method.to_string());
        let name = if self.name.is_empty() { self.address.to_string() } else { self.name.clone() };
        let name: String = name.chars().take(NAME_WIDTH).collect();
        let (min, median, p95) = (at(0.0), at(0.5), at(0.95));
        format!(
            "{name:<NAME_WIDTH$} {method:<8} {last:>8} {min:>8} {median:>8} {p95:>8} {loss:>11}"
        )
    }
}

/// Milliseconds with three significant digits.
pub fn ms(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::portal::PortalCheck;
    use crate::target::Side;

    const S: u64 = 1_000_000;

    fn ping(sent_us: u64, outcome: Outcome) -> Record {
        let address = IpAddr::from([1, 1, 1, 1]);
        let ping = Ping {
            target: "one".into(),
            address,
            method: Method::Icmp,
            sequence: 0,
            scout: false,
            start_error_us: 0,
            outcome,
        };
        Record {
            number: 1,
            began: Moment { boot_us: sent_us, wall_us: 0 },
            clock_age_s: -1,
            runtime_us: 0,
            quiet: false,
            activity: None,
            concurrent: Vec::new(),
            measurement: Measurement::Ping(ping),
        }
    }

    fn live() -> Live {
        let one = Target::automatic("one", IpAddr::from([1, 1, 1, 1]), 443, Side::Far);
        Live::new(0, &[one])
    }

    #[test]
    fn a_row_tells_the_last_100_s_and_all_round_trip_times() {
        let mut live = live();
        for k in 0..100 {
            let outcome = match k {
                5 | 80 => Outcome::Lost,
                k => Outcome::Reply { rtt_us: (700 + k) * 1000, refused: false },
            };
            live.add(&ping(2 * k * S, outcome));
        }
        let row = live.lines(208 * S)[1].clone();
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            columns,
            ["one", "icmp", "799", "700", "749", "795", "2", "%", "of", "51"],
            "{row}"
        );
        assert!(row.chars().count() <= 80);
        let scout = Measurement::Ping(match ping(0, Outcome::Lost).measurement {
            Measurement::Ping(ping) => Ping { scout: true, ..ping },
            _ => unreachable!("made above"),
        });
        live.add(&Record { measurement: scout, ..ping(207 * S, Outcome::Lost) });
        assert_eq!(live.lines(208 * S)[1], row, "scouts have no part in it");
    }

    #[test]
    fn another_method_starts_over() {
        let mut live = live();
        live.add(&ping(0, Outcome::Reply { rtt_us: 700_000, refused: false }));
        let mut other = ping(2 * S, Outcome::Reply { rtt_us: 2000, refused: false });
        if let Measurement::Ping(ping) = &mut other.measurement {
            ping.method = Method::Tcp { port: 443 };
        }
        live.add(&other);
        let row = live.lines(3 * S)[1].clone();
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            columns,
            ["one", "tcp/443", "2.00", "2.00", "2.00", "2.00", "0", "%", "of", "1"]
        );
    }

    #[test]
    fn nothing_is_invented_before_the_first_reply() {
        let mut live = live();
        let lines = live.lines(S);
        assert!(lines[1].contains('…') && !lines[1].contains('%'), "{}", lines[1]);
        assert!(lines.iter().any(|line| line.contains("no network")));
        live.add(&ping(0, Outcome::Failed { failure: "network_unreachable".into() }));
        assert!(live.lines(S)[1].contains("unsent"));
    }

    #[test]
    fn limits_have_a_line_each() {
        let mut live = live();
        let limit = Some(Limit::Policer { rate_bps: 100_400, burst_bytes: 6020 });
        for (direction, limit) in [(Direction::Up, None), (Direction::Down, limit)] {
            let check = crate::rate::RateCheck {
                server: None,
                direction,
                limit,
                trains: Vec::new(),
                failure: None,
            };
            let measurement = Measurement::Rate(Box::new(check));
            live.add(&Record { measurement, ..ping(0, Outcome::Lost) });
        }
        let lines = live.lines(S);
        for line in
            ["rate down  100 kbit/s, policer, burst 6.02 kB", "rate up    no answer of the origin"]
        {
            assert!(lines.contains(&line.into()), "{lines:#?}");
        }
    }

    #[test]
    fn the_networks_own_api_has_a_line() {
        let mut live = live();
        let json = br#"{"captive": false, "seconds-remaining": 3599, "bytes-remaining": 2500000}"#;
        let check = PortalCheck {
            url: "http://page.example/".into(),
            state: PortalState::Open,
            status: Some(204),
            rtt_us: None,
            failure: None,
            api: Some("https://wifi.example/".into()),
            api_answer: Api::parse(json).ok(),
            api_failure: None,
        };
        let record = |check: &PortalCheck| Record {
            measurement: Measurement::Portal(Box::new(check.clone())),
            ..ping(0, Outcome::Lost)
        };
        live.add(&record(&check));
        live.add(&record(&PortalCheck { api_answer: None, ..check }));
        let line = "portal API open, 59 min left, 2.50 MB left";
        assert!(live.lines(S).contains(&line.into()), "{:#?}", live.lines(S));
    }

    #[test]
    fn a_position_has_a_line() {
        let mut fix = GpsFix {
            time: None,
            latitude: 47.45,
            longitude: -8.55,
            altitude_m: Some(10_668.2),
            speed_mps: None,
            error_m: None,
        };
        assert_eq!(position_line(Some(&fix)), "position   47.450 N 8.550 W, 10668 m");
        fix.altitude_m = None;
        assert_eq!(position_line(Some(&fix)), "position   47.450 N 8.550 W");
        assert_eq!(position_line(None), "position   unknown: no fix");
    }

    #[test]
    fn three_digits() {
        assert_eq!([ms(1234), ms(45_678), ms(761_234)], ["1.23", "45.7", "761"]);
    }
}
