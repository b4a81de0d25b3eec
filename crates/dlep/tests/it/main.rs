//! Router and modem together, in one binary.

mod discovery;
mod hostile;
mod session;
