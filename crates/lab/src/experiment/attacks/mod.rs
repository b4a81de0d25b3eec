//! Overload: the effect of each attack on a passenger who browses.
//!
//! Each attack runs in a new testbed with both gateways as programs under their default limits. A
//! victim first loads pages undisturbed, with small exchanges at the same time. Then an attacker,
//! ten times as strong as stated, runs while the victim does the same again. The victim's results
//! and the gateways' memory decide if the test passes; the attacker's results are reported too. An
//! attack that the gateways did not count and log did not take place, and fails as well.

mod assault;
mod attack;
mod cabin;
mod choice;
mod evidence;
mod files;
mod found;
mod scene;
mod shares;
mod sim;
mod site;
mod stranger;
mod tally;
mod victim;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::report::Report;
use crate::emu::EmuError;
use crate::scratch::no_folder;
use assault::Assault;
pub use attack::{Attack, UnknownAttack};
pub use choice::Choice;
use evidence::Before;
use files::BOUND_BYTES;
use found::{Found, text};
use scene::Scene;
pub use sim::run as simulate;
use victim::Seen;

/// Default link: 20/2 Mbit/s, 600 ms.
pub const DEFAULT_PROFILE: &str = "geo-satl";
/// Default number of pages before the attack, and during it.
pub const DEFAULT_PAGES: u16 = 9;
/// Default strength of the attacker, as a multiple of the stated one.
pub const DEFAULT_FACTOR: u32 = 10;

/// Maximum time until an attack is established. After it, the test continues anyway.
const STAND_LIMIT: Duration = Duration::from_secs(90);
/// Interval between checks of the memory and of the attack.
const LOOK: Duration = Duration::from_millis(200);
/// Multiple of the memory bound at which an attack is stopped, to protect this machine.
const END_AT: f64 = 2.0;

/// Attempts at an attack if the emulator loses packets because it lacks processor time.
const ATTEMPTS: u32 = 3;

/// Plays all attacks, one after the other. The gateways are the program `program`, and files are in
/// `folder`.
pub fn run(choice: &Choice, program: &Path, folder: &Path) -> anyhow::Result<Report> {
    let mut all = Vec::new();
    for attack in choice.attacks.iter().filter(|attack| attack.is_emulated()) {
        all.push(attempts(choice, *attack, program, folder)?);
    }
    Ok(Report {
        text: text(choice, &all),
        rows: all.iter().flat_map(|found| found.rows(choice)).collect(),
        goals: all.iter().flat_map(Found::goals).collect(),
    })
}

/// Plays an attack, and repeats it if a packet was lost that the link's model had delivered.
fn attempts(
    choice: &Choice,
    attack: Attack,
    program: &Path,
    folder: &Path,
) -> anyhow::Result<Found> {
    let mut attempt = 1;
    loop {
        let folder = folder.join(format!("{attack}-{attempt}"));
        std::fs::create_dir(&folder).map_err(no_folder)?;
        let played = one(choice, attack, program, &folder);
        let lost = played.as_ref().err().and_then(|error| error.downcast_ref());
        let Some(EmuError::Unmodelled(packets)) = lost.filter(|_| attempt < ATTEMPTS) else {
            return played;
        };
        tracing::warn!(%attack, packets, "the emulator lost packets: the attack is played again");
        attempt += 1;
    }
}

fn one(choice: &Choice, attack: Attack, program: &Path, folder: &Path) -> anyhow::Result<Found> {
    let mut scene = Scene::start((&choice.profile, choice.seed), attack, program, folder)?;
    let host = scene.testbed.client.clone();
    let found = host.run(|| scene.runtime.block_on(play(choice, attack, &scene, folder)))??;
    scene.testbed.sound_counters()?;
    let mut found = found;
    if let Err(error) = scene.pair.check() {
        found.seen[1].failures.push(error.to_string());
    }
    Ok(found)
}

async fn play(
    choice: &Choice,
    attack: Attack,
    scene: &Scene,
    folder: &Path,
) -> anyhow::Result<Found> {
    victim::wait().await?;
    let pages = u64::from(choice.pages);
    let [calm, attacked] = [RefCell::<Seen>::default(), RefCell::default()];
    // A first page, because the gateways have never carried one.
    victim::browse(scene, attack, 0..1, &RefCell::default()).await?;
    victim::browse(scene, attack, 1..1 + pages, &calm).await?;
    let before = Before::read(attack, folder).await?;
    let assault = Assault::start(scene, attack, choice.factor, choice.seed)?;
    let mut peak_bytes = [0; 2];
    let browse = async {
        let began = Instant::now();
        while !assault.stands() && began.elapsed() < STAND_LIMIT {
            sleep(LOOK).await;
        }
        victim::browse(scene, attack, 1 + pages..1 + 2 * pages, &attacked).await?;
        if attack == Attack::Shares {
            return Ok(shares::measure(assault.bytes()).await);
        }
        anyhow::Ok(Vec::new())
    };
    let (shares, ended) = tokio::select! {
        browsed = browse => (browsed?, None),
        why = watch(scene, &mut peak_bytes) => (Vec::new(), Some(why)),
    };
    attacked.borrow_mut().failures.extend(ended);
    let (seen, counts) = ([calm.into_inner(), attacked.into_inner()], assault.counts());
    let strength = assault.strength();
    let evidence = before.since(scene).await?;
    Ok(Found { attack, seen, counts, strength, peak_bytes, evidence, shares })
}

/// Monitors the gateways' memory. Returns a message if it grows far too large.
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
