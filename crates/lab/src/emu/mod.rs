//! The emulator: the link model between real kernels.
//!
//! Every host is a network namespace with its own kernel network stack. Every emulated link is a
//! pair of TUN devices and a thread. The thread moves a packet between them if and when the model
//! decides so. Nothing outside this process is touched. Only descriptors keep the namespaces alive,
//! so everything disappears with the process, however it ends.
//!
//! Call [`enter`] first in `main`, then [`Testbed::new`], then [`Testbed::measure`]. Do not trust
//! results from a testbed without a measurement.

mod bundle;
mod capture;
mod congestion;
mod device;
mod ecn;
mod error;
mod estimate;
mod handover;
mod host;
mod lateness;
mod manager;
mod measure;
mod net;
mod observation;
mod offload;
mod others;
mod plan;
mod probe;
mod service;
mod share;
mod testbed;
mod tun;
mod tuning;
mod user;
mod wire;

pub use bundle::RADIO_INTERFACES;
pub use capture::{CAPTURE_BYTES, Capture, SNAP_BYTES};
pub use congestion::{Congestion, listen, listen_here, listen_on};
pub use device::{DEVICE_INTERFACE, Device};
pub use error::EmuError;
pub use handover::hand_over;
pub use host::Host;
pub use lateness::{Lateness, TooLate};
pub use manager::Manager;
pub use measure::{
    ATTEMPTS, DELAY_TOLERANCE_S, DirectionMeasured, Figure, LinkMeasured, MeasureError, Measured,
    Quantity, RATE_TOLERANCE, UNLIMITED_FLOOR_BPS,
};
pub use observation::{MAX_PASSAGES, Observation};
pub use others::Others;
pub use plan::{
    AIR, AIR_CABIN, Addresses, CLIENT, DEVICE, GROUND, GROUND_INTERNET, PASSENGERS, SERVER, SITES,
    further_radio, is_site, passenger, site,
};
pub use service::{NotReady, Service, Serving};
pub use share::Share;
pub use testbed::{LinkCounters, Testbed};
pub use tuning::Tuning;
pub use user::enter;
pub use wire::{IN_FLIGHT_BYTES, LATE, STALL, WireCounters, be_punctual, give_way};
