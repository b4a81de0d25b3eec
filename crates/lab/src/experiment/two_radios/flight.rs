//! Links whose values follow the position of an aircraft.
//!
//! The aircraft flies past ground stations that are one `CELL_M` apart. Three values follow its distance
//! *d* to the nearest one:
//!
//! | value | model |
//! |---|---|
//! | signal-to-noise ratio | falls with *d*², as in free space (ITU-R P.525). At the edge of a cell it is `EDGE_SNR`, which is ours |
//! | rate | proportional to log₂(1 + SNR), as in Shannon's formula |
//! | loss | inversely proportional to the SNR, which is ours |
//!
//! Rate and loss have the means of the given link over a cell. Light takes 0.2 ms from the edge of a cell, so
//! that the delay follows the cell instead of the distance: each has another way to the core network.
//! At an edge the radio is dark for 2 s, and then the round trip is 100 ms longer or shorter.
//!
//! In turbulence, the satellite's dish loses its direction for a moment again and again. The antenna of
//! the other radio has no direction to lose.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec};

use crate::profile::Profile;

/// Distance of ground stations.
const CELL_M: f64 = 100_000.0;
/// Time between two ground stations.
pub const CELL_TIME: Duration = Duration::from_secs(400);
/// Time at which the aircraft leaves the first cell.
const FIRST_EDGE_S: f64 = 100.0;
/// Altitude, and distance of the route from the stations on the ground.
const ALTITUDE_M: f64 = 11_000.0;
const ASIDE_M: f64 = 20_000.0;
/// Signal-to-noise ratio at the edge of a cell: 3 dB.
const EDGE_SNR: f64 = 2.0;
/// Time for which the values hold.
const STEP_S: f64 = 5.0;

/// Distance to the nearest station.
fn distance_m(at_s: f64) -> f64 {
    let cell_s = CELL_TIME.as_secs_f64();
    let since_edge_s = (at_s - FIRST_EDGE_S).rem_euclid(cell_s);
    let along_m = CELL_M * (since_edge_s / cell_s - 0.5);
    along_m.hypot(ASIDE_M).hypot(ALTITUDE_M)
}

fn snr(at_s: f64) -> f64 {
    let edge_m = distance_m(FIRST_EDGE_S);
    EDGE_SNR * (edge_m / distance_m(at_s)).powi(2)
}

/// Values over a cell with this mean, as (start in seconds, value).
fn over_cell(mean: f64, value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let count = (CELL_TIME.as_secs_f64() / STEP_S) as usize;
    let starts: Vec<f64> = (0..count).map(|step| step as f64 * STEP_S).collect();
    let values: Vec<f64> = starts.iter().map(|start| value(start + STEP_S / 2.0)).collect();
    let factor = mean * count as f64 / values.iter().sum::<f64>();
    starts.into_iter().zip(values).map(|(start, value)| (start, factor * value)).collect()
}

/// The steps of a series, as a profile has them.
fn series(steps: &[(f64, f64)], unit: &str) -> String {
    let steps: Vec<String> = steps
        .iter()
        .map(|(start, value)| format!("[\"{start} s\", \"{value:.3} {unit}\"]"))
        .collect();
    format!("{{ series = {{ steps = [{}], repeat = \"400 s\" }} }}", steps.join(", "))
}

/// An air-to-ground link that follows the position, with the mean rate, loss and delay of `link`.
pub fn air_to_ground(link: &Profile) -> Profile {
    let direction = |spec: &DirectionSpec, loss: f64| {
        let kbps = spec.rate().expect("the link has a rate").bps() as f64 / 1e3;
        let rate = series(&over_cell(kbps, |at_s| (1.0 + snr(at_s)).log2()), "kbit/s");
        let loss = series(&over_cell(100.0 * loss, |at_s| 1.0 / snr(at_s)), "%");
        let ms = spec.mean_delay().as_millis();
        let (near, far) = (ms - 25, ms + 25);
        format!(
            "rate = {rate}\nloss = {loss}\nqueue = \"1 BDP\"\n\
             delay = {{ series = {{ steps = [[\"0 s\", \"{near} ms\"], [\"102 s\", \"{far} ms\"], \
             [\"502 s\", \"{near} ms\"]], repeat = \"800 s\" }} }}\n\
             outages = {{ packets = \"lost\", scheduled = [[\"100 s\", \"2 s\"]], repeat = \"400 s\" }}"
        )
    };
    let about = "da2gc past ground stations 100 km apart, 2 s dark and 100 ms apart at the edges";
    in_flight(link, about, direction)
}

/// A satellite link like `link` through 100 s of turbulence in each cell: the dish is lost for 0.5 s in
/// every 10 s.
pub fn satellite(link: &Profile) -> Profile {
    let outages: Vec<String> =
        (0..10).map(|nth| format!("[\"{} s\", \"500 ms\"]", 200 + 10 * nth)).collect();
    let outages = format!(
        "outages = {{ packets = \"lost\", scheduled = [{}], repeat = \"400 s\" }}",
        outages.join(", ")
    );
    let direction = |spec: &DirectionSpec, loss: f64| {
        let rate = spec.rate().expect("the link has a rate");
        let (us, percent) = (spec.mean_delay().as_micros(), 100.0 * loss);
        format!(
            "rate = \"{rate}\"\ndelay = \"{us} us\"\nloss = \"{percent:.3} %\"\n\
             queue = \"1 BDP\"\n{outages}"
        )
    };
    in_flight(link, "mss, dark for 0.5 s ten times in turbulence", direction)
}

fn in_flight(
    link: &Profile,
    about: &str,
    direction: impl Fn(&DirectionSpec, f64) -> String,
) -> Profile {
    let forward = direction(&link.link.forward, link.forward_loss());
    let back = direction(&link.link.return_, link.return_loss());
    let text = format!("[forward]\n{forward}\n[return]\n{back}");
    let spec: LinkSpec = toml::from_str(&text).expect("the link is well formed");
    let name = format!("{}-in-flight", link.name);
    Profile { name, about: about.into(), link: spec, terrestrial: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::two_radios::bundle::Bundle;

    #[test]
    fn rate_and_loss_follow_the_distance_and_have_the_means_of_the_link() {
        let both = Bundle::of_paper(1.0).expect("they have losses");
        let [link, flying] = [both.0[0].clone(), both.in_flight().0[1].clone()];
        let bps = |link: &Profile| link.link.forward.rate().expect("it has one").bps() as f64;
        assert!((bps(&flying) / bps(&link) - 1.0).abs() < 1e-3);
        assert!((flying.forward_loss() / link.forward_loss() - 1.0).abs() < 1e-3);
        assert_eq!(flying.rtt(), link.rtt());
        let at = |seconds| flying.link.forward.rate_at(Duration::from_secs(seconds)).expect("one");
        // From an edge by a station to the next edge.
        assert!(at(101) < at(200) && at(200) < at(300), "{} {} {}", at(101), at(200), at(300));
        assert_eq!(at(299), at(301));
        let ratio = at(300).bps() as f64 / at(101).bps() as f64;
        assert!((2.0..3.0).contains(&ratio), "{ratio}");
        assert!((both.in_flight().capacity_bps() / both.capacity_bps() - 1.0).abs() < 1e-3);
    }
}
