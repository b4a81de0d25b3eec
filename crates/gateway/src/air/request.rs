//! Flows for HTTP that this gateway speaks with origins itself.

use std::sync::Arc;

use bentpipe_link::ResetCode;
use tokio::time::Instant;

use super::first::{Ending, FirstWrite};
use super::intake::Intake;
use super::pages;
use crate::far::{Open, Reach};
use crate::single::{AskedPacked, Packed, opening};
use crate::usage::Meter;

/// A flow to an origin, of which heads are packed or not.
pub type RequestFlow = Packed<FirstWrite>;

impl Intake {
    /// Whether heads may cross packed now, of requests that may be sent again, if need be, or may not.
    pub fn packs_heads(&self, may_repeat: bool) -> Option<AskedPacked> {
        let pages = self.pages.as_ref()?;
        pages.single.ask(may_repeat, self.far.session(), Instant::now())
    }

    /// A flow that asks for `open` with what is written first, where it is `asked` by the ground's half of Split
    /// HTTP. Says also whether it is so.
    pub fn request_flow(
        self: &Arc<Self>,
        mut open: Open,
        meter: Option<Meter>,
        asked: Option<AskedPacked>,
    ) -> (RequestFlow, Ending, Option<AskedPacked>) {
        // What cannot be written fails as ever.
        let packed = asked.and_then(|asked| Some((asked, opening(&open.target).ok()?)));
        if packed.is_some() {
            open.target = pages::service();
        }
        let (flow, ending) = FirstWrite::new(self.clone(), open, meter);
        match packed {
            Some((asked, opening)) => {
                (Packed::new(flow, opening, self.counters.clone()), ending, Some(asked))
            }
            None => (Packed::plain(flow), ending, None),
        }
    }

    /// The ground has answered a packed request.
    pub fn packed_answered(&self, asked: AskedPacked) {
        if let Some(pages) = &self.pages {
            pages.single.answered(asked);
        }
    }

    /// Whether a packed request that ended like that should be asked again plainly, if it may be: the ground may
    /// not know such, or the transport does not tell why, as it would of a plain one.
    pub fn should_ask_plainly(&self, asked: AskedPacked, ending: &Ending) -> bool {
        let (Some(ended), Some(pages)) = (ending.get(), &self.pages) else { return false };
        let is_vague = ended.code == ResetCode::Aborted && !self.far.tells_why();
        let is_heard = ended.reach == Reach::Up && !ended.is_answered;
        is_heard && (is_vague || pages.single.is_refusal(asked, ended.code))
    }

    /// What failed packed has been answered plainly.
    pub fn answered_plainly(&self, asked: AskedPacked) {
        if let Some(pages) = &self.pages {
            pages.single.answered_plainly(asked, self.far.session(), Instant::now());
        }
    }
}
