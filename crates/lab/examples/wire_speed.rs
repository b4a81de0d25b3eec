//! Speed and accuracy of the emulator on this machine.
//!
//! `cargo run --release -p bentpipe-lab --example wire_speed` prints the packets per second that a
//! clean link carries, and the measurement of a slow link while every core is kept busy.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_lab::emu::{self, AIR, GROUND, Testbed};
use bentpipe_units::{BitRate, Ratio};

/// Duration of the flood.
const FLOOD: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    emu::enter()?;
    let clean = DirectionSpec::fixed(None, Duration::ZERO, Ratio::ZERO);
    let clean = LinkSpec { forward: clean.clone(), return_: clean };
    for payload_bytes in [18, 1372] {
        let testbed = Testbed::new(&clean, None, 1)?;
        let seconds = flood(&testbed, payload_bytes)?;
        let counters = testbed.radio_counters()?;
        let carried = counters.return_.model.delivered.packets as f64 / seconds;
        let unfetched = counters.unfetched as f64 / seconds;
        println!(
            "{payload_bytes:5} B payloads: {carried:9.0} packets/s ({unfetched:.0} more offered)"
        );
    }
    let rate = Some(BitRate::from_bps(1_890_000));
    let slow = DirectionSpec::fixed(rate, Duration::from_millis(380), Ratio::ZERO);
    let testbed = Testbed::new(&LinkSpec { forward: slow.clone(), return_: slow }, None, 1)?;
    println!("1.89 Mbit/s, 380 ms, machine idle: {}", testbed.measure()?.radio);
    println!("1.89 Mbit/s, 380 ms, machine busy: {}", while_busy(|| testbed.measure())?.radio);
    Ok(())
}

/// Keeps every core busy with two threads during `work`.
fn while_busy<T>(work: impl FnOnce() -> T) -> T {
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        busy.store(false, Ordering::Relaxed);
        done
    })
}

/// Sends as fast as one thread can. Returns the elapsed seconds.
fn flood(testbed: &Testbed, payload_bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let receiver = testbed.ground.udp_socket(SocketAddr::new(GROUND.v4.into(), 0))?;
    let sender = testbed.air.udp_socket(SocketAddr::new(AIR.v4.into(), 0))?;
    sender.connect(receiver.local_addr()?)?;
    let payload = vec![0; payload_bytes];
    let began = Instant::now();
    while began.elapsed() < FLOOD {
        sender.send(&payload)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    thread::sleep(Duration::from_millis(100));
    Ok(seconds)
}
