//! Passenger numbers. The air gateway assigns them, and the ground gateway limits flows by them.
//!
//! | number | flows |
//! |---|---|
//! | [`EVERYONE_ELSE`] | sources without a known device, and passengers beyond [`MAX_PASSENGERS`] |
//! | 1 to [`MAX_PASSENGERS`] | one passenger each |
//! | [`GATEWAY`] | the air gateway's own |

/// Maximum number of passengers tracked: ten times a wide-body's cabin, in about 400 KiB.
pub const MAX_PASSENGERS: u32 = 4096;

/// Number shared by sources without a known device, and by passengers beyond [`MAX_PASSENGERS`].
/// The sources may be invented. A standard client, which has no passengers, has this number too.
pub const EVERYONE_ELSE: u32 = 0;

/// Number of the air gateway's own flows: DNS, and the preload. It is not a passenger's, so that no
/// passenger shares its turns.
pub const GATEWAY: u32 = MAX_PASSENGERS + 1;
