//! Whole directions, compared with theory.

use super::*;
use bentpipe_units::BitRate;
use proptest::prelude::*;

fn spec(text: &str) -> DirectionSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(fate: Fate) -> Duration {
    match fate {
        Fate::Delivered { at } => at,
        other => panic!("{other:?}"),
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..Default::default() }
}

/// Direction with every kind of impairment.
const ROUGH: &str = "
rate = '2 Mbit/s'
delay = { series = { steps = [['0 s', '300 ms'], ['5 s', '250 ms']], repeat = '10 s' } }
jitter = { shape = 'exponential', mean = '20 ms' }
loss = { gilbert-elliott = { mean = '10 %', burst = 3 } }
ber = 1e-6
queue = '40 kB'
outages = { packets = 'lost', random = { mean-gap = '20 s', mean-length = '1 s' } }
";

#[test]
fn a_perfect_link_changes_nothing() {
    let mut direction = Direction::new(&spec(""), 1);
    for i in 0..1000 {
        let now = Duration::from_micros(i);
        assert_eq!(direction.offer(now, 1500), Fate::Delivered { at: now });
    }
    assert_eq!(direction.queued_bytes(ms(1)), 0);
}

#[test]
fn packets_above_the_ecn_threshold_are_marked_and_nothing_else_changes() {
    let text = "rate = '8 Mbit/s'\ndelay = '10 ms'\nqueue = '10 kB'";
    let mut marking = Direction::new(&spec(&format!("{text}\necn-threshold = '3 kB'")), 1);
    let mut plain = Direction::new(&spec(text), 1);
    // All at once: packet n finds n kB queued, and the eleventh finds no room.
    for n in 0..11 {
        let (fate, marked) = marking.offer_ect(ms(0), 1000);
        assert_eq!(fate, plain.offer(ms(0), 1000));
        assert_eq!(marked, (4..10).contains(&n), "packet {n}");
    }
    assert!(!plain.offer_ect(ms(5), 1000).1, "no threshold, no marks");
    let marked = marking.counters().marked;
    assert_eq!((marked.packets, marked.bytes), (6, 6000));
    marking.offer(ms(5), 1000);
    assert_eq!(marking.counters().marked, marked, "a packet without ECT is never marked");
}

#[test]
fn a_rate_never_drifts() {
    let mut direction = Direction::new(
        &DirectionSpec::fixed(Some(BitRate::from_bps(1_890_000)), ms(380), Ratio::ZERO),
        1,
    );
    let n = 1_000_000u64;
    let mut now = Duration::ZERO;
    let mut last = Duration::ZERO;
    for _ in 0..n {
        let arrival = at(direction.offer(now, 1500));
        assert!(arrival > last);
        last = arrival;
        // Offer the next packet as soon as there is room.
        now = now.max(last.saturating_sub(ms(380 + 20)));
    }
    let exact = 380_000_000 + (n * 1500 * 8 * 1_000_000_000).div_ceil(1_890_000);
    assert_eq!(last, Duration::from_nanos(exact));
}

#[test]
fn the_queue_is_bounded_in_bytes_and_an_idle_sender_accepts_any_packet() {
    // 1 ms per packet; room for 10, including the one being sent.
    let mut direction = Direction::new(&spec("rate = '8 Mbit/s'\nqueue = '10 kB'"), 1);
    let fates: Vec<Fate> = (0..12).map(|_| direction.offer(ms(0), 1000)).collect();
    assert_eq!(at(fates[9]), ms(10));
    assert_eq!(fates[10..], [Fate::QueueDropped; 2]);
    assert_eq!(direction.queued_bytes(Duration::from_micros(2500)), 7500);
    assert_eq!(direction.offer(Duration::from_micros(2500), 2501), Fate::QueueDropped);
    assert_eq!(
        at(direction.offer(Duration::from_micros(2500), 2500)),
        Duration::from_micros(12_500)
    );
    let mut tiny = Direction::new(&spec("rate = '8 Mbit/s'\nqueue = '100 B'"), 1);
    assert_eq!(at(tiny.offer(ms(5), 1000)), ms(6));
    assert_eq!(tiny.offer(ms(5), 40), Fate::QueueDropped);
    assert_eq!(at(tiny.offer(ms(6), 40)), Duration::from_micros(6_040));
}

