//! A call over several radios, of which one dies.

use std::time::Duration;

use bentpipe_link::Class;

use super::bundle::Death;
use super::stage::{Cabin, PATIENCE, QUIET, REDUNDANT, WARM_BYTES, WARM_OBJECTS};
use crate::experiment::call::speech::{GAP, LATEST, speech};
use crate::profile::Profile;
use crate::traffic::{Carry, DOWN, Passing, REQUEST_BYTES, Transit, UP};

/// Packets of a call in each direction: a minute.
const PACKETS: usize = 3000;
/// Time from the first packet to the death of a radio.
const DEATH: Duration = Duration::from_secs(30);
/// Time after the last packet for packets that are still in flight.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Passengers of the call and of the downloads.
const CALLER: u32 = 1;
const READER: u32 = 2;

/// Figures of a call.
#[derive(Debug)]
pub struct Heard {
    /// Share of packets that came too late or never, for each direction.
    pub lost: Vec<f64>,
    /// Delay of each packet that left after the death, beyond the one-way delay of the other radio.
    /// It is infinite for a packet that never came.
    pub added_s: Vec<f64>,
    /// Bytes of speech that arrived on the aircraft.
    pub delivered_bytes: u64,
}

/// Makes a call in whose middle the radio `dies` loses everything; `None` if the session broke.
pub fn play(cabin: &mut dyn Cabin, links: &[Profile], dies: usize, seed: u64) -> Option<Heard> {
    cabin.pass(QUIET);
    for _ in 0..WARM_OBJECTS {
        let (up, down) = (REQUEST_BYTES, WARM_BYTES);
        let carry = Carry { class: Class::BestEffort, passenger: READER, up, down };
        let object = cabin.open(carry);
        cabin.wait(PATIENCE, |cabin| cabin.course(object).is_done()).then_some(())?;
        cabin.pass(QUIET);
    }
    let speech = speech(REDUNDANT, CALLER, PACKETS, seed);
    let sizes = speech.sizes.clone();
    let call = cabin.talk(speech);
    cabin.wait(PATIENCE, |cabin| cabin.has_begun(call)).then_some(())?;
    cabin.pass(DEATH);
    let died_at = cabin.now();
    cabin.kill(dies, Death::Silent);
    cabin.pass(GAP * PACKETS as u32 - DEATH + AFTERWARDS);
    let mut heard = Heard { lost: Vec::new(), added_s: Vec::new(), delivered_bytes: 0 };
    for way in [DOWN, UP] {
        let transits = cabin.transits(call, way);
        let delays = links.iter().enumerate().map(|(path, link)| (path, one_way(link, way)));
        let (_, survivor) = delays.filter(|(path, _)| *path != dies).min_by_key(|it| it.1)?;
        let is_lost = |it: &&Transit| it.1.is_none_or(|delay| delay > survivor + LATEST);
        heard.lost.push(transits.iter().filter(is_lost).count() as f64 / PACKETS as f64);
        let after = transits.iter().filter(|(left, _)| *left >= died_at);
        heard.added_s.extend(after.map(|(_, delay)| {
            delay.map_or(f64::INFINITY, |delay| delay.saturating_sub(survivor).as_secs_f64())
        }));
        if way == DOWN {
            let arrived = transits.iter().zip(&sizes).filter(|(it, _)| it.1.is_some());
            heard.delivered_bytes = arrived.map(|(_, size)| *size as u64).sum();
        }
    }
    Some(heard)
}

fn one_way(link: &Profile, way: usize) -> Duration {
    let link = &link.link;
    if way == DOWN { link.forward.mean_delay() } else { link.return_.mean_delay() }
}
