//! Flows for HTTP that this gateway speaks with origins itself.

use std::sync::Arc;

use tokio::time::Instant;

use super::first::{Ending, FirstWrite};
use super::intake::Intake;
use super::pages;
use crate::far::{Open, Reach};
use crate::single::{Packed, opening};
use crate::usage::Meter;

/// A flow to an origin, of which heads are packed or not.
pub type RequestFlow = Packed<FirstWrite>;

impl Intake {
    /// Whether heads may cross packed now, of requests that may be sent again, if need be, or may not.
    pub fn packs_heads(&self, may_repeat: bool) -> bool {
        let pages = self.pages.as_ref();
        pages.is_some_and(|pages| pages.single.may_pack(may_repeat, Instant::now()))
    }

    /// A flow that asks for `open` with what is written first, with `packs` by the ground's half of Split
    /// HTTP. Says also whether it is so.
    pub fn request_flow(
        self: &Arc<Self>,
        mut open: Open,
        meter: Option<Meter>,
        packs: bool,
    ) -> (RequestFlow, Ending, bool) {
        // What cannot be written fails as ever.
        let opening = if packs { opening(&open.target).ok() } else { None };
        if opening.is_some() {
            open.target = pages::service();
        }
        let (flow, ending) = FirstWrite::new(self.clone(), open, meter);
        match opening {
            Some(opening) => (Packed::new(flow, opening, self.counters.clone()), ending, true),
            None => (Packed::plain(flow), ending, false),
        }
    }

    /// The ground has answered a packed request.
    pub fn packed_answered(&self) {
        if let Some(pages) = &self.pages {
            pages.single.answered(Instant::now());
        }
    }

    /// Whether a packed request may have failed because the ground does not know such. Then nothing of it has
    /// reached an origin, if it was that.
    pub fn is_packed_refused(&self, ending: &Ending) -> bool {
        let (Some(ended), Some(pages)) = (ending.get(), &self.pages) else { return false };
        ended.reach == Reach::Up && !ended.is_answered && pages.single.is_refusal(ended.code)
    }

    /// What was refused packed has been answered plainly: it was the ground, then, and not where it led.
    pub fn answered_plainly(&self) {
        if let Some(pages) = &self.pages {
            pages.single.answered_plainly(Instant::now());
        }
    }
}
