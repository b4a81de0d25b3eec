//! The measurement accepts the true declaration and no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bentpipe_channel::LinkSpec;
use bentpipe_lab::emu::{MeasureError, Quantity, Testbed};

use crate::links;

pub fn agrees() {
    let path = links::constant(100_000_000, 15, 0.001);
    for (name, radio) in [("mss", links::mss()), ("clean", links::clean())] {
        let testbed = Testbed::new(&radio, Some(&path), 7).expect("a testbed");
        let measured = testbed.measure().unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("  {name}: {}", measured.radio);
        assert_eq!(measured.radio.forward.is_filled, name == "mss");
        println!("  terrestrial: {}", measured.terrestrial.expect("a declared path"));
        assert_eq!(testbed.radio_counters().expect("counters").unmodelled(), 0);
    }
}

/// Links with everything that the model can do to packets. The measurement must know what to expect
/// of each.
const VARYING: &[(&str, &str)] = &[
    (
        "jitter, random outages and losses in bursts",
        "[forward]
         rate = '2 Mbit/s'
         delay = '200 ms'
         jitter = { shape = 'normal', mean = '20 ms', deviation = '5 ms' }
         loss = { gilbert-elliott = { mean = '20 %', burst = 8 } }
         outages = { packets = 'lost', random = { mean-gap = '6 s', mean-length = '300 ms' } }
         [return]
         rate = '256 kbit/s'
         delay = '200 ms'
         jitter = { shape = 'exponential', mean = '10 ms' }
         order = 'free'
         ber = 1e-5",
    ),
    (
        "a rate in steps, and slots granted on request",
        "[forward]
         rate = { series = { steps = [['0 s', '2 Mbit/s'], ['1 s', '500 kbit/s']], repeat = '2 s' } }
         delay = '250 ms'
         [return]
         rate = '512 kbit/s'
         delay = '250 ms'
         demand = { frame = '45 ms', slots = 16, free-slots = 1, request-delay = '520 ms' }",
    ),
    (
        "128 kbit/s with losses drawn for a while",
        "[forward]
         rate = '1 Mbit/s'
         delay = '310 ms'
         loss = { drawn = { every = '100 s', points = [['12 %', '0 %'], ['100 %', '36 %']] } }
         [return]
         rate = '128 kbit/s'
         delay = '310 ms'
         loss = '3 %'",
    ),
];

pub fn varying() {
    thread::scope(|scope| {
        for (name, text) in VARYING {
            scope.spawn(move || {
                let testbed = Testbed::new(&links::written(text), None, 11).expect("a testbed");
                let measured = testbed.measure().unwrap_or_else(|error| panic!("{name}: {error}"));
                println!("  {name}: {}", measured.radio);
                let ways = [&measured.radio.forward, &measured.radio.return_];
                assert!(ways.iter().all(|way| way.is_filled), "{name}: bursts fill narrow links");
            });
        }
    });
}

pub fn busy() {
    let busy = AtomicBool::new(true);
    let testbed = Testbed::new(&links::mss(), None, 7).expect("a testbed");
    let measured = thread::scope(|scope| {
        for _ in 0..4 * thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measured = testbed.measure();
        busy.store(false, Ordering::Relaxed);
        measured
    });
    let wire = testbed.radio_counters().expect("counters").forward;
    match measured {
        Ok(measured) => {
            println!("  {}, at most {:?} late", measured.radio, wire.worst_lateness);
        }
        Err(error) if wire.realtime => panic!("{error}"),
        Err(error) => println!("  refused, as real-time priority is not allowed here: {error}"),
    }
}

pub fn differs() {
    let truth = links::constant(2_000_000, 100, 0.05);
    let refused: [(LinkSpec, Quantity); 4] = [
        (links::constant(2_000_000, 102, 0.05), Quantity::Delay),
        (links::constant(2_050_000, 100, 0.05), Quantity::Rate),
        (links::constant(2_000_000, 100, 0.0), Quantity::Loss),
        (links::constant(2_000_000, 100, 0.12), Quantity::Loss),
    ];
    thread::scope(|scope| {
        for (declared, expected) in refused {
            let truth = &truth;
            scope.spawn(move || {
                let testbed = Testbed::new(truth, None, 3).expect("a testbed");
                match testbed.measure_against(&declared, None) {
                    Err(MeasureError::Mismatch { quantity, .. }) => assert_eq!(quantity, expected),
                    other => panic!("{expected:?} was not refused: {other:?}"),
                }
            });
        }
    });
}

pub fn many_testbeds() {
    let testbeds: Vec<Testbed> =
        (0..25).map(|seed| Testbed::new(&links::mss(), None, seed).expect("a testbed")).collect();
    let measured = testbeds[12].measure().expect("one of 25 idle testbeds");
    assert!(measured.terrestrial.is_none());
    thread::scope(|scope| {
        for testbed in &testbeds[..6] {
            scope.spawn(|| testbed.measure().expect("six measurements at once"));
        }
    });
}
