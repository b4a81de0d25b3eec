//! Until all contenders are there.

use bentpipe_lab::emu::World;
use bentpipe_lab::profile::Profile;
use std::net::IpAddr;
use std::path::Path;

pub enum Congestion {
    Reno,
    Cubic,
    Bbr,
}
#[derive(Debug, thiserror::Error)]
#[error("no contender {0}")]
pub struct UnknownContender(String);
#[derive(Debug, thiserror::Error)]
#[error("contender")]
pub struct ContenderError;
#[allow(dead_code)]
pub struct Stage<'a> {
    pub world: &'a World,
    pub profile: &'a Profile,
    pub folder: &'a Path,
    pub program: &'a Path,
    pub hosts: &'a [(String, IpAddr)],
    pub settings: &'a toml::Table,
}
pub trait Running: Send {
    fn check(&mut self) -> Result<(), ContenderError> {
        Ok(())
    }
    fn said(&self) -> String {
        String::new()
    }
    fn resets(&self) -> u64 {
        0
    }
}
pub trait Contender {
    fn name(&self) -> &'static str;
    fn ends(&self) -> Congestion;
    fn receive_window(&self) -> Option<u32>;
    fn start(&self, _: &Stage<'_>) -> Result<Box<dyn Running>, ContenderError> {
        Ok(Box::new(Nothing))
    }
}
struct Nothing;
impl Running for Nothing {}
struct E2e(&'static str);
impl Contender for E2e {
    fn name(&self) -> &'static str {
        self.0
    }
    fn ends(&self) -> Congestion {
        match self.0 {
            "e2e-reno" => Congestion::Reno,
            "e2e-bbr" => Congestion::Bbr,
            _ => Congestion::Cubic,
        }
    }
    fn receive_window(&self) -> Option<u32> {
        (self.0 == "e2e-cubic-64k").then_some(65_536)
    }
}
static E2E: [E2e; 4] = [E2e("e2e-reno"), E2e("e2e-bbr"), E2e("e2e-cubic"), E2e("e2e-cubic-64k")];
pub fn named(name: &str) -> Result<&'static dyn Contender, UnknownContender> {
    let one = E2E.iter().find(|one| one.0 == name);
    one.map(|one| one as &dyn Contender).ok_or_else(|| UnknownContender(name.into()))
}
