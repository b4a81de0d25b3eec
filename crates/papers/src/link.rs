//! Link of a cell and settings of its hosts, derived from profile, condition and `x`.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec, SpecError};
use bentpipe_lab::emu::Congestion;
use bentpipe_lab::emu::Tuning;
use bentpipe_lab::profile::{FULL_PACKET_BYTES, Profile, ProfileError};
use bentpipe_results::{self as results, Cell, Changes, Grid, Study};
use bentpipe_units::{BitRate, ParseQuantityError, Ratio, Span};

/// Default rate of a terrestrial path.
const TERRESTRIAL_BPS: u64 = 200_000_000;

/// Queue of the terrestrial path, large enough for bursts that a server's network card would have
/// paced.
const TERRESTRIAL_QUEUE: &str = "100 ms";

/// Names of `x` in the grids' files.
const BER: &str = "bit-error rate";
const DISTANCE: &str = "round trip between first proxy and source, ms";
const CONNECTIONS: &str = "connections at once";

/// All settings of a cell except its workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// Link and terrestrial path of the cell.
    pub profile: Profile,
    /// Further links, which a session uses together with that one.
    pub beside: Vec<Profile>,
    /// Changes made by the condition.
    pub changes: Changes,
    /// Number of concurrent connections, if `x` sets it.
    pub connections: Option<u32>,
    /// TCP settings of the client.
    pub client: Tuning,
    /// TCP settings of the server.
    pub server: Tuning,
    /// TCP settings between relays on the link: how connections start, and how they resume after a
    /// pause. Buffers and windows apply to client and server only; a relay has its own.
    pub relays: Tuning,
}

/// Reason why a scene is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SceneError {
    /// There is no link of this name.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The changes do not apply to the link.
    #[error("the link {link}: {source}")]
    Link {
        /// The link.
        link: String,
        /// Cause.
        source: SpecError,
    },
    /// A setting of the grid that is not used.
    #[error("grid {grid:?}: there is no setting {key:?}: write one of {known}", known = SETTINGS.join(", "))]
    Setting {
        /// The grid.
        grid: String,
        /// The setting.
        key: String,
    },
    /// An invalid value of the grid or the condition.
    #[error("{what} {value:?}: {why}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// Value as written.
        value: String,
        /// Description of the fault and the correction.
        why: String,
    },
}

/// Valid settings of grids.
const SETTINGS: [&str; 23] = [
    "aerotcp-buffers",
    "aerotcp-connections",
    "aerotcp-peak-rate",
    "connections",
    "file-readers",
    "header-bytes",
    "initial-window",
    "length",
    "lower-effort-ceil-down",
    "lower-effort-ceil-up",
    "lower-effort-rate",
    "measured",
    "page-readers",
    "pages",
    "pep-buffer-bytes",
    "pep-reserve-bytes",
    "pep-window-bytes",
    "slow-start-after-idle",
    "terrestrial-loss",
    "terrestrial-rate",
    "think-time",
    "tls",
    "warm",
];

/// Checks that the grid has only valid settings.
pub fn check_settings(grid: &Grid) -> Result<(), SceneError> {
    match grid.settings.keys().find(|key| !SETTINGS.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(SceneError::Setting { grid: grid.id.clone(), key: key.clone() }),
    }
}