#[test]
fn series_of_rates_and_delays_take_effect() {
    let mut direction = Direction::new(
        &spec(
            "queue = '1 MB'
             rate = { series = { steps = [['0 s', '8 Mbit/s'], ['10 ms', '4 Mbit/s']] } }
             delay = { series = { steps = [['0 s', '10 ms'], ['20 ms', '100 ms']] } }",
        ),
        1,
    );
    let arrivals: Vec<_> = (0..16).map(|_| at(direction.offer(ms(0), 1000))).collect();
    assert_eq!(arrivals[9], ms(20));
    assert_eq!(arrivals[13], ms(28));
    // Sent at 20 ms, after the delay changed.
    assert_eq!(arrivals[14], ms(120));
    assert_eq!(arrivals[15], ms(122));
}

#[test]
fn a_shrinking_delay_reorders_only_with_free_order() {
    let text = "delay = { series = { steps = [['0 s', '100 ms'], ['10 ms', '10 ms']] } }";
    let arrivals = |order: &str| {
        let mut direction = Direction::new(&spec(&format!("{text}\norder = '{order}'")), 1);
        [at(direction.offer(ms(9), 100)), at(direction.offer(ms(11), 100))]
    };
    assert_eq!(arrivals("kept"), [ms(109), ms(109)]);
    assert_eq!(arrivals("free"), [ms(109), ms(21)]);
}

#[test]
fn jitter_reorders_only_with_free_order() {
    let overtakes = |order: &str| {
        let text = format!(
            "delay = '50 ms'\njitter = {{ shape = 'uniform', mean = '20 ms' }}\norder = '{order}'"
        );
        let mut direction = Direction::new(&spec(&text), 1);
        let arrivals: Vec<_> = (0..20_000).map(|i| at(direction.offer(ms(10 * i), 100))).collect();
        for (i, arrival) in arrivals.iter().enumerate() {
            let delay = *arrival - ms(10 * i as u64);
            assert!((ms(50)..=ms(90)).contains(&delay), "{delay:?}");
        }
        arrivals.windows(2).filter(|pair| pair[0] > pair[1]).count() as f64 / 20_000.0
    };
    assert_eq!(overtakes("kept"), 0.0);
    // The difference of two uniform delays of 0 to 40 ms exceeds 10 ms with probability ½·(30/40)²
    // = 0.28125.
    assert!((overtakes("free") - 0.28125).abs() < 0.016, "{}", overtakes("free"));
}

#[test]
fn late_packets_are_overtaken_by_those_within_their_delay() {
    let text = "rate = '10 Mbit/s'\ndelay = '20 ms'\nqueue = '10 MB'
                reordering = { share = '1 %', delay = '5.4 ms' }";
    let mut direction = Direction::new(&spec(text), 1);
    let packets = 20_000;
    let arrivals: Vec<_> = (0..packets)
        .map(|i| at(direction.offer(Duration::from_micros(1_200 * i), 1_500)))
        .collect();
    let mut late = 0;
    for (i, arrival) in arrivals.iter().enumerate() {
        let on_time = ms(20) + Duration::from_micros(1_200 * (i as u64 + 1));
        if *arrival != on_time {
            assert_eq!(*arrival, on_time + Duration::from_micros(5_400));
            late += 1;
            // Packet 3 comes after packet 7, unless that is late as well.
            let overtakes = arrivals.iter().skip(i + 1).filter(|next| *next < arrival).count();
            assert!((3..=4).contains(&overtakes) || i + 5 > arrivals.len(), "{overtakes}");
        }
    }
    // 200 are expected, with a standard deviation of 14.
    assert!((140..=260).contains(&late), "{late}");
    let too_late = "reordering = { share = '1 %', delay = '11 s' }";
    let error = toml::from_str::<DirectionSpec>(too_late).unwrap_err().to_string();
    assert!(error.contains("reordering"), "{error}");
}

