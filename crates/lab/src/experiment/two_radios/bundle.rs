//! Bundles of links, and the physical limit of a transfer over one.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec, SpecError};
use bentpipe_units::{BitRate, Ratio};

use super::flight;
use crate::experiment::pages::Page;
use crate::profile::Profile;

/// Delay of a queue that others fill on a path.
const BLOAT: Duration = Duration::from_secs(2);
/// Rate of a slow path.
const SLOW: BitRate = BitRate::from_bps(9_600);

/// A third radio, like one of satellites in a low orbit: every 15 s it is dark for 100 ms. Its rate
/// back is ours.
const LEO: &str = r#"
[forward]
rate = "20 Mbit/s"
delay = "37 ms"
loss = "1 %"
queue = "1 BDP"
outages = { packets = "lost", scheduled = [["7 s", "100 ms"]], repeat = "15 s" }

[return]
rate = "2 Mbit/s"
delay = "37 ms"
loss = "1 %"
queue = "1 BDP"
outages = { packets = "lost", scheduled = [["7 s", "100 ms"]], repeat = "15 s" }
"#;

/// Rate and losses of da2gc over cells of 400 s: each edge is dark for 2 s, and then the round trip is
/// 100 ms longer or shorter.
const CELLS: &str = r#"
[forward]
rate = "468 kbit/s"
delay = { series = { steps = [["0 s", "131 ms"], ["102 s", "181 ms"], ["502 s", "131 ms"]], repeat = "800 s" } }
loss = "3.3 %"
queue = "1 BDP"
outages = { packets = "lost", scheduled = [["100 s", "2 s"]], repeat = "400 s" }

[return]
rate = "468 kbit/s"
delay = { series = { steps = [["0 s", "131 ms"], ["102 s", "181 ms"], ["502 s", "131 ms"]], repeat = "800 s" } }
loss = "3.3 %"
queue = "1 BDP"
outages = { packets = "lost", scheduled = [["100 s", "2 s"]], repeat = "400 s" }
"#;

/// Times at which the first two edges begin.
pub const EDGES: [Duration; 2] = [Duration::from_secs(100), Duration::from_secs(500)];

/// Way in which a path is of no use beside a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It loses 40 % in each direction.
    Loss,
    /// Others fill a queue of 2 s towards the aircraft.
    Bloat,
    /// It carries 9.6 kbit/s in each direction.
    Slow,
}

impl Fault {
    /// Every fault, with its name.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Loss, "40 % loss"), (Self::Bloat, "2 s of queue"), (Self::Slow, "9.6 kbit/s")];

    fn on(self, mut link: Profile) -> Result<Profile, SpecError> {
        let loss = |share: f64| Ratio::new(share).expect("a loss is a ratio");
        let (forward, back) = (loss(link.forward_loss()), loss(link.return_loss()));
        let of = |spec: &DirectionSpec| (spec.rate(), spec.mean_delay());
        let ((rate, delay), (_, delay_back)) = (of(&link.link.forward), of(&link.link.return_));
        match self {
            Self::Loss => return link.with_loss(loss(0.4), 1.0),
            Self::Bloat => link.link.forward = DirectionSpec::fixed(rate, delay + BLOAT, forward),
            Self::Slow => {
                link.link.forward = DirectionSpec::fixed(Some(SLOW), delay, forward);
                link.link.return_ = DirectionSpec::fixed(Some(SLOW), delay_back, back);
            }
        }
        Ok(link)
    }
}

/// Way in which a radio dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Both directions lose everything, and nobody reports it.
    Silent,
    /// The same, and the aircraft's interface loses its carrier.
    Carrier,
    /// Only the direction from the aircraft loses everything.
    Uplink,
}

/// Links of one session, one for each path.
#[derive(Debug, Clone)]
pub struct Bundle(pub Vec<Profile>);

impl Bundle {
    /// Both links of the paper with their own losses, in bursts of `burst` packet times in the mean.
    ///
    /// # Errors
    ///
    /// Returns an error if a link cannot have such losses.
    pub fn of_paper(burst: f64) -> Result<Self, SpecError> {
        let links = ["da2gc", "mss"].map(|name| {
            let link = Profile::named(name).expect("the profile is built in");
            let loss = Ratio::new(link.forward_loss()).expect("a loss is a ratio");
            if burst > 1.0 { link.with_loss(loss, burst) } else { Ok(link) }
        });
        Ok(Self(links.into_iter().collect::<Result<_, _>>()?))
    }

    /// The path at `good`, and then the other one of two with a fault.
    ///
    /// # Errors
    ///
    /// Returns an error if the other one cannot have the fault.
    pub fn beside_useless(&self, good: usize, fault: Fault) -> Result<Self, SpecError> {
        Ok(Self(vec![self.0[good].clone(), fault.on(self.0[1 - good].clone())?]))
    }

