//! The kernel's TCP from end to end, routed across the link. Only the end hosts are configured.

use super::{Running, Spread, Stage, SystemError, SystemUnderTest};
use crate::emu::Congestion;

/// A system under test of this kind.
#[derive(Debug)]
pub struct Routed {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) ends: Congestion,
    pub(super) receive_window: Option<u32>,
}

impl Routed {
    pub(super) const fn new(name: &'static str, about: &'static str, ends: Congestion) -> Self {
        Self { name, about, ends, receive_window: None }
    }
}

impl SystemUnderTest for Routed {
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

    fn start(&self, _: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        Ok(Box::new(Nothing))
    }
}

/// A running system without processes.
struct Nothing;

impl Running for Nothing {}
