//! `[split-http]` of both files: delivery of whole pages in one round trip.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use bentpipe_prefetch::plan::{Limits, NameList, Rules};
use bentpipe_units::{ByteSize, Ratio, Span};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Upstream, least, seconds};
use bentpipe_split_http::{AirSettings, GroundSettings};

/// Limits of the air gateway. If absent, pages cross the link object by object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirSplitHttp {
    /// Share of pages' bytes that may be pushed without being requested.
    pub waste: Ratio,
    /// Limit for the objects pushed with one page.
    pub largest_page: ByteSize,
    /// Memory for pushed objects, over all passengers; pages beyond it bring no objects.
    pub memory: ByteSize,
    /// Lifetime of a page's objects after all have arrived.
    pub keep: Span,
    /// Waiting time of a request for a promised object on a silent stream, before it crosses the
    /// link.
    pub patience: Span,
}

/// Limits of the ground gateway. If absent, it declines requests for pages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundSplitHttp {
    /// Pages at once, over all aircraft, and as many downloads; each takes at most 3 MiB while its
    /// link is slow. Other pages cross unchanged.
    pub pages: NonZeroUsize,
    /// The same for one aircraft.
    pub per_aircraft: NonZeroUsize,
    /// Time for a page with all its objects. The rest then breaks off, except downloads.
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
    /// No fetch begins later than this after the request for the page.
    pub time: Span,
    /// Fetches at once from one origin.
    pub per_origin: NonZeroUsize,
    /// Fetches at once for one page.
    pub concurrency: NonZeroUsize,
    /// Fetches go only to these names and all names below them. None: to all.
    #[serde(deserialize_with = "names")]
    #[schemars(with = "Vec<String>", title = "names")]
    pub allow: NameList,
    /// Fetches never go to these names and all names below them, whatever is allowed.
    #[serde(deserialize_with = "names")]
    #[schemars(with = "Vec<String>", title = "names")]
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
    pub fn settings(&self, sites: &[Upstream], idle: Duration) -> GroundSettings {
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
        let names = sites.iter().map(|site| site.name.as_str().to_owned());
        // The sites' names are valid, and there are fewer than a list may have.
        let rules = Rules { allow, deny, secure: NameList::new(names).unwrap_or_default() };
        let (pages, per_aircraft) = (self.pages.get(), self.per_aircraft.get());
        GroundSettings { limits, rules, pages, per_aircraft, longest: self.longest.into(), idle }
    }
}

pub(super) fn names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NameList, D::Error> {
    NameList::new(Vec::<String>::deserialize(from)?).map_err(serde::de::Error::custom)
}
