//! Attacks that need no kernel, in virtual time: the transport alone, an aircraft that loads pages,
//! and strangers or hostile aircraft.
//!
//! Processing takes no time here, so a figure shows only the effect of the protocol and of the
//! transport's limits. The run without the attack has the same seed, so the link loses the same
//! packets as long as the same packets are sent.

mod testbed;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::secure::{DATA, MacKey, RESPONSE};
use bentpipe_link::{Core, Settings};
use bentpipe_units::ByteSize;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::stranger::{JUNK_BYTES, RESPONSE_BYTES, init};
use super::{Attack, Choice};
use crate::experiment::report::{Goal, Report, row};
use crate::experiment::table::{align, seconds, table, written};
use crate::result::{Row, Sample, Samples};
use testbed::{FlowKey, HUB, MAX_FLOWS, RESERVE, Testbed};

/// Size of a page, a single response.
const PAGE_BYTES: u64 = 360_000;
/// Time after which an incomplete page counts as failed.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two pages.
const PAUSE: Duration = Duration::from_millis(500);
/// Time for all aircraft to set up their sessions.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Time, in addition to three round trips, for an aircraft that restarts during an attack to set up
/// its session.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// Memory that the hub may lend to all sessions, in addition to the reserves of their flows.
const MEMORY: ByteSize = ByteSize::from_bytes(64 << 20);
/// Curve operations per second for handshakes.
const OPERATIONS_PER_S: f64 = 1_000.0;
/// Maximum number of unused operations that may be saved up.
const SAVED_OPERATIONS: f64 = 1_000.0;
/// Number of aircraft that vanish during a download, for each tenth of the stated strength.
const VANISHING: usize = 100;
/// Size of the endless downloads.
const ENDLESS: u64 = u64::MAX;
/// Maximum ratio of the victim's median page time with the attack to that without it.
const MAX_SLOWDOWN: f64 = 1.25;

/// Results of an attack. `pages` are without it and with it.
struct Played {
    attack: Attack,
    pages: [Samples; 2],
    failures: Vec<String>,
    /// Maximum bytes that the hub held for sessions.
    held_bytes: u64,
    /// Bound of these bytes: the memory that the hub lends, and the reserves of the maximum number
    /// of concurrently open flows.
    bound_bytes: u64,
    /// Ratio of curve operations to their bound.
    operations: f64,
    /// Ratio of the bytes sent to strangers to the bytes received from them.
    amplification: f64,
    /// Attempts, and those that were refused.
    counts: [u64; 2],
}

/// Loads the victim's pages, one after the other.
struct Browser {
    page: Option<(FlowKey, Duration, u64)>,
    next_at: Duration,
    number: u32,
    pages: Samples,
    failures: Vec<String>,
}

/// An attacker, which acts once in each step.
struct Attacker {
    attack: Attack,
    rate: u64,
    made: u64,
    refused: u64,
    rng: ChaCha8Rng,
    mac: MacKey,
    held: Vec<FlowKey>,
    number: u32,
}

/// Plays all attacks of `choice` that need no kernel.
pub fn run(choice: &Choice) -> Report {
    let attacks = choice.attacks.iter().copied().filter(|attack| attack.is_simulated());
    let all: Vec<_> = attacks.map(|attack| play(choice, attack)).collect();
    Report {
        text: text(choice, &all),
        rows: all.iter().flat_map(|played| played.rows(choice)).collect(),
        goals: all.iter().flat_map(Played::goals).collect(),
    }
}

fn play(choice: &Choice, attack: Attack) -> Played {
    let calm = one(choice, attack, 0);
    let attacked = one(choice, attack, choice.factor);
    let failures = calm.failures.into_iter().chain(attacked.failures).collect();
    let [calm_pages, _] = calm.pages;
    let [attacked_pages, _] = attacked.pages;
    Played { pages: [calm_pages, attacked_pages], failures, ..attacked }
}