#[test]
fn an_outage_loses_or_holds_packets_as_declared() {
    let text = |packets: &str| {
        format!(
            "rate = '8 Mbit/s'\nqueue = '5 kB'\noutages = {{ packets = '{packets}', scheduled = [['10 ms', '5 ms'], ['17 ms', '3 ms']] }}"
        )
    };
    let mut lost = Direction::new(&spec(&text("lost")), 1);
    assert_eq!(at(lost.offer(ms(9), 1000)), ms(10));
    // Sent from 10 to 14 ms.
    assert_eq!([10, 10, 10, 10].map(|t| lost.offer(ms(t), 1000)), [Fate::Lost; 4]);
    // Sent from 14.5 ms, inside the outage; then from 15.5 ms, outside.
    assert_eq!(lost.offer(Duration::from_micros(14_500), 1000), Fate::Lost);
    assert_eq!(at(lost.offer(Duration::from_micros(14_500), 1000)), Duration::from_micros(16_500));
    assert_eq!(lost.offer(Duration::from_micros(16_500), 1000), Fate::Lost);

    let mut held = Direction::new(&spec(&text("held")), 1);
    assert_eq!(at(held.offer(Duration::from_micros(9_500), 1000)), Duration::from_micros(15_500));
    // Nothing leaves the queue of 5 kB until 15 ms: half a packet is still unsent.
    let fates: Vec<Fate> = (0..5).map(|_| held.offer(ms(12), 1000)).collect();
    assert_eq!(held.queued_bytes(ms(14)), 4500);
    assert_eq!(at(fates[0]), Duration::from_micros(16_500));
    assert_eq!(at(fates[1]), Duration::from_micros(20_500));
    assert_eq!(at(fates[3]), Duration::from_micros(22_500));
    assert_eq!(fates[4], Fate::QueueDropped);
    assert_eq!(held.queued_bytes(ms(18)), 2500);
    assert_eq!(held.queued_bytes(ms(21)), 1500);
    assert_eq!(held.queued_bytes(ms(23)), 0);
}

#[test]
fn bit_errors_hit_long_packets_more_often() {
    for (bytes, ber) in [(1500usize, 1e-5f64), (100, 1e-4), (40, 1e-6)] {
        let mut direction = Direction::new(&spec(&format!("ber = {ber}")), 3);
        let n = 200_000u64;
        let lost = (0..n).filter(|i| direction.offer(ms(*i), bytes) == Fate::Lost).count() as f64;
        let p = 1.0 - (1.0 - ber).powi(8 * bytes as i32);
        let error = (n as f64 * p * (1.0 - p)).sqrt();
        assert!((lost - n as f64 * p).abs() <= 5.0 * error, "{bytes} B at {ber}: {lost}");
    }
}

#[test]
fn slots_on_request_cost_their_delay_once() {
    let text = "rate = '128 kbit/s'\ndelay = '280 ms'\n\
         demand = { frame = '40 ms', slots = 8, free-slots = 0, request-delay = '560 ms' }";
    let mut direction = Direction::new(&spec(text), 1);
    // 1.16 s of queue: the round trip and the longest wait for a grant.
    assert_eq!(spec(text).queue().unwrap().bytes(), 128_000 / 8 * 1160 / 1000);
    // The whole queue at once: the request delay of 560 ms, then the rate.
    let fates: Vec<Fate> = (0..20).map(|_| direction.offer(ms(0), 1000)).collect();
    assert_eq!(at(fates[0]), ms(560 + 65 + 280));
    assert_eq!(at(fates[17]), ms(560 + 1125 + 280));
    assert_eq!(fates[18..], [Fate::QueueDropped; 2]);
}

