//! Named links: the files in `profiles/`, and those of a user.
//!
//! A profile is a TOML file with a `name` and a line `about` it. `[link]` is the link between the
//! gateways in both directions. The optional `[terrestrial]` is the path between the ground gateway
//! and the server. [`bentpipe_channel`] documents the format of a direction.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_channel::{LinkSpec, RawLink, SpecError};
use bentpipe_units::{ByteSize, Ratio};
use serde::Deserialize;
use toml::Spanned;

/// Packet size for which a profile's loss is stated. Bit errors affect longer packets more often.
pub const FULL_PACKET_BYTES: usize = 1500;

/// Maximum size of a trace file: more than a million lines of up to 13 digits.
const MAX_TRACE_BYTES: u64 = 16 << 20;

/// Built-in files, by name.
const BUILT_IN: [(&str, &str); 21] = [
    ("mss", include_str!("../../../profiles/mss.toml")),
    ("da2gc", include_str!("../../../profiles/da2gc.toml")),
    ("mss-rough", include_str!("../../../profiles/mss-rough.toml")),
    ("mss-p90", include_str!("../../../profiles/mss-p90.toml")),
    ("geo-rural-8", include_str!("../../../profiles/geo-rural-8.toml")),
    ("geo-rural-le", include_str!("../../../profiles/geo-rural-le.toml")),
    ("geo-idirect", include_str!("../../../profiles/geo-idirect.toml")),
    ("geo-520", include_str!("../../../profiles/geo-520.toml")),
    ("geo-720", include_str!("../../../profiles/geo-720.toml")),
    ("netforecast", include_str!("../../../profiles/netforecast.toml")),
    ("geo-satl", include_str!("../../../profiles/geo-satl.toml")),
    ("aero", include_str!("../../../profiles/aero.toml")),
    ("clean", include_str!("../../../profiles/clean.toml")),
    ("mss-double-rate", include_str!("../../../profiles/mss-double-rate.toml")),
    ("mss-half-rtt", include_str!("../../../profiles/mss-half-rtt.toml")),
    ("mss-half-loss", include_str!("../../../profiles/mss-half-loss.toml")),
    ("da2gc-double-rate", include_str!("../../../profiles/da2gc-double-rate.toml")),
    ("da2gc-half-rtt", include_str!("../../../profiles/da2gc-half-rtt.toml")),
    ("da2gc-half-loss", include_str!("../../../profiles/da2gc-half-loss.toml")),
    ("geo-620", include_str!("../../../profiles/geo-620.toml")),
    ("netforecast-20", include_str!("../../../profiles/netforecast-20.toml")),
];

/// A named link.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Link that it represents, in one line.
    pub about: String,
    /// Link between the gateways. Forward is towards the aircraft.
    pub link: LinkSpec,
    /// Path between the ground gateway and the server. `None` if it is ideal. Forward is towards
    /// the aircraft here too.
    pub terrestrial: Option<LinkSpec>,
}

/// Reason why a profile could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile of that name is built in.
    #[error("there is no profile {name:?}: {hint}", hint = hint(name))]
    Unknown {
        /// Requested name.
        name: String,
    },
    /// The file could not be read.
    #[error("cannot read the profile {}: {source}", path.display())]
    Read {
        /// The profile's file.
        path: PathBuf,
        /// Error from the system.
        source: io::Error,
    },
    /// The file is not a profile.
    #[error("{place}:{line}: {why}")]
    Wrong {
        /// The profile's file, or the name of a built-in one.
        place: String,
        /// Line of the fault, counted from 1.
        line: usize,
        /// Fault, and what to write instead.
        why: String,
    },
}

impl Profile {
    /// Names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// All built-in profiles.
    pub fn all() -> Result<Vec<Self>, ProfileError> {
        BUILT_IN.iter().map(|(name, text)| Self::parse(text, name, None)).collect()
    }