/// A run at `factor` times the stated strength. Its pages are the first entry of `pages`.
fn one(choice: &Choice, attack: Attack, factor: u32) -> Played {
    let vanishing = VANISHING * choice.factor as usize;
    let others = match attack {
        Attack::Vanish => vanishing,
        Attack::Hoard | Attack::OpenRate => 1,
        _ => 0,
    };
    let mut testbed = Testbed::new(&choice.profile, 1 + others, choice.seed);
    testbed.hub.set_memory(MEMORY);
    let mut failures = Vec::new();
    connect(&mut testbed, &mut failures);
    let mut attacker = Attacker::new(attack, u64::from(factor), choice.seed, &testbed);
    let idle = testbed.hub.held_bytes();
    attacker.begin(&mut testbed);
    let began = testbed.now;
    let operations = testbed.hub.curve_operations();
    let mut browser = Browser::new(testbed.now);
    let mut held_bytes = 0;
    while browser.pages.0.len() < usize::from(choice.pages) {
        attacker.act(&mut testbed);
        browser.act(&mut testbed);
        testbed.step(PAGE_BYTES);
        held_bytes = held_bytes.max(testbed.hub.held_bytes());
    }
    let hoarded = if attack == Attack::Vanish { others as u64 } else { u64::from(MAX_FLOWS) };
    let flows = 1 + if others > 0 { hoarded } else { 0 };
    let lasted = (testbed.now - began).as_secs_f64();
    let most = OPERATIONS_PER_S * lasted + SAVED_OPERATIONS;
    let operations = (testbed.hub.curve_operations() - operations) as f64 / most;
    if factor > 0 {
        attacker.end(&mut testbed, idle, &choice.profile.link.rtt(), &mut failures);
    }
    failures.extend(browser.failures);
    let [came, sent] = testbed.strangers_bytes;
    let refused = testbed.hub.take_refused();
    let of_memory = refused.memory.map_or(0, |memory| memory.refused);
    let of_strangers = refused.datagrams + refused.handshakes;
    // A flow that ends before it is sent takes no place, so that nothing is refused.
    let reached = if attack == Attack::OpenRate { testbed.hostile_flows } else { 0 };
    let of_air = testbed.airs[0].as_mut().map_or(0, |air| air.take_refused().datagrams);
    Played {
        attack,
        pages: [browser.pages, Samples::default()],
        failures,
        held_bytes,
        bound_bytes: MEMORY.bytes() + flows * RESERVE.bytes(),
        operations,
        amplification: sent as f64 / came.max(1) as f64,
        counts: [attacker.made, attacker.refused + reached + of_memory + of_strangers + of_air],
    }
}

/// Runs until every aircraft has a session.
fn connect(testbed: &mut Testbed, failures: &mut Vec<String>) {
    let aircraft = testbed.airs.len() as u64;
    while testbed.hub.sessions_begun() < aircraft {
        if testbed.now > CONNECT_LIMIT {
            failures.push(format!("{} of {aircraft} sessions", testbed.hub.sessions_begun()));
            return;
        }
        testbed.step(0);
    }
    let until = testbed.now + Duration::from_secs(3);
    while testbed.now < until {
        testbed.step(0);
    }
}

impl Browser {
    fn new(now: Duration) -> Self {
        let (pages, failures) = Default::default();
        // The victim's flows have even numbers, and others have odd ones.
        Self { page: None, next_at: now, number: 0, pages, failures }
    }

    fn act(&mut self, testbed: &mut Testbed) {
        let now = testbed.now;
        let Some((key, began, came)) = &mut self.page else {
            if now >= self.next_at {
                self.number += 2;
                match testbed.open(0, self.number) {
                    Some(key) => self.page = Some((key, now, 0)),
                    None => self.end(Sample::Cut(0.0), Some("it could not be opened"), now),
                }
            }
            return;
        };
        *came += testbed.read(0, *key);
        let took = (now - *began).as_secs_f64();
        if *came >= PAGE_BYTES {
            testbed.reset(0, *key);
            self.end(Sample::Finished(took), None, now);
        } else if now - *began > PAGE_LIMIT {
            self.end(Sample::Cut(took), Some("it was not complete"), now);
        }
    }

