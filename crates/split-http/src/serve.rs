//! Split HTTP in the ground gateway: fetches a page, finds the objects it refers to, fetches them,
//! and sends everything.

use std::io;
use std::time::Duration;

use bentpipe_prefetch::scan::Urgency;
use bentpipe_prefetch::wire::{End, Frame, PAGE, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::fetch::Origins;
use super::ground::GroundPages;
use super::inbox::Inbox;
use super::out::Out;
use super::session::Session;
use crate::flows::Activity;
use bentpipe_relay::layer::Layered;

/// Time within which the air gateway must send its request, which normally travels with the opening
/// of the stream.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a page's last bytes may wait for the link, after all others were sent.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

impl GroundPages {
    /// Serves one page's stream of `aircraft` to its end. Returns an error if the air gateway
    /// closes the stream.
    pub async fn serve<S>(&self, origins: &dyn Origins, aircraft: &str, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut ups = Inbox::default();
        let request = timeout(REQUEST_PATIENCE, ups.request(&mut from)).await??;
        if !self.settings.rules.serve(&request.page) {
            return timeout(REQUEST_PATIENCE, refuse(&mut to, Refusal::Name)).await?;
        }
        let Some(place) = self.slots.take(&aircraft.into(), &self.counters.refusals) else {
            return timeout(REQUEST_PATIENCE, refuse(&mut to, Refusal::Busy)).await?;
        };
        self.counters.pages.add(1);
        let over = place.over();
        let mut to = Layered::new(to, Activity(place.activity()));
        let mut session = Session::new(self, origins, *request, place)?;
        let serving = async {
            session.run(&mut from, &mut to, &mut ups).await?;
            let patience = if session.is_download() { self.settings.idle } else { LAST_PATIENCE };
            timeout(patience, session.out.finish(&mut to)).await?
        };
        over.run_until_cancelled(serving).await.unwrap_or(Err(io::ErrorKind::QuotaExceeded.into()))
    }
}

/// Refuses the page. The air gateway then fetches it directly, and pauses its requests according to
/// the reason.
async fn refuse(to: &mut (impl AsyncWrite + Unpin), why: Refusal) -> io::Result<()> {
    let mut out = Out::new().map_err(io::Error::other)?;
    out.frame(Urgency::PAGE, PAGE, Frame::End(PAGE, End::Refused(why)));
    while !out.is_empty() {
        out.write(to).await?;
    }
    out.finish(to).await
}
