//! A return link granted on request: MF-TDMA with demand assignment, as on VSAT networks.
//!
//! Time is cut into frames and each frame into equal slots. A few slots of every frame are the
//! terminal's without asking. For what those cannot be relied on to carry, the terminal asks for
//! slots when a packet arrives, and they begin with the first frame after the request delay: the
//! trip to the network control centre and back, and its thinking. Granted slots cannot be kept:
//! one that comes when there is nothing to send has passed.

use std::time::Duration;

use bentpipe_units::{BitRate, Span};

use crate::error::SpecError;

/// Frames are 26.5 ms in DVB-RCS and 45 ms in IPoS; shorter than this they are not frames.
const SHORTEST_FRAME: Duration = Duration::from_millis(1);
/// The most slots in a frame.
const MOST_SLOTS: u32 = 4096;
/// The least a slot may carry, so that a packet of 1500 bytes fills at most 188 of them, one step
/// of work each.
const SMALLEST_SLOT_BYTES: u64 = 8;
/// The longest wait for a grant: six round trips to a geostationary satellite are 3 s.
const LONGEST_REQUEST: Duration = Duration::from_secs(60);

/// Grant rule of a direction's slots. The rate is that of a frame with all slots granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "WrittenDemand")]
pub(crate) struct DemandSpec {
    pub frame: Duration,
    pub slots: u32,
    pub free_slots: u32,
    pub request_delay: Duration,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenDemand {
    frame: Span,
    slots: u32,
    free_slots: u32,
    request_delay: Span,
}

impl TryFrom<WrittenDemand> for DemandSpec {
    type Error = SpecError;

    fn try_from(written: WrittenDemand) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("demand", why));
        if written.frame.duration() < SHORTEST_FRAME {
            let shortest = Span::new(SHORTEST_FRAME);
            return error(format!("has a frame of {}: at least {shortest}", written.frame));
        }
        if !(1..=MOST_SLOTS).contains(&written.slots) {
            return error(format!("has {} slots in a frame: 1 to {MOST_SLOTS}", written.slots));
        }
        if written.free_slots > written.slots {
            return error(format!(
                "has {} free slots among {}: at most all of them",
                written.free_slots, written.slots
            ));
        }
        if written.request_delay.duration() > LONGEST_REQUEST {
            let longest = Span::new(LONGEST_REQUEST);
            return error(format!("takes {} to grant: at most {longest}", written.request_delay));
        }
        Ok(Self {
            frame: written.frame.duration(),
            slots: written.slots,
            free_slots: written.free_slots,
            request_delay: written.request_delay.duration(),
        })
    }
}

impl DemandSpec {
    /// Checks that slots at `rate` are of a sensible size.
    pub fn check_rate(&self, rate: BitRate) -> Result<(), SpecError> {
        let frame_bytes = rate.bytes_in(self.frame);
        if frame_bytes >= SMALLEST_SLOT_BYTES * u64::from(self.slots) {
            return Ok(());
        }
        let why = format!(
            "has {} slots in the {frame_bytes} bytes of a frame: a slot carries at least \
             {SMALLEST_SLOT_BYTES} bytes, write fewer slots or a longer frame",
            self.slots
        );
        Err(SpecError::new("demand", why))
    }

    /// The longest time from asking to the first granted slot.
    pub fn longest_wait(&self) -> Duration {
        self.request_delay + self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let why = |text: &str| toml::from_str::<DemandSpec>(text).unwrap_err().to_string();
        let rest = "slots = 8\nrequest-delay = '1 s'";
        assert!(why(&format!("frame = '1 us'\nfree-slots = 1\n{rest}")).contains("1 ms"));
        assert!(why(&format!("frame = '45 ms'\nfree-slots = 9\n{rest}")).contains("at most all"));
        assert!(why(&format!("frame = '45 ms'\n{rest}")).contains("free-slots"));
    }
}