    /// Built-in profile with this name.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let unknown = || ProfileError::Unknown { name: name.into() };
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        Self::parse(text, name, None)
    }

    /// Built-in profiles with these names, joined by `+`: the links of one session.
    pub fn bundle(names: &str) -> Result<Vec<Self>, ProfileError> {
        names.split('+').map(Self::named).collect()
    }

    /// Reads a profile's file. Its traces are in the same folder.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let read = |source| ProfileError::Read { path: path.into(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let beside = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &path.display().to_string(), Some(beside))
    }

    /// Finds a profile by a user's argument: a file if it ends in `.toml`, otherwise a built-in
    /// name.
    pub fn find(name_or_path: &str) -> Result<Self, ProfileError> {
        if name_or_path.ends_with(".toml") {
            Self::load(Path::new(name_or_path))
        } else {
            Self::named(name_or_path)
        }
    }

    /// The same profile with a different bit-error rate in both directions of its link.
    pub fn with_ber(mut self, ber: Ratio) -> Self {
        self.link.forward = self.link.forward.with_ber(ber);
        self.link.return_ = self.link.return_.with_ber(ber);
        self
    }

    /// The same profile with the mean loss `mean` in each direction of its link, independent or in
    /// bursts of `burst` packet times, instead of its own loss. Fails if such bursts cannot reach
    /// that mean.
    pub fn with_loss(mut self, mean: Ratio, burst: f64) -> Result<Self, SpecError> {
        self.link.forward = self.link.forward.with_loss(mean, burst)?;
        self.link.return_ = self.link.return_.with_loss(mean, burst)?;
        Ok(self)
    }

    /// Round-trip time between aircraft and server, without queues and serialization.
    pub fn rtt(&self) -> Duration {
        self.link.rtt() + self.terrestrial.as_ref().map_or(Duration::ZERO, LinkSpec::rtt)
    }

    /// Fraction of full packets lost between the gateways in the direction to the aircraft.
    pub fn forward_loss(&self) -> f64 {
        self.link.forward.mean_loss(FULL_PACKET_BYTES)
    }

    /// Fraction of full packets lost between the gateways in the direction from the aircraft.
    pub fn return_loss(&self) -> f64 {
        self.link.return_.mean_loss(FULL_PACKET_BYTES)
    }

    /// Bytes that fill the forward link for one round trip: its rate × [`Profile::rtt`]. `None` if
    /// the rate is unlimited.
    pub fn bdp(&self) -> Option<ByteSize> {
        let rate = self.link.forward.rate()?;
        Some(ByteSize::from_bytes(rate.bytes_in(self.rtt())))
    }

    /// Minimum time in which `bytes` can be requested and received on the aircraft: RTT +
    /// 8·bytes/((1−p)·rate). `None` if the rate is unlimited or nothing arrives.
    pub fn forward_limit(&self, bytes: u64) -> Option<Duration> {
        let rate = self.link.forward.rate()?;
        let seconds = 8.0 * bytes as f64 / ((1.0 - self.forward_loss()) * rate.bps() as f64);
        Some(self.rtt() + Duration::try_from_secs_f64(seconds).ok()?)
    }

    fn parse(text: &str, place: &str, traces: Option<&Path>) -> Result<Self, ProfileError> {
        let wrong = |at: usize, why: String| ProfileError::Wrong {
            place: place.into(),
            line: text[..at].matches('\n').count() + 1,
            why,
        };
        let written: WrittenProfile = toml::from_str(text).map_err(|error| {
            wrong(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let check = |table: &str, link: Spanned<RawLink>| {
            let at = link.span().start;
            let checked = link.into_inner().check(|file| read_trace(traces, file));
            checked.map_err(|error: SpecError| wrong(at, format!("in [{table}], {error}")))
        };
        Ok(Self {
            link: check("link", written.link)?,
            terrestrial: written.terrestrial.map(|path| check("terrestrial", path)).transpose()?,
            name: written.name,
            about: written.about,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenProfile {
    name: String,
    about: String,
    link: Spanned<RawLink>,
    terrestrial: Option<Spanned<RawLink>>,
}

/// Text of a trace in the folder of the profile that refers to it.
fn read_trace(folder: Option<&Path>, file: &str) -> Result<String, String> {
    let Some(folder) = folder else {
        return Err("names a trace file, which a built-in profile cannot have".into());
    };
    let path = folder.join(file);
    let error = |source: io::Error| format!("names the trace {}: {source}", path.display());
    let length = fs::metadata(&path).map_err(error)?.len();
    if length > MAX_TRACE_BYTES {
        return Err(format!(
            "names the trace {}, of {}: at most {} are read, cut it shorter",
            path.display(),
            ByteSize::from_bytes(length),
            ByteSize::from_bytes(MAX_TRACE_BYTES)
        ));
    }
    fs::read_to_string(&path).map_err(error)
}

/// The most similar name, if any is similar, and the list of all names.
fn hint(name: &str) -> String {
    let nearest = Profile::names()
        .map(|known| (strsim::normalized_damerau_levenshtein(known, name), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.5);
    let all = Profile::names().collect::<Vec<_>>().join(", ");
    match nearest {
        Some((_, known)) => {
            format!("did you mean {known:?}? There are {all}; a file ends in .toml")
        }
        None => format!("write one of {all}, or a file that ends in .toml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Profile {
        Profile::named(name).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_file_is_built_in_under_its_name() {
        let all = Profile::all().unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<_> = all.iter().map(|profile| profile.name.as_str()).collect();
        assert_eq!(names, Profile::names().collect::<Vec<_>>());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let profile = Profile::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                Some(profile.name.as_str()),
                path.file_stem().and_then(|stem| stem.to_str())
            );
            assert_eq!(profile, named(&profile.name));
        }
    }

    #[test]
    fn every_value_names_its_source() {
        for (name, text) in BUILT_IN {
            let values = text.lines().skip_while(|line| !line.starts_with('['));
            for line in values.filter(|line| line.contains('"') || line.contains('=')) {
                let source = line.split_once('#').unwrap_or_else(|| panic!("{name}: {line}")).1;
                assert!(source.trim().len() >= 4, "{name}: {line}");
            }
        }
    }

    #[test]
    fn the_profiles_have_their_declared_values() {
        // (name, forward and return bit/s, RTT in ms, forward and return loss of full packets)
        for (name, forward_bps, return_bps, rtt_ms, forward_loss, return_loss) in [
            ("mss", 1_890_000, 1_890_000, 761, 0.06, 0.06),
            ("da2gc", 468_000, 468_000, 262, 0.033, 0.033),
            ("mss-rough", 1_890_000, 1_890_000, 761, 0.094, 0.094),
            ("mss-p90", 1_890_000, 1_890_000, 761, 0.4, 0.4),
            ("geo-rural-8", 8_000_000, 4_000_000, 650, 0.0, 0.0),
            ("geo-rural-le", 2_000_000, 256_000, 650, 0.0, 0.0),
            ("geo-idirect", 1_000_000, 128_000, 620, 0.0, 0.0),
            ("geo-520", 1_000_000, 256_000, 520, 0.0, 0.0),
            ("geo-720", 1_000_000, 256_000, 720, 0.0, 0.0),
            ("netforecast", 10_000_000, 10_000_000, 540, 0.0, 0.0),
            ("geo-satl", 20_000_000, 2_000_000, 600, 0.01, 0.01),
            ("aero", 4_000_000, 4_000_000, 560, 0.113, 0.113),
            ("mss-double-rate", 3_770_000, 3_770_000, 761, 0.06, 0.06),
            ("mss-half-rtt", 1_890_000, 1_890_000, 380, 0.06, 0.06),
            ("mss-half-loss", 1_890_000, 1_890_000, 761, 0.03, 0.03),
            ("da2gc-double-rate", 936_000, 936_000, 262, 0.033, 0.033),
            ("da2gc-half-rtt", 468_000, 468_000, 131, 0.033, 0.033),
            ("da2gc-half-loss", 468_000, 468_000, 262, 0.0165, 0.0165),
            ("geo-620", 1_000_000, 256_000, 620, 0.0, 0.0),
            ("netforecast-20", 20_000_000, 20_000_000, 540, 0.0, 0.0),
        ] {
            let profile = named(name);
            let bps = |rate: Option<bentpipe_units::BitRate>| rate.unwrap().bps();
            assert_eq!(bps(profile.link.forward.rate()), forward_bps, "{name}");
            assert_eq!(bps(profile.link.return_.rate()), return_bps, "{name}");
            assert_eq!(profile.rtt().as_millis(), rtt_ms, "{name}");
            assert!((profile.forward_loss() - forward_loss).abs() < 5e-4, "{name}");
            assert!((profile.return_loss() - return_loss).abs() < 5e-4, "{name}");
        }
        let clean = named("clean");
        assert_eq!((clean.link.forward.rate(), clean.link.return_.rate()), (None, None));
        assert_eq!((clean.rtt(), clean.forward_loss()), (Duration::ZERO, 0.0));
        assert_eq!((clean.bdp(), clean.forward_limit(1)), (None, None));
    }

    #[test]
    fn products_and_limits_follow() {
        let rural = named("geo-rural-8");
        assert_eq!(rural.bdp(), Some(ByteSize::from_bytes(650_000)));
        assert_eq!(rural.link.forward.queue(), Some(ByteSize::from_bytes(650_000)));
        assert_eq!(rural.link.return_.queue(), Some(ByteSize::from_bytes(325_000)));
        // Limits with which the measured baselines on these links are compared.
        let limit_s = |name, bytes| named(name).forward_limit(bytes).unwrap().as_secs_f64();
        for (name, bytes, expected_s) in [
            ("mss", 10_000, 0.806),
            ("mss", 100_000, 1.211),
            ("mss", 1_000_000, 5.264),
            ("mss-p90", 1_000_000, 7.816),
            ("geo-satl", 1_000_000, 1.004),
            ("aero", 16_000_000, 36.64),
        ] {
            let limit_s = limit_s(name, bytes);
            assert!((limit_s / expected_s - 1.0).abs() < 1e-3, "{name} {bytes}: {limit_s}");
        }
    }

    #[test]
    fn the_bit_error_rate_is_a_parameter() {
        let profile = named("aero").with_ber(Ratio::new(1e-6).unwrap());
        let loss = 1.0 - (1.0 - 1e-6f64).powi(12_000);
        assert!((profile.forward_loss() - loss).abs() < 1e-9);
        assert!((profile.return_loss() - loss).abs() < 1e-9);
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_and_all() {
        let why = |name| Profile::find(name).unwrap_err().to_string();
        assert!(
            why("geo-rural8").contains("did you mean \"geo-rural-8\""),
            "{}",
            why("geo-rural8")
        );
        assert!(why("starlink").contains("one of mss, da2gc"), "{}", why("starlink"));
        assert!(why("no-such.toml").contains("cannot read the profile no-such.toml"));
    }

    #[test]
    fn a_wrong_file_says_where_and_what_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let why = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = Profile::load(&path).unwrap_err().to_string();
            error.replace(&format!("{}", folder.path().display()), "")
        };
        let head = "name = \"mine\"\nabout = \"a test\"\n";
        let error = why(&format!("{head}[link.forward]\nrate = \"2 MB/s\"\n"));
        assert!(error.starts_with("/mine.toml:4: ") && error.contains("multiply by 8"), "{error}");
        let error = why(&format!("{head}[link.forward]\nrate = \"2 Mbit/s\"\nlos = \"6 %\"\n"));
        assert!(
            error.starts_with("/mine.toml:5: ") && error.contains("expected one of"),
            "{error}"
        );
        let error = why(&format!("{head}\n[link.return]\nqueue = \"1 BDP\"\n"));
        assert!(error.starts_with("/mine.toml:4: in [link], `return.queue`"), "{error}");
        let error = why(&format!("{head}\n[link.return]\nrate.mahimahi = \"gone.trace\"\n"));
        assert!(error.contains("`return.rate` names the trace /gone.trace"), "{error}");
        let error = why(head);
        assert!(error.contains("missing field `link`"), "{error}");
    }

    #[test]
    fn a_trace_beside_the_profile_is_its_rate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cell.toml");
        fs::write(folder.path().join("cell.trace"), "1\n3\n4\n").unwrap();
        let text = "name = \"cell\"\nabout = \"\"\nlink.forward.rate.mahimahi = \"cell.trace\"\n";
        fs::write(&path, text).unwrap();
        let profile = Profile::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.link.forward.rate().unwrap().bps(), 9_000_000);
    }
}
