//! Rates of each direction and their limits.

use std::collections::BTreeMap;

use crate::epb::Epb;
use crate::ndt7::Ndt7;
use crate::rate::{Direction, Limit, RateCheck};

/// Maximum number of findings kept: one each half an hour in both directions for a month.
const MAX_FINDINGS: usize = 3000;

/// Measurements of rates.
#[derive(Debug, Default)]
pub struct Rates {
    /// Findings by direction and kind, the first ones of a store.
    pub found: BTreeMap<(Direction, &'static str), Vec<Limit>>,
    /// Measurements that failed.
    pub failed: u64,
    /// ndt7 tests by direction and server, without their samples.
    pub tests: BTreeMap<(Direction, String), Vec<Ndt7>>,
    /// EPB tests by direction.
    pub epb: BTreeMap<Direction, Vec<Epb>>,
    count: usize,
}

impl Rates {
    pub(super) fn add_test(&mut self, test: &Ndt7) {
        if self.count < MAX_FINDINGS {
            self.count += 1;
            let mut test = test.clone();
            test.samples.drain(..test.samples.len().saturating_sub(1));
            let key = (test.direction, test.server.clone());
            self.tests.entry(key).or_default().push(test);
        }
    }

    pub(super) fn add_epb(&mut self, test: &Epb) {
        if self.count < MAX_FINDINGS {
            self.count += 1;
            self.epb.entry(test.direction).or_default().push(test.clone());
        }
    }

    pub(super) fn add(&mut self, check: &RateCheck) {
        let Some(limit) = check.limit else {
            self.failed += 1;
            return;
        };
        if self.count < MAX_FINDINGS {
            self.count += 1;
            self.found.entry((check.direction, limit.name())).or_default().push(limit);
        }
    }
}
