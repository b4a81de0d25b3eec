//! Overload: what each attack does to a passenger who browses.
//!
//! Each attack has a world of its own with both gateways as programs under their default limits. A
//! victim first loads pages undisturbed, with small exchanges beside them. Then an attacker, ten times
//! as strong as the attack is stated, goes on while the victim does the same again. The pass line is the
//! victim's, together with the gateways' memory; what becomes of the attacker is told beside it.

mod assault;
mod cabin;
mod files;
mod scene;
mod site;
mod stranger;
mod victim;

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ExperimentError;
use super::report::{Goal, Report, row};
use super::table::{align, seconds, table, written};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Samples};
use assault::Assault;
use files::BOUND_BYTES;
use scene::Scene;
use victim::Seen;

/// The link unless told otherwise: 20/2 Mbit/s, 600 ms.
pub const DEFAULT_PROFILE: &str = "geo-satl";
/// Pages before the attack, and as many in it, unless told otherwise.
pub const DEFAULT_PAGES: u16 = 5;
/// Strength of the attacker against what is stated, unless told otherwise.
pub const DEFAULT_FACTOR: u32 = 10;

/// An attack stands after this at the latest, or goes on as it is.
const STAND_LIMIT: Duration = Duration::from_secs(40);
/// Distance of two looks at memory and at the attack.
const LOOK: Duration = Duration::from_millis(200);
/// An attack that takes this many times the memory bound is ended, for this machine's sake.
const END_AT: f64 = 2.0;

/// Upper bound of the victim's page in the attack over its page before, medians both.
const MAX_SLOWDOWN: f64 = 1.25;

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Idle TCP connections from 1,000 addresses of both families, of one device.
    Addresses,
    /// Idle TCP connections from nine addresses of one device.
    SybilTcp,
    /// UDP datagrams with invented source addresses and ports.
    SpoofedUdp,
    /// TCP connections that are reset after a moment.
    OpenRate,
    /// Requests over HTTP/2 to the operator's own site that are never answered.
    SiteFlows,
    /// Requests over HTTP/2 for large objects of which nothing is read.
    SiteHold,
    /// HTTP/2 streams that are reset at once.
    SiteReset,
    /// Forged handshake responses to the air.
    ResponseFlood,
    /// Datagrams of no session to the ground.
    HubJunk,
    /// UDP flows on a ground with 1,000 ports.
    HubPorts,
    /// Handshakes with a right mac1 and nothing else.
    InitFlood,
    /// Names for the addresses that stand for them.
    InstantPool,
}

/// An experiment.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The link.
    pub profile: Profile,
    /// The attacks, each in a world of its own.
    pub attacks: Vec<Attack>,
    /// Pages before the attack, and as many in it.
    pub pages: u16,
    /// Strength of the attacker against what is stated.
    pub factor: u32,
    /// Seed of the link's losses and of the attacker's random bytes.
    pub seed: u64,
}

/// The name is not one of an attack.
#[derive(Debug, thiserror::Error)]
#[error("there is no attack {0:?}; write one of {names}", names = Attack::ALL.map(Attack::name).join(", "))]
pub struct UnknownAttack(String);

/// All that came of an attack.
struct Found {
    attack: Attack,
    /// Before it, and in it.
    seen: [Seen; 2],
    /// Attempts, and those that the attacker saw refused.
    counts: [u64; 2],
    /// The most memory of the air and of the ground.
    peak_bytes: [u64; 2],
}

/// Plays all attacks, one after the other. The gateways are `program`; files lie in `folder`.
pub fn run(choice: &Choice, program: &Path, folder: &Path) -> Result<Report, ExperimentError> {
    let mut all = Vec::new();
    for attack in &choice.attacks {
        let folder = folder.join(attack.name());
        std::fs::create_dir(&folder).map_err(ExperimentError::Folder)?;
        all.push(one(choice, *attack, program, &folder)?);
    }
    Ok(Report {
        text: text(choice, &all),
        rows: all.iter().flat_map(|found| found.rows(choice)).collect(),
        goals: all.iter().flat_map(Found::goals).collect(),
    })
}

fn one(
    choice: &Choice,
    attack: Attack,
    program: &Path,
    folder: &Path,
) -> Result<Found, ExperimentError> {
    let mut scene = Scene::start((&choice.profile, choice.seed), attack, program, folder)?;
    let host = scene.world.client.clone();
    let found = host.run(|| scene.runtime.block_on(play(choice, attack, &scene)))??;
    if scene.world.radio_counters()?.unmodelled() > 0 {
        return Err(ExperimentError::Unmodelled(scene.world.radio_counters()?.unmodelled()));
    }
    let mut found = found;
    if let Err(error) = scene.pair.check() {
        found.seen[1].failures.push(error.to_string());
    }
    Ok(found)
}

