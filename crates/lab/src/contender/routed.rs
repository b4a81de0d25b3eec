//! The kernel's TCP from end to end, routed across the link: nothing is set up but its ends.

use super::{Contender, ContenderError, Running, Spread, Stage};
use crate::workload::origin::Congestion;

/// Such a contender.
#[derive(Debug)]
pub struct Routed {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) ends: Congestion,
    pub(super) receive_window: Option<u32>,
}

impl Contender for Routed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn ends(&self) -> Congestion {
        self.ends
    }

    fn receive_window(&self) -> Option<u32> {
        self.receive_window
    }

    fn carries_udp(&self) -> bool {
        true
    }

    fn starts_cold(&self) -> bool {
        false
    }

    fn spread(&self) -> Spread {
        self.ends.into()
    }

    fn start(&self, _: &Stage<'_>) -> Result<Box<dyn Running>, ContenderError> {
        Ok(Box::new(Nothing))
    }
}

/// Running contender without any process.
struct Nothing;

impl Running for Nothing {}