    /// The same links, and a third radio with a low orbit's rate and delay.
    pub fn and_leo(&self) -> Self {
        let link: LinkSpec = toml::from_str(LEO).expect("the link is well formed");
        let about = "like a low orbit: 20/2 Mbit/s, 74 ms, 1 %, dark for 100 ms every 15 s".into();
        let leo = Profile { name: "leo".into(), about, link, terrestrial: None };
        Self(self.0.iter().cloned().chain([leo]).collect())
    }

    /// The same links, except that the first one has cells with edges.
    pub fn with_cells(&self) -> Self {
        let link: LinkSpec = toml::from_str(CELLS).expect("the link is well formed");
        let about = "da2gc with cells of 400 s, 2 s dark and 100 ms apart".into();
        let cells = Profile { name: "da2gc-cells".into(), about, link, terrestrial: None };
        Self(std::iter::once(cells).chain(self.0[1..].iter().cloned()).collect())
    }

    /// The same two links in a flight, the second one first: the ground learns the rate of the one whose
    /// rate changes.
    pub fn in_flight(&self) -> Self {
        Self(vec![flight::satellite(&self.0[1]), flight::air_to_ground(&self.0[0])])
    }

    /// The same links in the reverse order.
    pub fn reversed(&self) -> Self {
        Self(self.0.iter().rev().cloned().collect())
    }

    /// Only the path at `index`.
    pub fn only(&self, index: usize) -> Self {
        Self(vec![self.0[index].clone()])
    }

    /// The least time until `bytes` can have arrived after a request, in seconds: the least *t* with
    /// Σ (1 − pᵢ) · rᵢ · (t − d_up − dᵢ) = 8 · bytes over the paths that have begun by then. *d_up*
    /// is the shortest way up.
    pub fn limit_s(&self, bytes: u64) -> f64 {
        self.limit_of_share_s(bytes, 1.0)
    }

    /// Like [`Self::limit_s`], for a passenger who has this share of every path's rate.
    pub fn limit_of_share_s(&self, bytes: u64, share: f64) -> f64 {
        let up = self.0.iter().map(|link| link.link.return_.mean_delay().as_secs_f64());
        let up = up.fold(f64::INFINITY, f64::min);
        let mut paths: Vec<(f64, f64)> = self
            .0
            .iter()
            .map(|link| (up + link.link.forward.mean_delay().as_secs_f64(), capacity_bps(link)))
            .collect();
        paths.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut bits, mut bps, mut at) = (8.0 * bytes as f64 / share, 0.0, 0.0);
        for (begins, rate) in paths {
            let carried = bps * (begins - at);
            if bps > 0.0 && carried >= bits {
                break;
            }
            (bits, bps, at) = (bits - carried, bps + rate, begins);
        }
        at + bits / bps
    }

    /// Least time until a page can have arrived: the limit of its bytes, and the shortest round trip for
    /// its document.
    pub fn limit_of_page_s(&self, page: Page) -> f64 {
        let rtts = self.0.iter().map(|link| link.rtt().as_secs_f64());
        self.limit_s(page.bytes()) + rtts.fold(f64::INFINITY, f64::min)
    }

    /// Sum of the paths' rates less their losses, in bit/s.
    pub fn capacity_bps(&self) -> f64 {
        self.0.iter().map(capacity_bps).sum()
    }
}

fn capacity_bps(link: &Profile) -> f64 {
    let rate = link.link.forward.rate().expect("the link has a rate");
    (1.0 - link.forward_loss()) * rate.bps() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_two_links_of_the_paper() {
        let bundle = Bundle::of_paper(1.0).expect("they have losses");
        for (bytes, limit) in
            [(10_000, 0.439), (30_000, 0.569), (100_000, 0.820), (1_000_000, 4.050)]
        {
            let found = bundle.limit_s(bytes);
            assert!((found - limit).abs() < 1e-3, "{bytes}: {found} s, not {limit} s");
        }
        let alone = bundle.only(1);
        let limit = alone.0[0].forward_limit(10_000).expect("it has a rate").as_secs_f64();
        assert!((alone.limit_s(10_000) - limit).abs() < 1e-9);
        assert!((bundle.capacity_bps() - 2.229e6).abs() < 1e3);
        let halved = bundle.limit_of_share_s(15_000, 0.5);
        assert!((halved - bundle.limit_s(30_000)).abs() < 1e-9);
        let limit = bundle.and_leo().limit_s(10_000);
        assert!((limit - 0.078).abs() < 1e-3, "{limit} s");
    }
}