impl Scene {
    /// Builds the scene of a cell.
    pub fn of(study: &Study, grid: &Grid, cell: &Cell) -> Result<Self, SceneError> {
        let mut links = Profile::bundle(cell.on("link").unwrap_or("clean"))?;
        let mut beside = links.split_off(1);
        let mut profile = links.remove(0);
        let condition = cell.on("condition").and_then(|id| study.condition(id));
        let mut changes = condition.map(|one| one.set.clone()).unwrap_or_default();
        let baseline = study.condition("baseline").map(|one| one.set.clone()).unwrap_or_default();
        inherit(&mut changes, &baseline);
        let mut connections = None;
        let mut distance_ms = changes.terrestrial_rtt_ms;
        if let Some((x, value)) = cell.on("x").and_then(|x| Some((x, x.parse::<f64>().ok()?))) {
            match grid.x.as_deref() {
                Some(BER) => changes.ber = Some(value),
                Some(DISTANCE) => distance_ms = Some(value),
                Some(CONNECTIONS) => connections = Some(value as u32),
                _ => {
                    let why = format!(
                        "the grid's `x` says none of {BER:?}, {DISTANCE:?}, {CONNECTIONS:?}"
                    );
                    return Err(SceneError::Value { what: "x", value: x.into(), why });
                }
            }
        }
        for profile in [&mut profile].into_iter().chain(&mut beside) {
            profile.link = radio(&profile.link, &changes)
                .map_err(|source| SceneError::Link { link: profile.name.clone(), source })?;
        }
        let declared = Terrestrial {
            rtt_ms: distance_ms,
            loss: changes.terrestrial_loss.or(number(grid, "terrestrial-loss")),
            rate: rate(grid, "terrestrial-rate")?,
        };
        profile.terrestrial = declared.path(profile.terrestrial)?;
        if profile.terrestrial.is_some() && !beside.is_empty() {
            let why = "several links have no path behind the ground: leave it out";
            return Err(value("link", cell.on("link").unwrap_or_default(), why));
        }
        let (client, server) = tunings(&changes, grid);
        let relays = Tuning {
            initial_window: server.initial_window,
            slow_start_after_idle: server.slow_start_after_idle,
            ..Tuning::default()
        };
        Ok(Self { profile, beside, changes, connections, client, server, relays })
    }

    /// Share of the rate that other users leave to one connection.
    pub fn fair_share(&self) -> f64 {
        self.changes.fair_share.unwrap_or(1.0)
    }

    /// Profile of the link for systems that send at a granted rate, with other users. It has the
    /// fair share of the rate, and the delay of a queue filled by others.
    pub fn granted(&self) -> Profile {
        let share = self.fair_share();
        let less = |spec: &DirectionSpec| {
            let rate =
                spec.rate().map(|rate| BitRate::from_bps((rate.bps() as f64 * share) as u64));
            let loss = Ratio::new(spec.mean_loss(FULL_PACKET_BYTES)).unwrap_or(Ratio::ZERO);
            let queue = spec.queue().map_or(0.0, |queue| 8.0 * queue.bytes() as f64);
            let full = spec.rate().map_or(0.0, |rate| queue / rate.bps().max(1) as f64);
            DirectionSpec::fixed(rate, spec.mean_delay() + Duration::from_secs_f64(full), loss)
        };
        let mut profile = self.profile.clone();
        if share < 1.0 {
            let link = &self.profile.link;
            profile.link = LinkSpec { forward: less(&link.forward), return_: less(&link.return_) };
        }
        profile
    }

    /// Rate of all links in the payload's direction, bit/s.
    pub fn rate_bps(&self, up: bool) -> f64 {
        let links = [&self.profile].into_iter().chain(&self.beside).map(|profile| &profile.link);
        let rates = links.map(|link| if up { link.return_.rate() } else { link.forward.rate() });
        rates.map(|rate| rate.map_or(f64::INFINITY, |rate| rate.bps() as f64)).sum()
    }

    /// Share of full packets lost in the payload's direction.
    pub fn loss(&self, up: bool) -> f64 {
        if up { self.profile.return_loss() } else { self.profile.forward_loss() }
    }

    /// End-to-end round-trip time, by the longest link.
    pub fn rtt(&self) -> Duration {
        self.beside.iter().map(Profile::rtt).fold(self.profile.rtt(), Duration::max)
    }
}

/// Adds the values of the `baseline` condition that `changes` does not set.
fn inherit(changes: &mut Changes, baseline: &Changes) {
    macro_rules! or {
        ($($field:ident),*) => { $(changes.$field = changes.$field.or(baseline.$field);)* };
    }
    or!(
        loss,
        ber,
        burst,
        terrestrial_rtt_ms,
        terrestrial_loss,
        cross_flows,
        fair_share,
        initial_window,
        fast_open,
        slow_start_after_idle,
        congestion,
        buffer_bytes,
        receive_window_bytes,
        tls,
        max_streams,
        connect_retry_ms,
        lower_effort_passengers,
        connections_each
    );
}

