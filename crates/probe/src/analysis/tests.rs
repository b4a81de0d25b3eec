use super::*;
use crate::clock::Moment;
use crate::ping::{Outcome, Ping};
use crate::record::SessionTarget;
use crate::target::Method;

const S: u64 = 1_000_000;

fn session() -> Session {
    let far =
        SessionTarget { name: "far".into(), address: IpAddr::from([1, 1, 1, 1]), side: Side::Far };
    let near = SessionTarget {
        name: "near".into(),
        address: IpAddr::from([10, 0, 0, 1]),
        side: Side::Near,
    };
    Session {
        id: "s".into(),
        began: Moment { boot_us: 1000 * S, wall_us: 0 },
        software_version: "0".into(),
        platform: "p".into(),
        targets: vec![far, near],
        name_list: "n".into(),
    }
}

fn ping(
    name: &str,
    address: [u8; 4],
    method: Method,
    second: u64,
    rtt_us: u64,
    quiet: bool,
) -> Record {
    let ping = Ping {
        target: name.into(),
        address: IpAddr::from(address),
        method,
        sequence: 0,
        scout: false,
        start_error_us: 30,
        outcome: Outcome::Reply { rtt_us, refused: false },
    };
    Record {
        number: 1,
        began: Moment { boot_us: (1000 + second) * S, wall_us: 0 },
        clock_age_s: -1,
        runtime_us: rtt_us,
        quiet,
        activity: None,
        concurrent: Vec::new(),
        measurement: Measurement::Ping(ping),
    }
}

#[test]
fn the_minimum_is_of_quiet_pings_beyond_the_radio() {
    let mut analysis = Analysis::default();
    analysis.begin(session());
    let (far, near) = ([1, 1, 1, 1], [10, 0, 0, 1]);
    analysis.add(&ping("near", near, Method::Icmp, 1, 1000, true));
    analysis.add(&ping("far", far, Method::Tcp { port: 443 }, 1, 2000, true));
    assert_eq!(analysis.minimum_rtt(), None, "a proxy in the cabin may have answered");
    analysis.add(&ping("far", far, Method::Icmp, 2, 600_000, false));
    assert_eq!(analysis.minimum_rtt(), Some(Minimum { rtt_us: 600_000, quiet: false }));
    analysis.add(&ping("far", far, Method::Icmp, 4, 610_000, true));
    assert_eq!(analysis.minimum_rtt(), Some(Minimum { rtt_us: 610_000, quiet: true }));
    assert_eq!(analysis.kinds["ping"], 4);
}

#[test]
fn windows_count_from_the_start_of_their_session() {
    let mut analysis = Analysis::default();
    for _ in 0..2 {
        analysis.begin(session());
        for k in 0..60 {
            analysis.add(&ping("far", [1, 1, 1, 1], Method::Icmp, 2 * k, 600_000, false));
        }
    }
    let (key, figures) = analysis.pings.main().unwrap();
    assert_eq!(key.name, "far");
    let sent: Vec<u32> = figures.windows.values().map(|window| window.counts.sent).collect();
    assert_eq!(sent, [50, 10, 50, 10]);
    assert_eq!(figures.window_losses(), [0.0; 4]);
}
