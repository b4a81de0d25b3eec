//! A link at a constant rate with bursts of losses. There is no fault, so the circuit breaker must
//! not trip.

use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_lab::sim::fleet::{Craft, Fleet};
use bentpipe_link::Settings;
use bentpipe_units::BitRate;

/// Profiles and mean bursts in packets. The loss is that of the profile, in bursts of time.
pub const CELLS: [(&str, u32); 2] = [("da2gc", 4), ("mss", 20)];

/// Result of a period.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Trips of the circuit breakers of both ends.
    pub trips: u64,
    /// Fraction of the rate towards the aircraft that was used.
    pub used: f64,
}

/// Downloads and uploads concurrently for `length`, with leases for the link's rates.
pub fn span(profile: &str, burst: u32, length: Duration, seed: u64) -> Span {
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
    let written: bentpipe_channel::RawLink =
        toml::from_str(&text).expect("the link is well formed");
    let link: LinkSpec =
        written.check(|_| Err("no traces".to_owned())).expect("the link is well formed");
    let settings = Settings { rate, ..Settings::default() };
    let mut fleet = Fleet::new(&link, &[Craft { air: settings.clone(), hub: settings }], seed);
    fleet.fill(0, true, true);
    fleet.run(length, |_| ());
    let (hub, airs) = fleet.trips();
    let used = fleet.offered_bytes().0 as f64 / rate.bytes_in(length) as f64;
    Span { trips: hub + airs, used }
}