/// The radio link with the condition's losses. Bit errors hit packets in proportion to their
/// length. If errors come in bursts, they lose the same share of full packets instead.
fn radio(link: &LinkSpec, changes: &Changes) -> Result<LinkSpec, SpecError> {
    let direction = |spec: &DirectionSpec| -> Result<DirectionSpec, SpecError> {
        let burst = changes.burst.unwrap_or(1.0);
        let share = |value: f64| Ratio::new(value.clamp(0.0, 1.0)).unwrap_or(Ratio::ZERO);
        match (changes.loss, changes.ber) {
            (Some(loss), _) => spec.clone().with_loss(share(loss), burst),
            (None, Some(ber)) => {
                let errors = spec.clone().with_ber(share(ber));
                if burst <= 1.0 {
                    return Ok(errors);
                }
                spec.clone().with_loss(share(errors.mean_loss(FULL_PACKET_BYTES)), burst)
            }
            (None, None) if burst > 1.0 => {
                spec.clone().with_loss(share(spec.mean_loss(FULL_PACKET_BYTES)), burst)
            }
            (None, None) => Ok(spec.clone()),
        }
    };
    Ok(LinkSpec { forward: direction(&link.forward)?, return_: direction(&link.return_)? })
}

/// Path behind the ground gateway.
struct Terrestrial {
    rtt_ms: Option<f64>,
    loss: Option<f64>,
    rate: Option<BitRate>,
}

impl Terrestrial {
    /// Builds the path. Missing values come from the profile, or else describe a cable.
    fn path(&self, profile: Option<LinkSpec>) -> Result<Option<LinkSpec>, SceneError> {
        if self.rtt_ms.is_none() && self.loss.is_none_or(|loss| loss == 0.0) {
            return Ok(profile);
        }
        let (rtt, rate) = match &profile {
            Some(path) => (path.rtt(), path.forward.rate()),
            None => (Duration::ZERO, None),
        };
        let rtt = self.rtt_ms.map_or(Ok(rtt), |ms| {
            Duration::try_from_secs_f64(ms / 1e3).map_err(|error| SceneError::Value {
                what: "terrestrial-rtt-ms",
                value: ms.to_string(),
                why: error.to_string(),
            })
        })?;
        let rate = self.rate.or(rate).unwrap_or(BitRate::from_bps(TERRESTRIAL_BPS));
        let loss = self.loss.unwrap_or(0.0);
        let text = format!(
            "rate = \"{} bit/s\"\ndelay = \"{} us\"\nloss = {loss:?}\nqueue = \"{TERRESTRIAL_QUEUE}\"",
            rate.bps(),
            (rtt / 2).as_micros(),
        );
        let direction: DirectionSpec =
            toml::from_str(&text).map_err(|error| SceneError::Value {
                what: "terrestrial path",
                value: text.replace('\n', ", "),
                why: error.message().into(),
            })?;
        Ok(Some(LinkSpec { forward: direction.clone(), return_: direction }))
    }
}

/// TCP settings of client and server. The grid's settings apply unless the condition overrides
/// them.
fn tunings(changes: &Changes, grid: &Grid) -> (Tuning, Tuning) {
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let whole = |key: &str| grid.settings.get(key).and_then(toml::Value::as_integer);
    let initial = whole("initial-window").and_then(|segments| u32::try_from(segments).ok());
    let restart = grid.settings.get("slow-start-after-idle").and_then(toml::Value::as_bool);
    let server = Tuning {
        congestion: changes.congestion.map(|congestion| match congestion {
            results::Congestion::Reno => Congestion::Reno,
            results::Congestion::Cubic => Congestion::Cubic,
            results::Congestion::Bbr => Congestion::Bbr,
        }),
        initial_window: changes.initial_window.or(initial),
        fast_open: changes.fast_open,
        slow_start_after_idle: changes.slow_start_after_idle.or(restart),
        buffer_bytes: changes.buffer_bytes.map(bytes),
        receive_window_bytes: None,
    };
    let client = Tuning { receive_window_bytes: changes.receive_window_bytes.map(bytes), ..server };
    (client, server)
}

