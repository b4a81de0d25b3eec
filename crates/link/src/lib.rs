//! The Bentpipe radio transport: encrypted, paced at a lease, reliable by symbol, delivered by flow.

mod claim;
mod code;
mod congestion;
mod crypto;
mod curve;
mod endpoint;
mod flow;
pub mod io;
mod key;
mod lane;
mod lease;
mod memory;
mod pacer;
mod redundancy;
mod rtt;
pub mod secure;
mod session;
mod settings;
mod status;
mod target;
#[cfg(test)]
mod vectors;
mod wire;

pub use bentpipe_schedule::{
    Activity, Class, ClassActivity, ClassCounters, ClassSettings, Dscp, Limits, Most, PerClass,
    SeatActivity, Waits,
};
pub use claim::Claim;
pub use code::ResetCode;
pub use endpoint::{
    AirConfig, AirCore, Aircraft, Core, Filter, Flows, HubConfig, HubCore, SessionId,
};
pub use flow::{FlowEvent, FlowTraffic, Read, Receive, SendError, Traffic, Write};
pub use key::{KEY_BYTES, KeyError, PublicKey, SecretKey};
pub use lease::{BeamError, IDLE_GRANT, Lease, LeaseMode, MODEM_LEASE, ModemRate, Share, Source};
pub use memory::{REMEMBERED_LIFETIME, Remembered};
pub use session::{OpenError, Session};
pub use settings::{
    Control, Lifetimes, MIN_MTU_BYTES, MIN_RATE, MIN_RESERVE_BYTES, MIN_SESSION_LIFETIME, Settings,
    SettingsError,
};
pub use status::Counters;
pub use target::{Host, MAX_NAME_BYTES, Service, Target, TargetError};
pub use wire::frame::OpenDatagrams;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use wire::fuzz::fuzz;
