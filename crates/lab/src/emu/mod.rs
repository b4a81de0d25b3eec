//! The emulator: the link model between real kernels.
//!
//! Every host is a network namespace with its own kernel network stack. Nothing outside this
//! process is touched: namespaces are held by descriptors alone, so all of it is gone when the
//! process is, however it ends. [`enter`] comes first in `main`.

mod error;
mod host;
pub mod net;
pub mod tun;
mod user;

pub use error::EmuError;
pub use host::Host;
pub use user::enter;
