//! The emulator: the link model between real kernels.
//!
//! Every host is a network namespace with its own kernel network stack; every emulated link is a
//! pair of TUN devices and a thread that moves packets between them when, and only if,
//! the model says so. Nothing outside this process is touched: namespaces are held by descriptors
//! alone, so all of it is gone when the process is, however it ends.
//!
//! [`enter`] comes first in `main`; then [`World::new`]; then [`World::measure`], without which no
//! figure taken in a world should be believed.

mod capture;
mod device;
mod ecn;
mod error;
mod estimate;
mod handover;
mod host;
mod measure;
mod net;
mod offload;
mod others;
mod probe;
mod tun;
mod tuning;
mod user;
mod wire;
mod world;

pub use capture::{CAPTURE_BYTES, Capture, SNAP_BYTES};
pub use device::{DEVICE_INTERFACE, Device};
pub use error::EmuError;
pub use handover::hand_over;
pub use host::Host;
pub use measure::{
    ATTEMPTS, DELAY_TOLERANCE_S, DirectionMeasured, Figure, LinkMeasured, MeasureError, Measured,
    Quantity, RATE_TOLERANCE, UNLIMITED_FLOOR_BPS,
};
pub use others::{Others, Share};
pub use tuning::Tuning;
pub use user::enter;
pub use wire::{IN_FLIGHT_BYTES, LATE, STALL, WireCounters, be_punctual};
pub use world::{
    AIR, AIR_CABIN, Addresses, CLIENT, DEVICE, GROUND, GROUND_INTERNET, LinkCounters, SERVER,
    World, is_site, passenger, site,
};
