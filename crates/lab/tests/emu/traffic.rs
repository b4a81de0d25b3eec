//! Passengers' traffic through both gateways and real kernels.

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_lab::emu::Testbed;
use bentpipe_lab::experiment::engine::{Emulator, Engine};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::traffic::emu::{EmuTraffic, FurtherRates};
use bentpipe_lab::traffic::{
    Carry, ClassLimits, DOWN, ENDLESS, Passing, REQUEST_BYTES, Talk, Traffic, UP,
};
use bentpipe_link::{Class, Limits};
use bentpipe_units::{BitRate, Ratio};

/// A timeout long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its gateways run in this process.
fn program() -> anyhow::Result<PathBuf> {
    anyhow::bail!("no program is needed")
}

fn clean() -> Profile {
    let profile = Profile::named("mss").unwrap();
    profile.with_loss(Ratio::ZERO, 1.0).unwrap()
}

/// Streams and datagrams arrive completely, in the class of their port, and not faster than the
/// propagation delay.
pub fn crosses() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::Emu(Emulator { folder: folder.path(), program });
    let profile = clean();
    let done = engine.carry(&profile, &ClassLimits::default(), 1, |cabin| {
        let (class, up, down) = (Class::Assured, REQUEST_BYTES, 50_000);
        let object = cabin.open(Carry { class, passenger: 1, up, down });
        let gap = Duration::from_millis(20);
        let talk = Talk {
            class: Class::Network,
            passenger: 2,
            gap,
            sizes: vec![160; 50],
            phase: Duration::ZERO,
        };
        let talk = cabin.talk(talk);
        let complete = |cabin: &dyn Traffic| {
            let came = |way| cabin.transits(talk, way).iter().filter(|it| it.1.is_some()).count();
            cabin.course(object).is_done() && came(DOWN) == 50 && came(UP) == 50
        };
        let is_complete = cabin.wait(PATIENCE, |cabin| complete(cabin));
        let came = [DOWN, UP].map(|way| cabin.transits(talk, way));
        assert!(is_complete, "{:?}, {came:?}", cabin.course(object));
        assert_eq!(cabin.course(object).got, [50_000, REQUEST_BYTES]);
        assert!(cabin.course(object).took().unwrap() >= profile.rtt());
        for (way, link) in [(DOWN, &profile.link.forward), (UP, &profile.link.return_)] {
            for (_, transit) in cabin.transits(talk, way) {
                assert!(transit.unwrap() >= link.mean_delay());
            }
        }
        let [down, up] = cabin.class_bytes(Class::Assured);
        assert!(down >= 50_000 && up >= REQUEST_BYTES, "{down} {up}");
        assert!(cabin.class_bytes(Class::Network)[UP] >= 50 * 160);
        assert_eq!(cabin.class_bytes(Class::LowerEffort), [0, 0]);
    });
    done.unwrap();
}

/// Two radios named in `air.toml`, without losses, in a testbed with both links.
fn two_links() -> ([Profile; 2], Testbed) {
    let without_loss = |name: &str| Profile::named(name).unwrap().with_loss(Ratio::ZERO, 1.0);
    let links = ["da2gc", "mss"].map(|name| without_loss(name).unwrap());
    let testbed = Testbed::bundle(&[&links[0].link, &links[1].link], 1).unwrap();
    (links, testbed)
}

fn object(down: u64) -> Carry {
    Carry { class: Class::BestEffort, passenger: 1, up: REQUEST_BYTES, down }
}

/// Bytes on each radio link towards the aircraft.
fn carried(testbed: &Testbed) -> [u64; 2] {
    [0, 1].map(|path| testbed.counters_of(path).unwrap().forward.model.delivered.bytes)
}

/// One session uses both emulated radio links, and goes on over one while the other is cut.
pub fn two_radios() {
    let folder = tempfile::tempdir().unwrap();
    let (links, testbed) = two_links();
    let typed = FurtherRates::Typed;
    let mut traffic = EmuTraffic::bundle(testbed, &links, typed, "", folder.path()).unwrap();
    traffic.pass(Duration::from_secs(4));
    let download = traffic.open(object(500_000));
    assert!(traffic.wait(PATIENCE, |traffic| traffic.course(download).is_done()));
    let both = carried(traffic.testbed());
    assert!(both.iter().all(|bytes| *bytes > 50_000), "{both:?}");
    traffic.testbed().cut(0, true);
    let download = traffic.open(object(500_000));
    assert!(traffic.wait(PATIENCE, |traffic| traffic.course(download).is_done()));
    let [cut, other] = carried(traffic.testbed());
    // At most what was in flight.
    assert!(cut - both[0] < 50_000 && other - both[1] > 450_000, "{both:?} {cut} {other}");
    traffic.finish().unwrap();
}

/// The kernel's MPTCP between relays uses both emulated radio links, if the kernel has it.
pub fn mptcp() {
    let folder = tempfile::tempdir().unwrap();
    let (links, testbed) = two_links();
    let baseline = &bentpipe_lab::system::SPLIT_MPTCP;
    let traffic = EmuTraffic::over_baseline(testbed, &links[0], baseline, folder.path());
    let mut traffic = match traffic {
        Err(error) if error.to_string().contains("lacks MPTCP") => {
            println!("SKIPPED: {error}");
            return;
        }
        traffic => traffic.unwrap(),
    };
    let download = traffic.open(object(1_000_000));
    assert!(traffic.wait(PATIENCE, |traffic| traffic.course(download).is_done()));
    let both = carried(traffic.testbed());
    assert!(both.iter().all(|bytes| *bytes > 50_000), "{both:?}");
    traffic.finish().unwrap();
}

/// Ceilings of classes apply in both directions under any load.
pub fn ceilings() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::Emu(Emulator { folder: folder.path(), program });
    let ceil = BitRate::from_bps(200_000);
    let mut limits = ClassLimits::default();
    for limits in &mut limits {
        limits[Class::LowerEffort] = Limits { rate: None, ceil: Some(ceil) };
    }
    let done = engine.carry(&clean(), &limits, 1, |cabin| {
        let class = Class::LowerEffort;
        cabin.open(Carry { class, passenger: 1, up: ENDLESS, down: ENDLESS });
        assert!(cabin.wait(PATIENCE, |cabin| cabin.course(0).got.iter().all(|got| *got > 0)));
        let (began, before) = (cabin.now(), cabin.class_bytes(class));
        cabin.pass(Duration::from_secs(10));
        let after = cabin.class_bytes(class);
        let possible = ceil.bytes_in(cabin.now() - began) as f64;
        for way in [DOWN, UP] {
            let sent = (after[way] - before[way]) as f64;
            assert!(sent <= 1.05 * possible, "{sent} of {possible}");
            assert!(sent > 0.0);
        }
    });
    done.unwrap();
}
