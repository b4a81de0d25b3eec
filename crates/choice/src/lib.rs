//! Choice of the egress for each destination, by the times of its own dials.
//!
//! A hub near the satellite's ground station has several egresses near the content. The best one for a
//! destination is known only from connections that were made: nothing is probed, and nothing is sent over
//! the radio. NetForecast (section 5) recommends to place proxies by distance, and to choose them during
//! the flight.
//!
//! ```
//! use std::time::Duration;
//! use bentpipe_choice::{Choice, Leg, Query, Site};
//!
//! let ms = Duration::from_millis;
//! let mut choice = Choice::new(2);
//! choice.set_leg(0, Leg { rtt: ms(10), loss: 0.0 });
//! choice.set_leg(1, Leg { rtt: ms(80), loss: 0.0 });
//!
//! let site = Site::of(&"shop.example:443".parse().unwrap()).unwrap();
//! let query = |passenger| Query { who: ([1; 32], passenger), site: &site, now: ms(0), random: 0.5 };
//! assert_eq!(choice.choose(&query(1), |_| true), Some(0), "the nearest, while nothing is known");
//!
//! for _ in 0..3 {
//!     choice.dialled(0, (&site, 443), Some(ms(120)), ms(0));
//!     choice.dialled(1, (&site, 443), Some(ms(5)), ms(0));
//! }
//! assert_eq!(choice.choose(&query(2), |_| true), Some(1), "85 ms instead of 130");
//! assert_eq!(choice.choose(&query(1), |_| true), Some(0), "a passenger keeps the address at a site");
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`Choice`] | what is known, and the choice |
//! | [`Site`] | destinations that share their times |
//! | `times` | the last dials |
//! | `favourite` | the preferred egress of a site, and when another takes its place |
//! | [`TransitWatch`] | detours of the path to an egress |
//! | `owned` | bounded tables |

#![forbid(unsafe_code)]

mod choice;
mod favourite;
mod owned;
mod site;
mod times;
mod transit;

pub use choice::{Choice, MAX_PINS, MAX_SITES, PIN_IDLE, Query};
pub use site::{Site, SiteError};
pub use transit::{Transit, TransitWatch};

use std::time::Duration;

/// A passenger: the public key of the aircraft, and a number there.
pub type Passenger = ([u8; 32], u32);

/// Path between the hub and an egress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// Round-trip time.
    pub rtt: Duration,
    /// Lost part of the packets, between 0 and 1.
    pub loss: f64,
}

/// Time of a flow through an egress, and its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Number of the egress.
    pub egress: usize,
    /// Round-trip time to the egress, with the penalty of its loss.
    pub leg: Duration,
    /// Time that the egress needs to connect.
    pub dial: Duration,
    /// Origin of `dial`.
    pub source: Source,
    /// The last dials failed, so the egress is not used for some time.
    pub fails: bool,
}

impl Estimate {
    /// The whole time.
    pub fn total(&self) -> Duration {
        self.leg + self.dial
    }
}

/// Origin of an estimated dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// So many dials to the site, at most eight.
    Dials(usize),
    /// All dials of the egress.
    Mean,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dials(1) => f.write_str("1 dial"),
            Self::Dials(dials) => write!(f, "{dials} dials"),
            Self::Mean => f.write_str("mean of other sites"),
        }
    }
}

#[cfg(test)]
mod tests;