async fn play(choice: &Choice, attack: Attack, scene: &Scene) -> Result<Found, ExperimentError> {
    victim::wait().await?;
    let pages = u64::from(choice.pages);
    let [calm, attacked] = [RefCell::<Seen>::default(), RefCell::default()];
    // The first page meets gateways that have never carried one.
    victim::browse(scene, attack, 0..1, &RefCell::default()).await?;
    victim::browse(scene, attack, 1..1 + pages, &calm).await?;
    let assault = Assault::start(scene, attack, choice.factor, choice.seed)?;
    let mut peak_bytes = [0; 2];
    let browse = async {
        let began = Instant::now();
        while !assault.stands() && began.elapsed() < STAND_LIMIT {
            sleep(LOOK).await;
        }
        victim::browse(scene, attack, 1 + pages..1 + 2 * pages, &attacked).await
    };
    let ended = tokio::select! {
        browsed = browse => browsed.map(|()| None)?,
        why = watch(scene, &mut peak_bytes) => Some(why),
    };
    attacked.borrow_mut().failures.extend(ended);
    let (seen, counts) = ([calm.into_inner(), attacked.into_inner()], assault.counts());
    Ok(Found { attack, seen, counts, peak_bytes })
}

/// Looks at the gateways' memory until there is much too much of it; then says so.
async fn watch(scene: &Scene, peak_bytes: &mut [u64; 2]) -> String {
    loop {
        let now = scene.resident_bytes();
        for which in 0..2 {
            peak_bytes[which] = peak_bytes[which].max(now[which]);
            if now[which] as f64 > END_AT * BOUND_BYTES[which] as f64 {
                let name = ["air", "ground"][which];
                return format!(
                    "ended early: the {name} gateway has {} MB",
                    now[which] / 1_000_000
                );
            }
        }
        sleep(LOOK).await;
    }
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::SybilTcp,
        Self::Addresses,
        Self::SpoofedUdp,
        Self::OpenRate,
        Self::SiteFlows,
        Self::SiteHold,
        Self::SiteReset,
        Self::ResponseFlood,
        Self::HubJunk,
        Self::HubPorts,
        Self::InitFlood,
        Self::InstantPool,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Addresses => "addresses",
            Self::SybilTcp => "sybil-tcp",
            Self::SpoofedUdp => "spoofed-udp",
            Self::OpenRate => "open-rate",
            Self::SiteFlows => "site-flows",
            Self::SiteHold => "site-hold",
            Self::SiteReset => "site-reset",
            Self::ResponseFlood => "response-flood",
            Self::HubJunk => "hub-junk",
            Self::HubPorts => "hub-ports",
            Self::InitFlood => "init-flood",
            Self::InstantPool => "instant-pool",
        }
    }

    /// Its stated strength: connections or flows that are held, or attempts a second.
    fn stated(self) -> u32 {
        match self {
            // Half of a cabin's connections.
            Self::Addresses | Self::SybilTcp => 2_048,
            // 4,096 flows that end after 30 s.
            Self::SpoofedUdp => 150,
            // More than a ground takes of an aircraft, 500/s.
            Self::OpenRate => 900,
            // × 100 streams: more than the 4,096 flows of an aircraft.
            Self::SiteFlows => 60,
            // × 100 streams × 400 KiB = 800 MB in a gateway that buffers as hyper does by default.
            Self::SiteHold => 20,
            Self::SiteReset => 1,
            // 11 Mbit/s on Ethernet.
            Self::ResponseFlood => 10_000,
            Self::HubJunk => 5_000,
            // 1,020 for each of two addresses.
            Self::HubPorts => 2_040,
            Self::InitFlood => 2_000,
            // 65,536 addresses in 73 s.
            Self::InstantPool => 900,
        }
    }

    /// Addresses of the attacker's device beyond its first two, of IPv4 and of IPv6.
    fn more_addresses(self) -> (u8, u16) {
        match self {
            Self::SybilTcp => (7, 0),
            // 1,000 in all.
            Self::Addresses | Self::HubPorts | Self::InstantPool => (250, 748),
            _ => (0, 0),
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Attack {
    type Err = UnknownAttack;

    fn from_str(name: &str) -> Result<Self, UnknownAttack> {
        let found = Self::ALL.into_iter().find(|attack| attack.name() == name);
        found.ok_or_else(|| UnknownAttack(name.to_owned()))
    }
}

impl Found {
    /// Median of the victim's page in the attack over that before it.
    fn slowdown(&self) -> Option<f64> {
        let [calm, attacked] = [0, 1].map(|which| median(&self.seen[which].pages));
        Some(attacked? / calm?)
    }

    fn rows(&self, choice: &Choice) -> Vec<Row> {
        let new = |part: &str, metric: &str| {
            let workload = format!("{}{part}", self.attack);
            let row = row("attacks", &choice.profile, workload, metric, choice.seed);
            Row { engine: "emu".into(), ..row }
        };
        let one = |value: f64, row: Row| [value].into_iter().collect::<Samples>().fill(row);
        let mut rows = Vec::new();
        for (part, seen) in [", before", ""].into_iter().zip(&self.seen) {
            rows.push(seen.pages.fill(new(part, "plt")));
            let failures = Row { unit: "count".into(), ..new(part, "failures") };
            rows.push(one(seen.failures.len() as f64, failures));
        }
        for which in 0..2 {
            let part = [", air", ", ground"][which];
            let limit = Some(BOUND_BYTES[which] as f64);
            let memory = Row { unit: "bytes".into(), limit, ..new(part, "memory") };
            rows.push(one(self.peak_bytes[which] as f64, memory));
        }
        rows
    }

    fn goals(&self) -> Vec<Goal> {
        let of = |what: &str| format!("{}: {what}", self.attack);
        let failures = self.seen.iter().map(|seen| seen.failures.len()).sum::<usize>();
        let memory = |which: usize| self.peak_bytes[which] as f64 / BOUND_BYTES[which] as f64;
        vec![
            Goal::ratio_at_most(of("page ÷ undisturbed"), self.slowdown(), MAX_SLOWDOWN),
            Goal::ratio_at_most(of("failures"), Some(failures as f64), 0.0),
            Goal::ratio_at_most(of("air's memory ÷ bound"), Some(memory(0)), 1.0),
            Goal::ratio_at_most(of("ground's memory ÷ bound"), Some(memory(1)), 1.0),
        ]
    }
}

fn median(samples: &Samples) -> Option<f64> {
    samples.percentile(0.5).and_then(Percentile::known)
}

fn text(choice: &Choice, all: &[Found]) -> String {
    let header = ["attack", "attempts", "refused", "before", "in it", "failed", "air", "ground"];
    let mut table = table(&header);
    for found in all {
        let [calm, attacked] = &found.seen;
        let tried = attacked.pages.len() as u64 + attacked.probes;
        let megabytes = |which: usize| format!("{} MB", found.peak_bytes[which] / 1_000_000);
        table.add_row([
            found.attack.to_string(),
            found.counts[0].to_string(),
            found.counts[1].to_string(),
            written(calm.pages.percentile(0.5), seconds),
            written(attacked.pages.percentile(0.5), seconds),
            format!("{}/{tried}", attacked.failures.len()),
            megabytes(0),
            megabytes(1),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4, 5, 6, 7]);
    let mut text = format!(
        "{}\nA passenger's page of 36 objects (medians of {}) and small exchanges beside it,\n\
         before each attack and in it, {} × as strong as stated; the most memory of\n\
         either gateway.\n\n{}\n",
        choice.profile.about,
        choice.pages,
        choice.factor,
        table.trim_fmt()
    );
    for found in all {
        for (when, seen) in ["before it", "in it"].into_iter().zip(&found.seen) {
            if let Some(first) = seen.failures.first() {
                let (attack, count) = (found.attack, seen.failures.len());
                text.push_str(&format!("{attack}: {count} failed {when}; the first: {first}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: f64, attacked: &[f64], failures: usize, air: u64) -> Found {
        let seen = |pages: &[f64], failures| Seen {
            pages: pages.iter().copied().collect(),
            probes: 8,
            failures: vec!["datagram: no answer".into(); failures],
        };
        Found {
            attack: Attack::OpenRate,
            seen: [seen(&[before; 3], 0), seen(attacked, failures)],
            counts: [9000, 12],
            peak_bytes: [air, 1 << 20],
        }
    }

    #[test]
    fn the_victims_page_its_failures_and_memory_decide() {
        let missed = |found: Found| {
            let goals = found.goals();
            let missed = goals.iter().filter(|goal| !goal.holds()).map(|goal| goal.to_string());
            missed.collect::<Vec<_>>()
        };
        assert_eq!(missed(found(2.0, &[2.0, 2.5, 9.0], 0, BOUND_BYTES[0])), [""; 0]);
        assert_eq!(missed(found(2.0, &[2.51; 3], 0, 1)), ["open-rate: page ÷ undisturbed"]);
        assert_eq!(missed(found(2.0, &[2.0; 3], 1, 1)), ["open-rate: failures"]);
        let much = BOUND_BYTES[0] + 1;
        assert_eq!(missed(found(2.0, &[2.0; 3], 0, much)), ["open-rate: air's memory ÷ bound"]);
        // An attack that left no page is not one that did no harm.
        assert_eq!(missed(found(2.0, &[], 0, 1)), ["open-rate: page ÷ undisturbed"]);
    }

    #[test]
    fn the_table_fits_a_terminal_and_says_what_failed_first() {
        let profile = Profile::named(DEFAULT_PROFILE).unwrap();
        let attacks = Attack::ALL.to_vec();
        let choice = Choice { profile, attacks, pages: 3, factor: 10, seed: 1 };
        let text = text(&choice, &[found(2.0, &[2.5; 3], 2, 31 << 20)]);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}\n{text}");
        assert!(
            text.contains("open-rate: 2 failed in it; the first: datagram: no answer"),
            "{text}"
        );
    }

    #[test]
    fn attacks_are_known_by_their_names() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse::<Attack>().unwrap(), attack);
        }
        let error = "sybil".parse::<Attack>().unwrap_err().to_string();
        assert!(error.contains("sybil-tcp"), "{error}");
    }
}
