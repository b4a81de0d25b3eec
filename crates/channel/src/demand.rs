//! Return link with slots on request: MF-TDMA with demand assignment, as in VSAT networks.
//!
//! Time is divided into frames, and each frame into equal slots. A few slots of every frame belong
//! to the terminal without a request. For what these may not carry, the terminal requests slots
//! when a packet arrives. The granted slots begin with the first frame after the request delay: the
//! round trip to the network control centre and its processing time. Granted slots cannot be saved.
//! A slot that passes while nothing is waiting is lost.

use std::time::Duration;

use bentpipe_units::{BitRate, Span};

use crate::error::SpecError;

/// Minimum frame length. Frames are 26.5 ms in DVB-RCS and 45 ms in IPoS.
const MIN_FRAME: Duration = Duration::from_millis(1);
/// Maximum number of slots in a frame.
const MAX_SLOTS: u32 = 4096;
/// Minimum capacity of a slot. A packet of 1500 bytes then fills at most 188 slots, one step of
/// work each.
const MIN_SLOT_BYTES: u64 = 8;
/// Maximum request delay. Six round trips to a geostationary satellite take 3 s.
const MAX_REQUEST_DELAY: Duration = Duration::from_secs(60);

/// Slot assignment of a direction. The rate is that of a frame with all slots granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "RawDemand")]
pub(crate) struct DemandSpec {
    pub frame: Duration,
    pub slots: u32,
    pub free_slots: u32,
    pub request_delay: Duration,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawDemand {
    frame: Span,
    slots: u32,
    free_slots: u32,
    request_delay: Span,
}

impl TryFrom<RawDemand> for DemandSpec {
    type Error = SpecError;

    fn try_from(raw: RawDemand) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("demand", why));
        if raw.frame.duration() < MIN_FRAME {
            let shortest = Span::new(MIN_FRAME);
            return error(format!("has a frame of {}: at least {shortest}", raw.frame));
        }
        if !(1..=MAX_SLOTS).contains(&raw.slots) {
            return error(format!("has {} slots in a frame: 1 to {MAX_SLOTS}", raw.slots));
        }
        if raw.free_slots > raw.slots {
            return error(format!(
                "has {} free slots among {}: at most all of them",
                raw.free_slots, raw.slots
            ));
        }
        if raw.request_delay.duration() > MAX_REQUEST_DELAY {
            let longest = Span::new(MAX_REQUEST_DELAY);
            return error(format!("takes {} to grant: at most {longest}", raw.request_delay));
        }
        Ok(Self {
            frame: raw.frame.duration(),
            slots: raw.slots,
            free_slots: raw.free_slots,
            request_delay: raw.request_delay.duration(),
        })
    }
}

impl DemandSpec {
    /// Checks that a slot at `rate` has at least the minimum capacity.
    pub fn check_rate(&self, rate: BitRate) -> Result<(), SpecError> {
        let frame_bytes = rate.bytes_in(self.frame);
        if frame_bytes >= MIN_SLOT_BYTES * u64::from(self.slots) {
            return Ok(());
        }
        let why = format!(
            "has {} slots in the {frame_bytes} bytes of a frame: a slot carries at least \
             {MIN_SLOT_BYTES} bytes, write fewer slots or a longer frame",
            self.slots
        );
        Err(SpecError::new("demand", why))
    }

    /// Longest time from a request to the first granted slot.
    pub fn max_wait(&self) -> Duration {
        self.request_delay + self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_demand_is_refused() {
        let why = |text: &str| toml::from_str::<DemandSpec>(text).unwrap_err().to_string();
        let rest = "slots = 8\nrequest-delay = '1 s'";
        assert!(why(&format!("frame = '1 us'\nfree-slots = 1\n{rest}")).contains("1 ms"));
        assert!(why(&format!("frame = '45 ms'\nfree-slots = 9\n{rest}")).contains("at most all"));
        assert!(why(&format!("frame = '45 ms'\n{rest}")).contains("free-slots"));
    }
}
