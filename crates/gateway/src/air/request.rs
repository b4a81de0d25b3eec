//! Flows for HTTP that this gateway speaks with origins itself.

use std::sync::Arc;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::wire::single::End;
use tokio::time::Instant;

use super::first::{Ending, FirstWrite};
use super::intake::Intake;
use super::pages;
use super::passengers::Ticket;
use crate::classify::Name;
use crate::far::{Open, Reach};
use crate::single::{AskedPacked, Packed, opening, opening_of_site};
use crate::usage::Meter;

/// A flow to an origin, of which heads are packed or not.
pub type RequestFlow = Packed<FirstWrite>;

/// One request: packed, where the ground takes that, and plainly where it turns out that it does not.
pub struct Attempt {
    packed: Option<AskedPacked>,
    refused: Option<AskedPacked>,
    may_repeat: bool,
}

impl Attempt {
    /// Attempt of a request that may or may not be repeated: to `site`, to whose origin the ground
    /// makes TLS, or to an origin in clear.
    pub fn new(intake: &Intake, site: Option<&Name>, may_repeat: bool) -> Self {
        let session = intake.far.session();
        let pages = intake.pages.as_ref();
        let packed = pages.and_then(|it| it.single.ask(site, may_repeat, session, Instant::now()));
        Self { packed, refused: None, may_repeat }
    }

    /// Attempt of a request that only the origin may read.
    pub fn plain() -> Self {
        Self { packed: None, refused: None, may_repeat: false }
    }

    /// Packed form for this attempt, if any.
    pub fn packed(&self) -> Option<AskedPacked> {
        self.packed.clone()
    }

    /// Takes note of what came of it, and says whether it is to be sent again: plainly, then.
    pub fn is_again(&mut self, intake: &Intake, ending: &Ending, is_answered: bool) -> bool {
        let Some(pages) = &intake.pages else { return false };
        let (known, now) = (&pages.single, Instant::now());
        let Some(packed) = self.packed.take() else {
            if let Some(refused) = self.refused.take().filter(|_| is_answered) {
                known.answered_plainly(&refused, intake.far.session(), now);
            }
            return false;
        };
        if is_answered {
            known.answered(&packed);
            return false;
        }
        if let Some(told) = packed.told() {
            known.heard(&packed);
            if told == End::NoSite {
                known.no_site(&packed, now);
            }
        }
        let is_again = self.may_repeat && intake.may_be_unknown(&packed, ending);
        self.refused = Some(packed).filter(|_| is_again);
        is_again
    }
}

impl Intake {
    /// A flow that asks for `open` with what is written first, where it is `asked` by the ground's half of Split
    /// HTTP. Says also whether it is so. The flow holds `ticket`, and ends when that has to make room.
    pub fn request_flow(
        self: &Arc<Self>,
        mut open: Open,
        meter: Option<Meter>,
        asked: Option<AskedPacked>,
        ticket: Option<Ticket>,
    ) -> (RequestFlow, Ending, Option<AskedPacked>) {
        // What cannot be written fails as ever.
        let packed = asked.and_then(|asked| {
            let opening = match asked.site() {
                Some(site) => opening_of_site(&site.name),
                None => opening(&open.target).ok()?,
            };
            Some((asked, opening))
        });
        if packed.is_some() {
            open.target = pages::service();
        }
        let (flow, ending) = FirstWrite::new(self.clone(), open, meter);
        let flow = flow.with_ticket(ticket);
        let counters = self.counters.clone();
        match packed {
            Some((asked, opening)) => {
                let flow = match asked.site() {
                    Some(site) => Packed::to_site(flow, opening, counters, site.told.clone()),
                    None => Packed::new(flow, opening, counters),
                };
                (flow, ending, Some(asked))
            }
            None => (Packed::plain(flow), ending, None),
        }
    }

    /// Returns `true` if a packed request that ended like that should be repeated plainly, if it
    /// may be. The ground may not know the packed form, or the transport does not tell the reason,
    /// as it would for a plain one.
    fn may_be_unknown(&self, asked: &AskedPacked, ending: &Ending) -> bool {
        if let Some(told) = asked.told() {
            return told == End::NoSite;
        }
        let (Some(ended), Some(pages)) = (ending.get(), &self.pages) else { return false };
        let is_vague = ended.code == ResetCode::Aborted && !self.far.tells_why();
        let is_heard = ended.reach == Reach::Up && !ended.is_answered;
        is_heard && (is_vague || pages.single.is_refusal(asked, ended.code))
    }
}
