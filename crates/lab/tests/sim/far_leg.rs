//! Transports between hub and egress over a terrestrial path that loses and reorders, in virtual time.
//!
//! NetForecast's path lost 0.1 % and delivered packet 3 after packet 7. `SEEDS=3 cargo test -p bentpipe-lab
//! --test sim far_leg -- --nocapture` prints means over the seeds 1 to 3.

use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_lab::sim::share::{self, Race, Sender};
use bentpipe_link::{LeaseMode, Settings};
use bentpipe_masque::{Congestion, Transport};
use bentpipe_units::BitRate;

/// Above any rate of the path, which is learned.
const CEILING: BitRate = BitRate::from_bps(1_000_000_000);

/// Path of `mbps` with a round trip of 150 ms. Four packets overtake a late one.
fn path(mbps: u64) -> DirectionSpec {
    let late_ms = 4.5 * 12.0 / mbps as f64;
    let text = format!(
        "rate = '{mbps} Mbit/s'\ndelay = '75 ms'\nqueue = '1 BDP'\nloss = '0.1 %'\n\
         reordering = {{ share = '0.1 %', delay = '{late_ms} ms' }}"
    );
    toml::from_str(&text).unwrap()
}

/// Rates of `senders` in Mbit/s, and the dropped share of the first one's packets. Means over the seeds.
fn race(senders: &[Sender], transport: &Transport, mbps: u64) -> (Vec<f64>, f64) {
    let seeds: u64 = std::env::var("SEEDS").map_or(1, |seeds| seeds.parse().expect("a number"));
    let (mut rates, mut dropped) = (vec![0.0; senders.len()], 0.0);
    for seed in 1..=seeds {
        let settings = Settings { rate: CEILING, lease: LeaseMode::Learned, ..Settings::default() };
        let race = Race {
            link: share::symmetric(&path(mbps)),
            senders: senders.to_vec(),
            stagger: Duration::from_secs(5),
            length: Duration::from_secs(30),
            settings,
            transport: transport.clone(),
            seed,
        };
        let found = share::run(&race).unwrap();
        let each = found.goodput_bps.iter().map(|bps| bps * 1e-6 / seeds as f64);
        rates.iter_mut().zip(each).for_each(|(sum, one)| *sum += one);
        let queue = &found.queue[0];
        dropped += queue.dropped as f64 / queue.packets as f64 / seeds as f64;
    }
    (rates, dropped)
}

#[test]
fn only_the_link_fills_a_far_leg_and_leaves_others_their_share() {
    let quic = Transport { initial_rtt: Duration::from_millis(150), ..Transport::default() };
    let patient = Transport { packet_threshold: 64, ..quic.clone() };
    let bbr = Transport { congestion: Congestion::Bbr, ..patient.clone() };
    let transports = [
        ("QUIC, CUBIC", Sender::Tuned, &quic),
        ("the same, losses after 64 packets", Sender::Tuned, &patient),
        ("the same, BBR", Sender::Tuned, &bbr),
        ("the radio transport, learned rate", Sender::Link, &quic),
    ];
    for mbps in [10, 50] {
        // Beside the first, the neighbour is beside its like.
        let mut beside_its_like = None;
        for (name, sender, transport) in transports {
            let (alone, dropped) = race(&[sender], transport, mbps);
            let (both, _) = race(&[sender, Sender::Quic], transport, mbps);
            let (used, own) = (alone[0] / mbps as f64, *beside_its_like.get_or_insert(both[1]));
            let kept = both[1] / own;
            println!(
                "{mbps} Mbit/s, {name}: {used:.3} of the rate, {:.1} % dropped; beside CUBIC {:.2} \
                 Mbit/s, and CUBIC keeps {:.2} Mbit/s, {kept:.2} of what it has beside another",
                100.0 * dropped,
                both[0],
                both[1]
            );
            let suits = used > 0.9 && dropped < 0.001 && kept > 0.7;
            assert_eq!(suits, sender == Sender::Link, "{used} {dropped} {kept}");
        }
    }
}