#[test]
fn changing_one_impairment_leaves_the_others_unchanged() {
    let base = spec(ROUGH);
    let mut steady = base.clone();
    steady.jitter = None;
    let mut lossless = base.clone();
    lossless.loss = crate::scalar::ScalarOr::Scalar(Ratio::ZERO).into();
    let [mut a, mut b, mut c] = [&base, &steady, &lossless].map(|spec| Direction::new(spec, 8));
    for i in 0..5_000 {
        let [a, b, c] = [&mut a, &mut b, &mut c].map(|d| d.offer(ms(i * 6), 1200));
        assert_eq!(matches!(a, Fate::Lost), matches!(b, Fate::Lost), "packet {i}");
        assert!(!matches!(c, Fate::Lost) || matches!(a, Fate::Lost), "packet {i}");
    }
}

#[test]
fn time_going_backwards_is_clamped() {
    let mut direction = Direction::new(&spec("delay = '1 ms'"), 1);
    direction.offer(ms(10), 100);
    assert_eq!(at(direction.offer(ms(5), 100)), ms(11));
}

#[test]
fn the_end_of_time_does_not_panic() {
    for text in [
        "",
        ROUGH,
        "rate = '1 bit/s'\nqueue = '1 GB'\noutages = { packets = 'held', scheduled = [['1 s', '1 s']], repeat = '100000 d' }",
        "rate = '1 Gbit/s'\ndemand = { frame = '1 ms', slots = 1, free-slots = 1, request-delay = '60 s' }",
    ] {
        let mut direction = Direction::new(
            &spec(&text.replace("random = { mean-gap = '20 s'", "random = { mean-gap = '20000 d'")),
            1,
        );
        for now in [ms(0), ms(1), Duration::MAX / 1000, Duration::MAX] {
            for bytes in [0, 1, 1500, 1 << 20] {
                direction.offer(now, bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(config(32))]

    #[test]
    fn the_same_seed_gives_the_same_fates_and_another_does_not(seed: u64, gap_us in 100u64..20_000) {
        let run = |seed| {
            let mut direction = Direction::new(&spec(ROUGH), seed);
            (0..2000).map(|i| direction.offer(Duration::from_micros(i * gap_us), 1000)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(seed), run(seed));
        prop_assert_ne!(run(seed), run(seed.wrapping_add(1)));
    }

    #[test]
    fn counters_add_up_and_the_queue_keeps_its_bound(
        seed: u64,
        held: bool,
        packets in prop::collection::vec((0u64..20_000, 0usize..1600), 1..400),
    ) {
        let text = if held { ROUGH.replace("'lost'", "'held'") } else { ROUGH.into() };
        let mut direction = Direction::new(&spec(&format!("{text}mtu = 1500\n")), seed);
        let (mut now, mut expected, mut last) = (Duration::ZERO, Counters::default(), Duration::ZERO);
        for (gap_us, bytes) in packets {
            now += Duration::from_micros(gap_us);
            let before = direction.queued_bytes(now);
            expected.offered.add(bytes);
            match direction.offer(now, bytes) {
                Fate::Delivered { at } => {
                    expected.delivered.add(bytes);
                    prop_assert!(bytes <= 1500 && at >= now + ms(250) && at >= last);
                    last = at;
                }
                Fate::Lost => expected.lost.add(bytes),
                Fate::Policed | Fate::Waiting(_) => prop_assert!(false, "neither is configured"),
                Fate::TooLong => {
                    expected.too_long.add(bytes);
                    prop_assert!(bytes > 1500 && direction.queued_bytes(now) == before);
                }
                Fate::QueueDropped => {
                    expected.queue_dropped.add(bytes);
                    prop_assert!(before + bytes as u64 > 40_000);
                }
            }
            prop_assert!(direction.queued_bytes(now) <= 40_000);
        }
        let counters = direction.counters();
        prop_assert_eq!(counters, expected);
        let parts =
            [counters.too_long, counters.queue_dropped, counters.lost, counters.delivered];
        prop_assert_eq!(counters.offered.packets, parts.iter().map(|count| count.packets).sum::<u64>());
        prop_assert_eq!(counters.offered.bytes, parts.iter().map(|count| count.bytes).sum::<u64>());
    }

    #[test]
    fn a_sender_matches_one_that_stores_its_packets(
        packets in prop::collection::vec((0u64..3_000_000, 1u64..1600), 1..300),
        limit in 1500u64..20_000,
    ) {
        let spec = spec(&format!("rate = '7 Mbit/s'\nqueue = '{limit} B'"));
        let mut direction = Direction::new(&spec, 1);
        // Finish times in exact units of 1/7 ns, stored per packet.
        let mut stored: Vec<(u64, u64)> = Vec::new();
        let (mut now_ns, mut free) = (0, 0);
        for (gap_ns, bytes) in packets {
            now_ns += gap_ns;
            let now = now_ns * 7;
            stored.retain(|(finish, _)| *finish > now);
            let waiting = stored.iter().map(|(finish, bytes)| (*finish - now).min(bytes * 8000));
            let queued = waiting.sum::<u64>().div_ceil(8000).min(free_bytes(free, now));
            let fate = direction.offer(Duration::from_nanos(now_ns), bytes as usize);
            if queued > 0 && queued + bytes > limit {
                prop_assert_eq!(fate, Fate::QueueDropped);
                continue;
            }
            free = free.max(now) + bytes * 8000;
            stored.push((free, bytes));
            prop_assert_eq!(fate, Fate::Delivered { at: Duration::from_nanos(free.div_ceil(7)) });
        }
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_held_sender_matches_one_that_sends_byte_by_byte(
        packets in prop::collection::vec((0u64..3_000, 1u64..1600), 1..200),
        outages in prop::collection::vec((1u64..20_000, 1u64..8_000), 1..20),
        limit in 1500u64..10_000,
    ) {
        // One byte per microsecond; all times are whole microseconds.
        let mut down = Vec::new();
        let mut at = 0;
        for (gap, length) in outages {
            down.push((at + gap, at + gap + length));
            at += gap + length;
        }
        let listed: Vec<_> =
            down.iter().map(|(from, to)| format!("['{from} us', '{} us']", to - from)).collect();
        let mut direction = Direction::new(&spec(&format!(
            "rate = '8 Mbit/s'\nqueue = '{limit} B'\n\
             outages = {{ packets = 'held', scheduled = [{}] }}",
            listed.join(", ")
        )), 1);
        let sends = |us: u64| !down.iter().any(|(from, to)| (*from..*to).contains(&us));
        let (mut now, mut free) = (0, 0);
        for (gap, bytes) in packets {
            now += gap;
            let queued = (now..free).filter(|us| sends(*us)).count() as u64;
            prop_assert_eq!(direction.queued_bytes(Duration::from_micros(now)), queued);
            let fate = direction.offer(Duration::from_micros(now), bytes as usize);
            if queued > 0 && queued + bytes > limit {
                prop_assert_eq!(fate, Fate::QueueDropped);
                continue;
            }
            let last = (free.max(now)..).filter(|us| sends(*us)).nth(bytes as usize - 1);
            free = last.unwrap() + 1;
            prop_assert_eq!(fate, Fate::Delivered { at: Duration::from_micros(free) });
        }
    }
}

/// Bytes that fill the time until the sender is free, in the units of the test above.
fn free_bytes(free: u64, now: u64) -> u64 {
    free.saturating_sub(now).div_ceil(8000)
}
