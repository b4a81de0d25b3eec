//! The Bentpipe radio transport: encrypted, paced at a lease, reliable by symbol, delivered by flow.

mod code;
mod crypto;
mod flow;
mod key;
mod lane;
mod pacer;
mod rtt;
mod settings;
mod target;
mod wire;

pub use bentpipe_schedule::Class;
pub use code::ResetCode;
pub use key::{KEY_BYTES, KeyError, PublicKey, SecretKey};
pub use settings::{MIN_MTU_BYTES, Settings, SettingsError};
pub use target::{Host, MAX_NAME_BYTES, Target, TargetError};
