//! `[classes.<name>]` of both files: guarantee and ceiling of each class for the traffic that this
//! gateway sends.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bentpipe_schedule::{Class, ClassPaths, ClassSettings, Limits, Metered, PerClass, Spread};
use bentpipe_units::BitRate;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use super::{ConfigError, Placed, Source};

/// Configured classes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(transparent)]
#[schemars(extend("x-key" = "CLASS"))]
pub struct Classes(BTreeMap<ClassName, ClassConfig>);

/// A class, parsed from its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassName(pub Class);

/// Guarantee and ceiling of a class.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClassConfig {
    /// Guaranteed rate on demand; for `lower-effort` its floor.
    rate: Option<BitRate>,
    /// Maximum rate, even on an idle link.
    ceil: Option<Placed<BitRate>>,
    /// Maximum rate of one passenger in it. Only for `network`.
    passenger_ceil: Option<Placed<BitRate>>,
    /// Use of several radios.
    #[schemars(extend("x-default" = "`\"each\"` for `operator`, otherwise `\"all\"`"))]
    paths: Option<SpreadSetting>,
    /// Use of `metered` radios.
    #[serde(default)]
    metered: MeteredSetting,
}

/// Use of several radios by a class.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum SpreadSetting {
    /// Each packet goes by the radio on which it arrives first.
    Fastest,
    /// Long transfers use all radios together. Datagrams go by the radio on which they arrive first.
    All,
    /// A copy of each packet goes by each radio, so that the loss of one costs nothing.
    Each,
}

/// Use of metered radios by a class.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum MeteredSetting {
    /// Never, even if no other radio works.
    Never,
    /// Only while no other radio works.
    #[default]
    Standby,
    /// Short exchanges and datagrams use them like any other radio.
    Urgent,
    /// Like any other radio.
    Always,
}

impl ClassConfig {
    /// Guaranteed rate while the class has data to send. For lower effort, this floor may be 0.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// Maximum rate, even on an idle link.
    pub fn ceil(&self) -> Option<BitRate> {
        self.ceil.as_deref().copied()
    }

    fn check_passenger_ceil(&self, class: Class, source: &Source<'_>) -> Result<(), ConfigError> {
        let Some(written) = &self.passenger_ceil else { return Ok(()) };
        let (why, help) = if class != Class::Network {
            (
                format!("a passenger's part of the class {class} is a fair share of it"),
                "write it under [classes.network], which passengers' own marks may lead to",
            )
        } else if written.bps() == 0 {
            (
                "a passenger-ceil of 0 would shut everybody out of the class".to_owned(),
                "write what a call takes: passenger-ceil = \"128 kbit/s\"",
            )
        } else {
            return Ok(());
        };
        Err(written.error(source, why, help))
    }

    fn check(&self, class: Class, source: &Source<'_>) -> Result<(), ConfigError> {
        self.check_passenger_ceil(class, source)?;
        let Some(written) = &self.ceil else { return Ok(()) };
        let ceil = **written;
        if ceil.bps() == 0 {
            let why = format!("a ceil of 0 would shut the class {class} out for ever");
            let help = "write what it may take at most: ceil = \"256 kbit/s\"";
            return Err(written.error(source, why, help));
        }
        match self.rate() {
            Some(rate) if rate > ceil => {
                let why = format!("the class {class} may count on {rate} and take at most {ceil}");
                let help = "raise ceil to the rate at least, or lower the rate";
                Err(written.error(source, why, help))
            }
            _ => Ok(()),
        }
    }
}

impl Classes {
    /// Settings of `class`; absent means no rate and no ceil.
    pub fn get(&self, class: Class) -> Option<&ClassConfig> {
        self.0.get(&ClassName(class))
    }

    /// Configured classes, highest priority first.
    pub fn iter(&self) -> impl Iterator<Item = (Class, &ClassConfig)> {
        self.0.iter().map(|(name, config)| (name.0, config))
    }

    /// Class settings of the link: the file's values, and the transport's defaults for the rest.
    pub fn settings(&self) -> PerClass<ClassSettings> {
        PerClass::new(|class| {
            let config = self.get(class);
            let limit = |of: fn(&ClassConfig) -> Option<BitRate>| config.and_then(of);
            let limits = Limits { rate: limit(ClassConfig::rate), ceil: limit(ClassConfig::ceil) };
            let paths = self.paths(class);
            ClassSettings { limits, paths, ..ClassSettings::default() }
        })
    }

    /// Choice of radios by `class`.
    fn paths(&self, class: Class) -> ClassPaths {
        let config = self.get(class);
        let spread = match config.and_then(|config| config.paths) {
            Some(SpreadSetting::Fastest) => Spread::Fastest,
            Some(SpreadSetting::All) => Spread::All,
            Some(SpreadSetting::Each) => Spread::Each,
            // Its traffic is little, and must not wait until the loss of a radio is noticed.
            None if class == Class::Operator => Spread::Each,
            None => Spread::All,
        };
        let metered = match config.map(|config| config.metered).unwrap_or_default() {
            MeteredSetting::Never => Metered::Never,
            MeteredSetting::Standby => Metered::Standby,
            MeteredSetting::Urgent => Metered::Urgent,
            MeteredSetting::Always => Metered::Always,
        };
        ClassPaths { spread, metered }
    }

    /// Ceiling of one passenger in the network class.
    pub fn passenger_ceil(&self) -> Option<BitRate> {
        self.get(Class::Network)?.passenger_ceil.as_deref().copied()
    }

    /// Sum of the guarantees.
    pub fn promised(&self) -> BitRate {
        let rates = self.iter().filter_map(|(_, config)| config.rate());
        BitRate::from_bps(rates.fold(0, |sum, rate| sum.saturating_add(rate.bps())))
    }

    /// Warnings about settings that are valid but unlikely to be intended on a link of `rate`.
    pub fn remarks(&self, rate: BitRate) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.promised() > rate {
            remarks.push(format!(
                "the classes may count on {} together, and the link has {rate}: where all ask, the \
                 more favoured get theirs first",
                self.promised()
            ));
        }
        for (class, config) in self.iter() {
            if let Some(ceil) = config.ceil().filter(|ceil| *ceil > rate) {
                remarks.push(format!(
                    "the class {class} has a ceil of {ceil}, above the link's {rate}"
                ));
            }
        }
        remarks
    }

    /// These settings, with those of `others` for classes that are not configured here.
    pub(super) fn or(&self, others: &Self) -> Self {
        let mut all = others.0.clone();
        all.extend(self.0.clone());
        Self(all)
    }

    pub(super) fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        self.iter().try_for_each(|(class, config)| config.check(class, source))
    }
}

impl<'de> Deserialize<'de> for ClassName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let found = Class::ALL.into_iter().find(|class| class.name() == name);
        found.map(Self).ok_or_else(|| {
            let names = Class::ALL.map(Class::name).join("\", \"");
            serde::de::Error::custom(format!("{name:?} is not a class: write one of \"{names}\""))
        })
    }
}

impl Serialize for ClassName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.name())
    }
}

impl JsonSchema for ClassName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "class".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "class", "type": "string", "enum": Class::ALL.map(Class::name) })
    }
}