    fn end(&mut self, sample: Sample, failure: Option<&str>, now: Duration) {
        self.pages.0.push(sample);
        self.failures.extend(failure.map(|why| format!("page: {why}")));
        (self.page, self.next_at) = (None, now + PAUSE);
    }
}

impl Attacker {
    fn new(attack: Attack, factor: u64, seed: u64, testbed: &Testbed) -> Self {
        Self {
            attack,
            rate: u64::from(attack.stated()) * factor,
            made: 0,
            refused: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            mac: MacKey::new(&testbed.hub_key),
            held: Vec::new(),
            number: 1,
        }
    }

    /// Starts the downloads of all aircraft that will vanish.
    fn begin(&mut self, testbed: &mut Testbed) {
        if self.attack != Attack::Vanish || self.rate == 0 {
            return;
        }
        for craft in 1..testbed.airs.len() {
            self.number += 2;
            self.made += u64::from(testbed.open(craft, self.number).is_some());
        }
        let until = testbed.now + Duration::from_secs(3);
        while testbed.now < until {
            testbed.step(ENDLESS);
        }
        (1..testbed.airs.len()).for_each(|craft| testbed.switch_off(craft));
    }

    /// Makes all attempts that are due.
    fn act(&mut self, testbed: &mut Testbed) {
        if matches!(self.attack, Attack::Vanish) || self.rate == 0 {
            return;
        }
        let due = (testbed.now.as_secs_f64() * self.rate as f64) as u64;
        let first =
            (testbed.now.saturating_sub(testbed.grain()).as_secs_f64() * self.rate as f64) as u64;
        for _ in first..due {
            self.made += 1;
            self.one(testbed);
        }
    }

    fn one(&mut self, testbed: &mut Testbed) {
        // An unforged address somewhere on the Internet, to which responses go.
        let port = 1_024 + (self.made % 16) as u16;
        let from = SocketAddr::from(([203, 0, 113, (self.made % 200) as u8], port));
        match self.attack {
            Attack::HubJunk => {
                let mut junk = [0; JUNK_BYTES];
                self.rng.fill_bytes(&mut junk);
                junk[0] = DATA;
                testbed.deliver_to_hub(&junk, from);
            }
            Attack::InitFlood => testbed.deliver_to_hub(&init(&self.mac, &mut self.rng), from),
            Attack::ResponseFlood => {
                let mut response = [0; RESPONSE_BYTES];
                self.rng.fill_bytes(&mut response);
                response[0] = RESPONSE;
                // Half of the datagrams carry the hub's address as their source.
                let from = if self.rng.random() { from } else { HUB.into() };
                testbed.deliver_to_air(0, &response, from);
            }
            Attack::Hoard => self.open(testbed, false),
            Attack::OpenRate => self.open(testbed, true),
            _ => {}
        }
    }

    /// Opens a flow of the hostile aircraft. If it `resets`, the previous flow is reset.
    fn open(&mut self, testbed: &mut Testbed, resets: bool) {
        self.number += 2;
        match testbed.open(1, self.number) {
            Some(key) => self.held.push(key),
            None => self.refused += 1,
        }
        if resets && self.held.len() > 1 {
            let first = self.held.remove(0);
            testbed.reset(1, first);
        }
    }

    /// Checks the remaining effects of the attack, and that an aircraft can still connect.
    fn end(
        &mut self,
        testbed: &mut Testbed,
        idle: u64,
        rtt: &Duration,
        failures: &mut Vec<String>,
    ) {
        match self.attack {
            Attack::Vanish => {
                let until =
                    testbed.now + Settings::default().session_lifetime + Duration::from_secs(60);
                while testbed.now < until {
                    testbed.step(0);
                }
                let (left, held) = (testbed.hub.sessions().count(), testbed.hub.held_bytes());
                self.refused = (testbed.airs.len() - left) as u64;
                // The victim's session is still there, and may hold its reserve.
                if left != 1 || held > idle + RESERVE.bytes() {
                    failures.push(format!(
                        "{left} sessions are left, with {held} bytes, {idle} before"
                    ));
                }
            }
            Attack::InitFlood | Attack::HubJunk => {
                let (begun, from) = (testbed.hub.sessions_begun(), testbed.now);
                testbed.restart(0, 1_000_000);
                while testbed.hub.sessions_begun() == begun {
                    self.act(testbed);
                    testbed.step(0);
                    if testbed.now - from > 3 * *rtt + RETURN_LIMIT {
                        failures.push("an aircraft that started again did not get in".to_owned());
                        return;
                    }
                }
            }
            _ => {}
        }
    }
}

