//! The thread of pings: it sends at fixed times and never waits for anything but replies.
//!
//! | module | contents |
//! |---|---|
//! | `line` | one target with its pings |
//! | `shared` | sockets and types that all targets share |
//! | `handshakes` | TCP pings under way |

mod handshakes;
mod line;
mod shared;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_probe::target::Family;
use bentpipe_probe::target::Target;
use nix::poll::{PollFd, PollFlags, ppoll};

use crate::clock;
use crate::event::{Event, Events};
use line::Line;
use shared::{Ended, MAX_READS, Shared};

/// Longest wait, after which the thread looks whether it is to end.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Size of a message that is read. A reply has 20 bytes, and an IPv4 header at most 60.
const BUFFER: usize = 256;

/// Pings `targets` until the session ends. `start` is the boot time of the session's start.
pub fn run(targets: &[Target], start: Duration, interval: Duration, token: u64, events: &Events) {
    let shared = Arc::new(Shared::open());
    let count = targets.len();
    let line = |(index, target): (usize, &Target)| {
        Line::new(target.clone(), index, count, interval, token ^ index as u64, Arc::clone(&shared))
    };
    let mut lines: Vec<Line> = targets.iter().enumerate().map(line).collect();
    while !events.stopped() {
        let now = clock::boot().saturating_sub(start);
        let mut done = Vec::new();
        for line in &mut lines {
            line.send_due(now, start, &mut done);
            line.expire(now, &mut done);
        }
        report(done, start, events);
        let next = lines.iter().map(Line::next_event).min().unwrap_or(now + MAX_WAIT);
        wait(&shared, &lines, next.saturating_sub(clock::boot().saturating_sub(start)));
        let mut done = Vec::new();
        read_icmp(&shared, &mut lines, start, &mut done);
        for line in &mut lines {
            line.read(start, &mut done);
        }
        report(done, start, events);
    }
}

fn report(done: Vec<Ended>, start: Duration, events: &Events) {
    if done.is_empty() {
        return;
    }
    let now = clock::now();
    for (sent, runtime, measurement) in done {
        let boot_us = bentpipe_probe::micros(start + sent);
        // The wall clock at the time of sending, by the present difference of the clocks.
        let age_us = now.boot_us.saturating_sub(boot_us);
        let began = bentpipe_probe::clock::Moment {
            boot_us,
            wall_us: now.wall_us.saturating_sub_unsigned(age_us),
        };
        let runtime_us = bentpipe_probe::micros(runtime);
        events.send(Event::Measured { began, runtime_us, own: None, measurement });
    }
}

/// Waits for a reply or the next event.
fn wait(shared: &Shared, lines: &[Line], time: Duration) {
    let readable = PollFlags::POLLIN;
    let icmp = [Family::V4, Family::V6].into_iter().filter_map(|family| shared.icmp(family));
    let mut waited: Vec<PollFd<'_>> =
        icmp.map(|icmp| PollFd::new(icmp.socket().as_fd(), readable)).collect();
    lines.iter().for_each(|line| line.wait_for(&mut waited));
    // An interrupted wait is as good as a short one.
    let _ = ppoll(&mut waited, Some(time.min(MAX_WAIT).into()), None);
}

fn read_icmp(shared: &Shared, lines: &mut [Line], start: Duration, done: &mut Vec<Ended>) {
    let mut buffer = [0; BUFFER];
    for family in [Family::V4, Family::V6] {
        let Some(icmp) = shared.icmp(family) else { continue };
        for _ in 0..MAX_READS {
            // An error on the socket is news of some ping's path; that ping will be lost.
            let Ok(Some((from, at, message))) = icmp.receive(&mut buffer) else { break };
            let at = at.saturating_sub(start);
            for line in lines.iter_mut().filter(|line| line.address() == from) {
                if line.echoed(family, message, at, done) {
                    break;
                }
            }
        }
    }
}