fn number(grid: &Grid, key: &str) -> Option<f64> {
    let value = grid.settings.get(key)?;
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// Error for an invalid value, with the correction.
pub fn value(what: &'static str, value: impl ToString, why: &str) -> SceneError {
    SceneError::Value { what, value: value.to_string(), why: why.into() }
}

/// Rate in the grid's settings, as `"2 Mbit/s"`.
pub fn rate(grid: &Grid, key: &'static str) -> Result<Option<BitRate>, SceneError> {
    let Some(text) = grid.settings.get(key).and_then(toml::Value::as_str) else { return Ok(None) };
    let wrong = |error: ParseQuantityError| SceneError::Value {
        what: key,
        value: text.into(),
        why: error.to_string(),
    };
    text.parse().map(Some).map_err(wrong)
}

/// Duration in the grid's settings, as `"2 s"`.
pub fn duration(grid: &Grid, key: &'static str) -> Result<Option<Duration>, SceneError> {
    let Some(text) = grid.settings.get(key).and_then(toml::Value::as_str) else { return Ok(None) };
    let span: Result<Span, ParseQuantityError> = text.parse();
    let wrong = |error: ParseQuantityError| SceneError::Value {
        what: key,
        value: text.into(),
        why: error.to_string(),
    };
    span.map(|span| Some(span.duration())).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(study: &str, grid: &str, columns: &[(&str, &str)]) -> Scene {
        let study = Study::named(study).unwrap();
        let cell = Cell::of(columns.iter().copied());
        Scene::of(&study, study.grid(grid).unwrap(), &cell).unwrap()
    }

    #[test]
    fn every_cell_of_every_study_has_a_scene() {
        for study in Study::all().unwrap().into_iter().chain(Study::own().unwrap()) {
            for (grid, planned) in study.plan(false) {
                Scene::of(&study, grid, &planned.cell)
                    .unwrap_or_else(|error| panic!("{} {}: {error}", grid.id, planned.cell));
            }
        }
    }

    #[test]
    fn settings_without_a_reader_are_refused() {
        let mut study = Study::named("aerotcp").unwrap();
        let grid = &mut study.grids[0];
        grid.settings.insert("conections".into(), 10.into());
        let error = check_settings(grid).unwrap_err().to_string();
        assert!(
            error.contains("no setting \"conections\"") && error.contains("connections,"),
            "{error}"
        );
    }

    #[test]
    fn bit_errors_strike_by_length_and_bursts_lose_as_many_full_packets() {
        let of = |condition| {
            scene(
                "aerotcp",
                "files",
                &[("link", "aero"), ("condition", condition), ("x", "0.000001")],
            )
        };
        let (apart, bursts) = (of("apart"), of("bursts"));
        let full = 1.0 - (1.0 - 1e-6_f64).powi(12_000);
        for one in [&apart, &bursts] {
            assert!((one.loss(false) - full).abs() < 1e-9 && (one.loss(true) - full).abs() < 1e-9);
            assert_eq!(one.rtt(), Duration::from_millis(560));
        }
        let small = |one: &Scene| one.profile.link.forward.mean_loss(60);
        assert!(small(&apart) < 0.05 * full && (small(&bursts) - full).abs() < 1e-9);
        let window = scene("aerotcp", "window", &[("link", "aero"), ("condition", "window-64k")]);
        assert_eq!(window.client.receive_window_bytes, Some(65_536));
        assert_eq!((window.server.receive_window_bytes, window.loss(false)), (None, 0.0));
    }

    #[test]
    fn a_condition_is_the_baseline_with_what_it_sets() {
        let of = |condition| {
            scene("rural-paws", "pages", &[("link", "geo-rural-8"), ("condition", condition)])
        };
        let three = of("initial-window-3");
        assert_eq!(three.server.initial_window, Some(3));
        assert_eq!(three.server.buffer_bytes, Some(130_000));
        assert_eq!((three.relays.initial_window, three.relays.buffer_bytes), (Some(3), None));
        assert_eq!(three.relays.slow_start_after_idle, Some(true));
        assert_eq!(of("today").server.slow_start_after_idle, Some(false));
        assert!((of("loss-1").loss(true) - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_path_behind_the_gateway_is_as_far_as_the_cell_says() {
        let near = [("link", "netforecast"), ("contender", "bentpipe")];
        let at = scene("netforecast", "distance", &[&near[..], &[("x", "200")]].concat());
        assert_eq!(at.rtt(), Duration::from_millis(740));
        let far = scene("netforecast", "epb", &[&near[..], &[("condition", "D")]].concat());
        let path = far.profile.terrestrial.as_ref().unwrap();
        assert_eq!(path.rtt(), Duration::from_millis(100));
        assert!((path.forward.mean_loss(1500) - 0.0001).abs() < 1e-9);
        let granted = far.granted().link.forward;
        assert_eq!(granted.rate().unwrap().bps(), 2_500_000);
        assert_eq!(granted.mean_delay(), Duration::from_millis(270 + 540));
        let window = scene("netforecast", "window", &[&near[..], &[("x", "8")]].concat());
        assert_eq!((window.connections, window.granted()), (Some(8), window.profile.clone()));
    }
}
