//! Links as written in a file, before their values are checked against each other.

use bentpipe_units::{BitRate, Ratio, Span};

use crate::aqm::AqmSpec;
use crate::bucket::{PolicerSpec, RawShaper};
use crate::demand::DemandSpec;
use crate::jitter::JitterSpec;
use crate::loss::RawLoss;
use crate::outage::OutageSpec;
use crate::queue::Queue;
use crate::reordering::ReorderingSpec;
use crate::scalar::{ScalarOr, SeriesTable};
use crate::series::Series;

/// Both directions of a link as written; [`RawLink::check`] converts it to a [`crate::LinkSpec`].
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawLink {
    #[serde(default)]
    pub(crate) forward: RawDirection,
    #[serde(default, rename = "return")]
    pub(crate) return_: RawDirection,
}

/// Direction as written; [`RawDirection::check`] converts it to a [`crate::DirectionSpec`].
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RawDirection {
    pub(crate) rate: Option<ScalarOr<BitRate, RateTable>>,
    pub(crate) delay: Option<ScalarOr<Span, SeriesTable<Span>>>,
    pub(crate) jitter: Option<JitterSpec>,
    pub(crate) order: Order,
    pub(crate) reordering: Option<ReorderingSpec>,
    pub(crate) policer: Option<PolicerSpec>,
    pub(crate) shaper: Option<RawShaper>,
    pub(crate) queue: Option<Queue>,
    pub(crate) aqm: Option<AqmSpec>,
    pub(crate) ecn_threshold: Option<Queue>,
    pub(crate) loss: Option<RawLoss>,
    pub(crate) ber: Option<ScalarOr<Ratio, SeriesTable<Ratio>>>,
    /// Bytes, IP header included.
    pub(crate) mtu: Option<u32>,
    pub(crate) outages: Option<OutageSpec>,
    pub(crate) demand: Option<DemandSpec>,
}

/// Ordering of packets with different delays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    #[default]
    Kept,
    Free,
}

/// Table forms of a rate.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RateTable {
    Series(Series<BitRate>),
    /// File name of the trace.
    Mahimahi(String),
}
