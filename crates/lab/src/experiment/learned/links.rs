//! Links of the cells, as text in the format of the profiles.

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::profile::Profile;

/// Seconds of the low-orbit trace until it repeats.
const LOW_ORBIT_SECONDS: u32 = 120;
/// Seconds between two reconfigurations of a low-orbit network.
const RECONFIGURATION_SECONDS: u32 = 15;
/// Seed of the low-orbit trace.
const LOW_ORBIT_SEED: u64 = 15;

/// Link B: 20 and 2 Mbit/s, 600 ms, 1 %.
pub fn b() -> Profile {
    b_with("", "'20 Mbit/s'")
}

/// Link B with this rate towards the aircraft, and more keys for that direction.
pub fn b_with(more: &str, rate: &str) -> Profile {
    asymmetric(rate, 300, &format!("loss = '1 %'\n{more}"))
}

/// Link with a return of 2 Mbit/s and `delay_ms` each way; `more` applies to both directions'
/// losses and to the forward direction.
fn asymmetric(rate: &str, delay_ms: u32, forward: &str) -> Profile {
    let forward = if forward.contains("delay =") {
        forward.to_owned()
    } else {
        format!("delay = '{delay_ms} ms'\n{forward}")
    };
    of(&format!(
        "[forward]\nrate = {rate}\n{forward}\n\
         [return]\nrate = '2 Mbit/s'\ndelay = '{delay_ms} ms'\nloss = '1 %'"
    ))
}

/// Link with the same keys in both directions.
pub fn both(keys: &str) -> Profile {
    of(&format!("[forward]\n{keys}\n[return]\n{keys}"))
}

/// Link from its text.
pub fn of(text: &str) -> Profile {
    let link = toml::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    Profile { name: "test".into(), about: String::new(), link, terrestrial: None }
}

/// Link A: the profile `mss`.
pub fn a() -> Profile {
    Profile::named("mss").expect("the profile is built in")
}

/// Low-orbit link: every second another rate from 30 to 73 Mbit/s, every 15 s another level of the
/// rate and of the delay in both directions at once, 0.5 % loss. Its changes are as in the sample
/// trace of LeoCC (SIGCOMM 2025): nine of more than 20 % in 120 s, one-way delays in steps of
/// milliseconds.
pub fn low_orbit() -> Profile {
    let mut rng = ChaCha8Rng::seed_from_u64(LOW_ORBIT_SEED);
    let (mut rates, mut delays) = (String::new(), String::new());
    let mut level = 50.0;
    for second in 0..LOW_ORBIT_SECONDS {
        if second % RECONFIGURATION_SECONDS == 0 {
            level = rng.random_range(38.0..63.0);
            let delay_ms = rng.random_range(14..24);
            let _ = write!(delays, "['{second} s', '{delay_ms} ms'], ");
        }
        let rate: f64 = (level * rng.random_range(0.9..1.1_f64)).clamp(30.0, 73.0);
        let _ = write!(rates, "['{second} s', '{rate:.1} Mbit/s'], ");
    }
    let series = |steps: &str| {
        format!("{{ series = {{ steps = [{steps}], repeat = '{LOW_ORBIT_SECONDS} s' }} }}")
    };
    let (rate, delay) = (series(&rates), series(&delays));
    of(&format!(
        "[forward]\nrate = {rate}\ndelay = {delay}\nloss = '0.5 %'\nqueue = '500 kB'\n\
         [return]\nrate = '10 Mbit/s'\ndelay = {delay}\nloss = '0.5 %'\nqueue = '200 kB'"
    ))
}

/// Value that changes once, at a time in seconds.
pub fn step(before: &str, at: u32, after: &str) -> String {
    format!("{{ series = {{ steps = [['0 s', '{before}'], ['{at} s', '{after}']] }} }}")
}
