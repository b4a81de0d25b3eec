//! `[split-http]` of either file: whole pages in one round trip.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use bentpipe_prefetch::plan::{Limits, NameList, Rules};
use bentpipe_units::{ByteSize, Ratio, Span};
use serde::Deserialize;

use super::{GroundSite, least, seconds};
use crate::pages::{AirSettings, GroundSettings};

/// Limits of the cabin's half. Absent, pages cross the link object by object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirSplitHttp {
    /// The part of pages' bytes that may be pushed in vain.
    pub waste: Ratio,
    /// The most that is pushed for one page.
    pub largest_page: ByteSize,
    /// For pushed objects, over all passengers; pages beyond it bring nothing with them.
    pub memory: ByteSize,
    /// Time for which a page's objects are held for its passenger once all have come.
    pub keep: Span,
    /// Time for which a GET waits for a promised object before it crosses the link.
    pub patience: Span,
}

/// Limits of the ground's half. Absent, it declines.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundSplitHttp {
    /// Pages at once, over all aircraft; each takes 3 MiB at most while its link is slow.
    pub pages: NonZeroUsize,
    /// Those of one aircraft.
    pub per_aircraft: NonZeroUsize,
    /// Maximum duration of a page's stream.
    #[serde(deserialize_with = "least::moment")]
    pub longest: Span,
    /// Objects of one page, at most 512.
    pub objects: NonZeroUsize,
    /// Bytes of all objects of one page.
    pub largest_page: ByteSize,
    /// Bytes of one object.
    pub largest_object: ByteSize,
    /// Levels of style sheets.
    pub depth: NonZeroU8,
    /// No fetch begins later than this after the page was asked for.
    pub time: Span,
    /// Fetches at once from one origin.
    pub per_origin: NonZeroUsize,
    /// Fetches at once for one page.
    pub at_once: NonZeroUsize,
    /// Names whose pages and objects alone are fetched; all, where there are none.
    #[serde(deserialize_with = "names")]
    pub allow: NameList,
    /// Names whose pages and objects are never fetched.
    #[serde(deserialize_with = "names")]
    pub deny: NameList,
}

impl Default for AirSplitHttp {
    fn default() -> Self {
        Self {
            waste: Ratio::new(0.15).unwrap_or(Ratio::ZERO),
            largest_page: ByteSize::from_bytes(8 << 20),
            memory: ByteSize::from_bytes(64 << 20),
            keep: seconds(30),
            patience: seconds(10),
        }
    }
}

impl Default for GroundSplitHttp {
    fn default() -> Self {
        let limits = Limits::default();
        let number = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
        Self {
            pages: number(64),
            per_aircraft: number(16),
            longest: seconds(180),
            objects: number(limits.objects),
            largest_page: ByteSize::from_bytes(8 << 20),
            largest_object: ByteSize::from_bytes(2 << 20),
            depth: NonZeroU8::new(limits.depth).unwrap_or(NonZeroU8::MIN),
            time: seconds(20),
            per_origin: number(limits.per_origin),
            at_once: number(limits.at_once),
            allow: NameList::default(),
            deny: NameList::default(),
        }
    }
}

impl AirSplitHttp {
    /// As the half takes it, with a flow's `idle` time.
    pub fn settings(&self, idle: Duration) -> AirSettings {
        AirSettings {
            waste_share: self.waste.get(),
            page_bytes: self.largest_page.bytes(),
            memory_bytes: self.memory.bytes(),
            keep: self.keep.into(),
            patience: self.patience.into(),
            idle,
        }
    }
}

impl GroundSplitHttp {
    /// As the half takes it, where the aircraft answer for `sites` over TLS, and flows have this `idle` time.
    pub fn settings(&self, sites: &[GroundSite], idle: Duration) -> GroundSettings {
        let limits = Limits {
            objects: self.objects.get(),
            bytes: self.largest_page.bytes(),
            object_bytes: self.largest_object.bytes(),
            depth: self.depth.get(),
            time: self.time.into(),
            per_origin: self.per_origin.get(),
            at_once: self.at_once.get(),
        };
        let (allow, deny) = (self.allow.clone(), self.deny.clone());
        let names = sites.iter().map(|site| site.upstream().name.as_str().to_owned());
        // They are names, and fewer than a list may have.
        let rules = Rules { allow, deny, secure: NameList::new(names).unwrap_or_default() };
        let (pages, per_aircraft) = (self.pages.get(), self.per_aircraft.get());
        GroundSettings { limits, rules, pages, per_aircraft, longest: self.longest.into(), idle }
    }
}

pub(super) fn names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NameList, D::Error> {
    NameList::new(Vec::<String>::deserialize(from)?).map_err(serde::de::Error::custom)
}
