//! A link at a constant rate with bursts of losses: nothing is wrong, so the breaker should not trip.

use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_link::Settings;
use bentpipe_units::BitRate;

use super::fleet::{Craft, Fleet};

/// Profiles and mean bursts, in packets: losses come as on the profile, in bursts of time.
pub const CELLS: [(&str, u32); 2] = [("da2gc", 4), ("mss", 20)];

/// Result of an hour.
#[derive(Debug, Clone, Copy)]
pub struct Hour {
    /// Trips of the breakers of both ends.
    pub trips: u64,
    /// The part of the rate towards the aircraft that was used.
    pub used: f64,
}

/// An hour of downloading and uploading at once, with leases of what the link carries.
pub fn hour(profile: &str, burst: u32, seed: u64) -> Hour {
    span(profile, burst, Duration::from_secs(3600), seed)
}

/// The same for `length`.
pub fn span(profile: &str, burst: u32, length: Duration, seed: u64) -> Hour {
    let (rate, delay_us, loss) = match profile {
        "da2gc" => (468_000, 131_000, "3.3 %"),
        _ => (1_890_000, 380_500, "6 %"),
    };
    let rate = BitRate::from_bps(rate);
    let way = format!(
        "rate = \"{} bit/s\"\ndelay = \"{delay_us} us\"\n\
         loss = {{ gilbert-elliott = {{ mean = \"{loss}\", burst = {burst} }} }}\n",
        rate.bps()
    );
    let text = format!("[forward]\n{way}[return]\n{way}");
    let written: bentpipe_channel::WrittenLink =
        toml::from_str(&text).expect("the link is well formed");
    let link: LinkSpec =
        written.check(|_| Err("no traces".to_owned())).expect("the link is well formed");
    let settings = Settings { rate, ..Settings::default() };
    let mut fleet = Fleet::new(&link, &[Craft { air: settings.clone(), hub: settings }], seed);
    fleet.fill(0, true, true);
    fleet.run(length, |_| ());
    let (hub, airs) = fleet.trips();
    let used = fleet.offered_bytes().0 as f64 / rate.bytes_in(length) as f64;
    Hour { trips: hub + airs, used }
}