impl Played {
    fn slowdown(&self) -> Option<f64> {
        let [calm, attacked] = self.pages.each_ref().map(|it| it.median());
        Some(attacked? / calm?)
    }

    fn rows(&self, choice: &Choice) -> Vec<Row> {
        let new = |part: &str, metric: &str| {
            let workload = format!("{}{part}", self.attack);
            let row = row("attacks", &choice.profile, workload, metric, choice.seed);
            Row { engine: "sim".into(), ..row }
        };
        let one = |value: f64, row: Row| [value].into_iter().collect::<Samples>().fill(row);
        let limit = Some(self.bound_bytes as f64);
        let memory = Row { unit: "bytes".into(), limit, ..new(", ground", "memory") };
        vec![
            self.pages[0].fill(new(", before", "plt")),
            self.pages[1].fill(new("", "plt")),
            one(self.held_bytes as f64, memory),
            one(self.operations, new("", "operations")),
            one(self.amplification, new("", "amplification")),
            one(self.counts[1] as f64, Row { unit: "count".into(), ..new("", "counted") }),
        ]
    }

    fn goals(&self) -> Vec<Goal> {
        let of = |what: &str| format!("{}: {what}", self.attack);
        let memory = self.held_bytes as f64 / self.bound_bytes as f64;
        vec![
            Goal::ratio_at_most(of("page ÷ undisturbed"), self.slowdown(), MAX_SLOWDOWN),
            Goal::ratio_at_most(of("failures"), Some(self.failures.len() as f64), 0.0),
            Goal::ratio_at_most(of("hub's memory ÷ bound"), Some(memory), 1.0),
            Goal::ratio_at_most(of("curve operations ÷ bound"), Some(self.operations), 1.0),
            Goal::ratio_at_most(of("bytes to strangers ÷ theirs"), Some(self.amplification), 1.0),
            Goal::ratio_at_least(of("refused, counted"), Some(self.counts[1] as f64), 1.0),
        ]
    }
}

fn text(choice: &Choice, all: &[Played]) -> String {
    let header = ["attack", "attempts", "counted", "without", "in it", "failed", "memory"];
    let mut table = table(&header);
    for played in all {
        let [calm, attacked] = &played.pages;
        table.add_row([
            played.attack.to_string(),
            played.counts[0].to_string(),
            played.counts[1].to_string(),
            written(calm.percentile(0.5), seconds),
            written(attacked.percentile(0.5), seconds),
            played.failures.len().to_string(),
            format!("{} MB", played.held_bytes / 1_000_000),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4, 5, 6]);
    let mut text = format!(
        "{}\nIn virtual time: an aircraft's page of {} KB (medians of {}) without each attack\n\
         and in it, {} × as strong as stated; attempts that were refused; the most memory\n\
         of the hub's sessions.\n\n{}\n",
        choice.profile.about,
        PAGE_BYTES / 1_000,
        choice.pages,
        choice.factor,
        table.trim_fmt()
    );
    for played in all {
        if let Some(first) = played.failures.first() {
            let (attack, count) = (played.attack, played.failures.len());
            text.push_str(&format!("{attack}: {count} failed; the first: {first}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::attacks::DEFAULT_PROFILE;
    use crate::profile::Profile;

    #[test]
    fn attacks_without_a_kernel_do_no_harm() {
        let attacks: Vec<_> = Attack::ALL.into_iter().filter(|it| it.is_simulated()).collect();
        assert_eq!(attacks.len(), 6);
        let profile = Profile::named(DEFAULT_PROFILE).unwrap();
        let report = run(&Choice { profile, attacks, pages: 2, factor: 1, seed: 1 });
        assert_eq!(report.missed(), 0, "{}\n{}", report.text, report.goals_text());
    }
}
