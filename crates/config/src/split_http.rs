//! `[split-http]` of both files: delivery of whole pages in one round trip.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use bentpipe_prefetch::plan::{Limits, NameList, Rules};
use bentpipe_units::{ByteSize, Ratio, Span};
use serde::Deserialize;

use super::{GroundSite, least, seconds};
use crate::pages::{AirSettings, GroundSettings};

/// Limits of the air gateway. If absent, pages cross the link object by object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirSplitHttp {
    /// Share of a page's bytes that may be pushed without being used.
    pub waste: Ratio,
    /// Maximum number of bytes pushed for one page.
    pub largest_page: ByteSize,
    /// Memory for pushed objects of all passengers. Once it is full, pages arrive without pushed
    /// objects.
    pub memory: ByteSize,
    /// Time for which a page's objects are kept for its passenger after all have arrived.
    pub keep: Span,
    /// Time for which a GET waits for a promised object before it crosses the link itself.
    pub patience: Span,
}

/// Limits of the ground gateway. If absent, it declines requests for pages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundSplitHttp {
    /// Concurrent pages of all aircraft; each takes at most 3 MiB while its link is slow.
    pub pages: NonZeroUsize,
    /// Concurrent pages of one aircraft.
    pub per_aircraft: NonZeroUsize,
    /// Maximum duration of a page's stream.
    #[serde(deserialize_with = "least::moment")]
    pub longest: Span,
    /// Maximum number of objects of one page, at most 512.
    pub objects: NonZeroUsize,
    /// Maximum size of all objects of one page.
    pub largest_page: ByteSize,
    /// Maximum size of one object.
    pub largest_object: ByteSize,
    /// Maximum nesting depth of style sheets.
    pub depth: NonZeroU8,
    /// Time after a page's request during which fetches may begin.
    pub time: Span,
    /// Parallel fetches from one origin.
    pub per_origin: NonZeroUsize,
    /// Parallel fetches for one page.
    pub concurrency: NonZeroUsize,
    /// Names whose pages and objects may be fetched; if empty, all.
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
            concurrency: number(limits.concurrency),
            allow: NameList::default(),
            deny: NameList::default(),
        }
    }
}

impl AirSplitHttp {
    /// Settings of the air gateway, with the `idle` timeout of a flow.
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
    /// Settings of the ground gateway. `sites` are served over TLS by the aircraft; `idle` is the
    /// timeout of a flow.
    pub fn settings(&self, sites: &[GroundSite], idle: Duration) -> GroundSettings {
        let limits = Limits {
            objects: self.objects.get(),
            bytes: self.largest_page.bytes(),
            object_bytes: self.largest_object.bytes(),
            depth: self.depth.get(),
            time: self.time.into(),
            per_origin: self.per_origin.get(),
            concurrency: self.concurrency.get(),
        };
        let (allow, deny) = (self.allow.clone(), self.deny.clone());
        let names = sites.iter().map(|site| site.upstream().name.as_str().to_owned());
        // The sites' names are valid, and there are fewer than a list may have.
        let rules = Rules { allow, deny, secure: NameList::new(names).unwrap_or_default() };
        let (pages, per_aircraft) = (self.pages.get(), self.per_aircraft.get());
        GroundSettings { limits, rules, pages, per_aircraft, longest: self.longest.into(), idle }
    }
}

pub(super) fn names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NameList, D::Error> {
    NameList::new(Vec::<String>::deserialize(from)?).map_err(serde::de::Error::custom)
}
