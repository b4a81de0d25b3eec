//! Changes, restarts and deaths of hubs and egresses under flows in both directions.
//!
//! | module | contents |
//! |---|---|
//! | [`bounds`], `failures` | bounds, and failed flows in a report |
//! | [`scenes`] | the scenes, and their figures |
//! | [`script`] | what happens in a scene, for either engine |
//! | [`traffic`] | the flows, and their course |
//! | [`files`] | configuration files of the gateways |
//! | [`sim`], [`world`] | scripts and gateways in virtual time |
//! | [`emu`], `gateways` | scripts with real gateways, which are killed and restarted |
//! | `tickets` | attacks with tickets |

pub mod bounds;
pub mod emu;
mod failures;
pub mod files;
mod gateways;
pub mod scenes;
pub mod script;
pub mod sim;
mod tickets;
pub mod traffic;
pub mod world;
