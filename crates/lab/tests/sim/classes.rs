//! Shares of each class on the link, in both directions: virtual time, the real transport.

use std::time::Duration;

use bentpipe_lab::profile::Profile;
use bentpipe_lab::sim::traffic::SimTraffic;
use bentpipe_lab::traffic::{
    Carry, DOWN, ENDLESS, Passing, REQUEST_BYTES, Talk, Traffic, UP, in_order,
};
use bentpipe_link::{Class, ClassSettings, Limits, PerClass, Settings};
use bentpipe_units::{BitRate, Ratio};

/// Guaranteed rate and ceiling of each class, as fractions of a link's rate.
type Parts<'a> = &'a [(Class, Option<f64>, Option<f64>)];

const WAYS: [(usize, &str); 2] = [(DOWN, "down"), (UP, "up")];

fn clean(name: &str) -> Profile {
    lossy(name, 0.0)
}

fn lossy(name: &str, loss: f64) -> Profile {
    let profile = Profile::named(name).expect("it is built in");
    profile.with_loss(Ratio::new(loss).expect("it is a share"), 1.0).expect("it loses so much")
}

fn rate_of(profile: &Profile, way: usize) -> BitRate {
    let link = &profile.link;
    let direction = if way == DOWN { &link.forward } else { &link.return_ };
    direction.rate().expect("it has one")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn parts(rate: BitRate, limits: Parts<'_>) -> Settings {
    let part = |part: f64| BitRate::from_bps((rate.bps() as f64 * part) as u64);
    let mut classes = PerClass::default();
    for &(class, rate, ceil) in limits {
        let limits = Limits { rate: rate.map(part), ceil: ceil.map(part) };
        classes[class] = ClassSettings { limits, ..ClassSettings::default() };
    }
    Settings { classes, ..Settings::default() }
}

fn cabin(profile: &Profile, limits: Parts<'_>, seed: u64) -> SimTraffic {
    let [hub, air] = [DOWN, UP].map(|way| parts(rate_of(profile, way), limits));
    SimTraffic::new(profile, &air, &hub, seed).expect("a session comes up")
}

/// Starts endless streams in both directions.
fn saturate(cabin: &mut SimTraffic, class: Class, passenger: u32, flows: usize) -> Vec<usize> {
    let carry = Carry { class, passenger, down: ENDLESS, up: ENDLESS };
    (0..flows).map(|_| cabin.open(carry)).collect()
}

/// Lets three passengers download on eight connections each.
fn download(cabin: &mut SimTraffic) {
    for passenger in (1..=3).flat_map(|passenger| [passenger; 8]) {
        let (class, up, down) = (Class::BestEffort, REQUEST_BYTES, ENDLESS);
        cabin.open(Carry { class, passenger, up, down });
    }
}

/// Fraction of the link's rate that each class pays for during `length`, by direction.
fn shares(cabin: &mut SimTraffic, profile: &Profile, length: Duration) -> [PerClass<f64>; 2] {
    let (paid, before) = (Class::ALL.map(|class| cabin.class_bytes(class)), cabin.counted());
    cabin.pass(length);
    let (now, after) = (Class::ALL.map(|class| cabin.class_bytes(class)), cabin.counted());
    [DOWN, UP].map(|way| {
        let of = |class: Class| now[class as usize][way] - paid[class as usize][way];
        let paid: u64 = Class::ALL.into_iter().map(of).sum();
        // The classes pay for all bytes on the wire except reports.
        let wire = after.link[way].offered.bytes - before.link[way].offered.bytes;
        let reports = after.sent[way].report_bytes - before.sent[way].report_bytes;
        let off = (paid + reports) as f64 / wire as f64 - 1.0;
        assert!(off.abs() < 0.005, "{way}: {paid} + {reports} of {wire} bytes are accounted for");
        let most = rate_of(profile, way).bytes_in(length) as f64;
        PerClass::new(|class| of(class) as f64 / most)
    })
}

fn near(what: f64, wanted: f64, within: f64) -> bool {
    (what / wanted - 1.0).abs() <= within
}

#[test]
fn ceilings_are_kept_and_reached_in_bytes_on_the_wire() {
    let ceilings = [
        (Class::Operator, None, Some(0.10)),
        (Class::Network, None, Some(0.10)),
        (Class::Assured, None, Some(0.25)),
        (Class::BestEffort, None, Some(0.30)),
        (Class::LowerEffort, None, Some(0.12)),
    ];
    for profile in [clean("geo-rural-8"), lossy("mss", 0.06)] {
        let mut cabin = cabin(&profile, &ceilings, 1);
        for (class, ..) in ceilings {
            saturate(&mut cabin, class, class as u32, 2);
        }
        cabin.pass(secs(10));
        for ((_, way), shares) in WAYS.into_iter().zip(shares(&mut cabin, &profile, secs(60))) {
            println!("{} {way}: {shares:.4?}", profile.name);
            for (class, _, ceil) in ceilings {
                let ceil = ceil.expect("each has one");
                assert!(near(shares[class], ceil, 0.02), "{way} {class}: {shares:.4?}");
            }
        }
    }
}

#[test]
fn rates_are_kept_under_contention_in_bytes_on_the_wire() {
    let rates = [
        (Class::Operator, Some(0.15), None),
        (Class::Network, Some(0.10), None),
        (Class::LowerEffort, Some(0.05), None),
    ];
    for profile in [clean("geo-rural-8"), lossy("mss", 0.06)] {
        let mut cabin = cabin(&profile, &rates, 2);
        for class in Class::ALL {
            saturate(&mut cabin, class, class as u32, 2);
        }
        cabin.pass(secs(10));
        for ((_, way), shares) in WAYS.into_iter().zip(shares(&mut cabin, &profile, secs(60))) {
            println!("{} {way}: {shares:.4?}", profile.name);
            for (class, rate, _) in rates {
                let rate = rate.expect("each has one");
                assert!(near(shares[class], rate, 0.02), "{way} {class}: {shares:.4?}");
            }
            // The rest is shared in the ratio 2 : 1.
            let (assured, best) = (shares[Class::Assured], shares[Class::BestEffort]);
            assert!(near(assured / best, 2.0, 0.02), "{way}: {shares:.4?}");
            assert!(assured + best > 0.67, "{way}: {shares:.4?}");
        }
    }
}

#[test]
fn lower_effort_takes_an_idle_link_yields_within_a_round_trip_and_keeps_its_floor() {
    let floor = 0.05;
    for profile in [clean("geo-rural-8"), lossy("mss", 0.06)] {
        let mut cabin = cabin(&profile, &[(Class::LowerEffort, Some(floor), None)], 3);
        saturate(&mut cabin, Class::LowerEffort, 1, 4);
        cabin.pass(secs(10));
        for alone in shares(&mut cabin, &profile, secs(20)) {
            assert!(alone[Class::LowerEffort] >= 0.95, "{}: {alone:.4?}", profile.name);
        }
        saturate(&mut cabin, Class::BestEffort, 2, 4);
        cabin.pass(profile.link.rtt());
        // Retransmissions of its earlier losses count as its own traffic, within its floor.
        for beside in shares(&mut cabin, &profile, secs(10)) {
            println!("{}: {beside:.4?}", profile.name);
            let got = beside[Class::LowerEffort];
            assert!(got <= floor * 1.05, "{}: {beside:.4?}", profile.name);
        }
        for later in shares(&mut cabin, &profile, secs(60)) {
            let got = later[Class::LowerEffort];
            assert!(near(got, floor, 0.02), "{}: {later:.4?}", profile.name);
        }
    }
}

/// A call with one packet every 20.3 ms, so that its packets meet packets of bulk at every phase.
fn talk(class: Class, packets: usize) -> Talk {
    let (gap, sizes) = (Duration::from_micros(20_300), vec![172; packets]);
    Talk { class, passenger: 50, gap, sizes, phase: Duration::ZERO }
}

/// Delay beyond propagation, in serialization times of a full packet. A lost packet has an infinite
/// delay.
fn packets(profile: &Profile, way: usize, took: Option<Duration>) -> f64 {
    let link = &profile.link;
    let direction = if way == DOWN { &link.forward } else { &link.return_ };
    let beyond = took.map(|took| took.saturating_sub(direction.mean_delay()));
    let packet = rate_of(profile, way).time_for(1500);
    beyond.map_or(f64::INFINITY, |beyond| beyond.div_duration_f64(packet))
}

fn p95(mut waits: Vec<f64>) -> f64 {
    waits.sort_by(f64::total_cmp);
    waits[(waits.len() * 95).div_ceil(100) - 1]
}

/// p95 of the waiting times of a call's packets in `cabin` from now on: of those that the link did
/// not lose, which only waited for their turn, and of all.
fn call_p95(profile: &Profile, cabin: &mut SimTraffic, class: Class) -> [[f64; 2]; 2] {
    const PACKETS: usize = 6000;
    let beat = cabin.talk(talk(class, PACKETS));
    cabin.pass(talk(class, 0).gap * PACKETS as u32 + secs(5));
    [DOWN, UP].map(|way| {
        let transits = cabin.transits(beat, way);
        let all: Vec<_> = transits.iter().map(|&(_, took)| packets(profile, way, took)).collect();
        let in_order = in_order(&transits).into_iter();
        let in_order: Vec<_> =
            in_order.map(|(_, took)| packets(profile, way, Some(took))).collect();
        assert!(all.len() == PACKETS && in_order.len() * 100 >= 92 * PACKETS);
        [p95(in_order), p95(all)]
    })
}

/// Checks the p95 of both. With lost packets included, p95 depends on the packets recovered within
/// two packet times. That has to be a sixth of the 6 % lost: there is one repair packet for four
/// packets, and two in three of those recover a loss just before them. So chance decides, and the
/// only requirement for all packets is that p95 stays below the interval to the next packet.
fn assert_waits(profile: &Profile, cabin: &mut SimTraffic, class: Class, loss: f64) {
    let gap = talk(class, 0).gap;
    for ((way, name), [waits, all]) in WAYS.into_iter().zip(call_p95(profile, cabin, class)) {
        println!("loss {loss} {name}: {waits:.2} packets, {all:.2} with those that were lost");
        assert!(waits < 2.0, "loss {loss} {name}: {waits:.2} packets");
        let gap = gap.div_duration_f64(rate_of(profile, way).time_for(1500));
        let most = if loss > 0.0 { 2.0 + gap } else { 2.0 };
        assert!(all < most, "loss {loss} {name}: {all:.2} packets with those that were lost");
    }
}

#[test]
fn the_network_class_waits_less_than_two_packets_beside_downloads() {
    for loss in [0.0, 0.06] {
        let profile = lossy("mss", loss);
        let mut cabin = cabin(&profile, &[], 4);
        download(&mut cabin);
        cabin.pass(secs(10));
        assert_waits(&profile, &mut cabin, Class::Network, loss);
    }
}

/// p95 of the first packets of flows of new passengers, in each direction. If `others` is `true`,
/// another passenger's page objects and a call run at the same time.
fn first_p95(profile: &Profile, others: bool, seed: u64) -> [f64; 2] {
    const NEWCOMERS: u32 = 300;
    let object =
        |passenger, down| Carry { class: Class::BestEffort, passenger, up: REQUEST_BYTES, down };
    let mut cabin = cabin(profile, &[], seed);
    download(&mut cabin);
    cabin.pass(secs(10));
    let mut page = None;
    if others {
        cabin.talk(talk(Class::Network, 20_000));
    }
    let mut flows = Vec::new();
    for number in 0..NEWCOMERS {
        flows.push(cabin.open(object(1000 + number, 1000)));
        let gap = Duration::from_millis(500 + u64::from(number) * 137 % 250);
        cabin.pass(gap / 3);
        if others && page.is_none_or(|page| cabin.course(page).is_done()) {
            page = Some(cabin.open(object(60, 100_000)));
        }
        cabin.pass(gap * 2 / 3);
    }
    cabin.pass(secs(20));
    [DOWN, UP].map(|way| {
        let transits = flows.iter().map(|&flow| cabin.course(flow).first_transits()[way]);
        p95(transits.map(|took| packets(profile, way, took)).collect())
    })
}

/// The opening upwards, and a response of one packet downwards: next to downloads with loss
/// recovery, and also next to a page and a call if nothing is lost. With all of them, the repair
/// packet of a response is as long as the response itself, which leaves one packet's time too
/// little.
#[test]
fn the_first_of_a_flow_waits_less_than_two_packets() {
    for (loss, others, most) in
        [(0.0, false, 2.0), (0.06, false, 2.0), (0.0, true, 2.0), (0.06, true, 2.5)]
    {
        let found = first_p95(&lossy("mss", loss), others, 10);
        println!("loss {loss}, others {others}: {found:.2?} packets at p95");
        assert!(found.iter().all(|&packets| packets < most), "loss {loss}: {found:.2?}");
    }
}

#[test]
fn the_operators_class_keeps_rate_and_delay_whatever_passengers_do() {
    for loss in [0.0, 0.06] {
        let profile = lossy("mss", loss);
        let mut cabin = cabin(&profile, &[(Class::Operator, Some(0.2), Some(0.5))], 5);
        for class in &Class::ALL[1..] {
            saturate(&mut cabin, *class, *class as u32, 4);
        }
        cabin.pass(secs(10));
        assert_waits(&profile, &mut cabin, Class::Operator, loss);
        saturate(&mut cabin, Class::Operator, 0, 1);
        cabin.pass(secs(10));
        for shares in shares(&mut cabin, &profile, secs(60)) {
            assert!(near(shares[Class::Operator], 0.2, 0.02), "loss {loss}: {shares:.4?}");
        }
    }
}

/// Goodput of passengers during `length`, in direction `way`.
fn goodput(cabin: &mut SimTraffic, of: &[Vec<usize>], way: usize, length: Duration) -> Vec<f64> {
    let read = |cabin: &SimTraffic, flows: &Vec<usize>| -> u64 {
        flows.iter().map(|&flow| cabin.course(flow).got[way]).sum()
    };
    let before: Vec<u64> = of.iter().map(|flows| read(cabin, flows)).collect();
    cabin.pass(length);
    of.iter().zip(before).map(|(flows, before)| (read(cabin, flows) - before) as f64).collect()
}

#[test]
fn twenty_backlogged_passengers_get_alike() {
    for profile in [clean("geo-rural-8"), lossy("mss", 0.06)] {
        let mut cabin = cabin(&profile, &[], 6);
        let flows: Vec<_> =
            (1..=20).map(|who| saturate(&mut cabin, Class::BestEffort, who, 1)).collect();
        cabin.pass(secs(10));
        for (at, way) in WAYS {
            let got = goodput(&mut cabin, &flows, at, secs(60));
            let sum: f64 = got.iter().sum();
            let squares: f64 = got.iter().map(|got| got * got).sum();
            let jain = sum * sum / (20.0 * squares);
            println!("{} {way}: Jain {jain:.4}", profile.name);
            assert!(jain >= 0.98, "{} {way}: {jain:.4}", profile.name);
        }
    }
}

#[test]
fn many_connections_get_no_more_than_one() {
    for profile in [clean("geo-rural-8"), lossy("mss", 0.06)] {
        let mut cabin = cabin(&profile, &[], 7);
        let flows = [
            saturate(&mut cabin, Class::BestEffort, 1, 32),
            saturate(&mut cabin, Class::BestEffort, 2, 1),
        ];
        cabin.pass(secs(10));
        for (at, way) in WAYS {
            let got = goodput(&mut cabin, &flows, at, secs(60));
            let ratio = got[0] / got[1];
            println!("{} {way}: the hog gets {ratio:.3} of the other", profile.name);
            assert!((0.95..=1.05).contains(&ratio), "{} {way}: {ratio:.3}", profile.name);
        }
    }
}

/// Load time of a page with six concurrent objects.
fn page(cabin: &mut SimTraffic) -> Duration {
    let began = cabin.now();
    let (class, up, down) = (Class::Assured, REQUEST_BYTES, 100_000);
    let object = Carry { class, passenger: 1, up, down };
    let objects: Vec<usize> = (0..6).map(|_| cabin.open(object)).collect();
    let done = |cabin: &SimTraffic| objects.iter().all(|&object| cabin.course(object).is_done());
    assert!(cabin.wait(secs(60), done), "a page takes more than a minute");
    cabin.now() - began
}

#[test]
fn public_services_are_as_fast_beside_a_full_cabin_as_alone() {
    let profile = clean("geo-rural-8");
    let ceil = |kbps: u64| Limits {
        rate: Some(BitRate::from_bps(0)),
        ceil: Some(BitRate::from_bps(kbps * 1000)),
    };
    let settings = |kbps: u64, assured: u64| {
        let mut classes = PerClass::<ClassSettings>::default();
        classes[Class::LowerEffort].limits = ceil(kbps);
        classes[Class::Assured].limits.rate = Some(BitRate::from_bps(assured * 1000));
        Settings { classes, ..Settings::default() }
    };
    let cabin = SimTraffic::new(&profile, &settings(256, 4000), &settings(2000, 8000), 8);
    let mut cabin = cabin.expect("a session comes up");
    let pages = |cabin: &mut SimTraffic| -> f64 {
        let mut took: Vec<_> = (0..9)
            .map(|_| {
                cabin.pass(secs(2));
                page(cabin).as_secs_f64()
            })
            .collect();
        took.sort_by(f64::total_cmp);
        took[4]
    };
    let alone = pages(&mut cabin);
    saturate(&mut cabin, Class::LowerEffort, 2, 8);
    cabin.pass(secs(10));
    let beside = pages(&mut cabin);
    println!("a page takes {alone:.3} s alone and {beside:.3} s beside lower effort");
    assert!(near(beside, alone, 0.05), "{alone:.3} s and {beside:.3} s");
    let [down, up] = shares(&mut cabin, &profile, secs(60));
    assert!(near(down[Class::LowerEffort], 0.25, 0.02), "{down:.4?}");
    assert!(near(up[Class::LowerEffort], 0.064, 0.02), "{up:.4?}");
}
