//! The ground's half: fetches a page, finds what it will ask for, fetches that, and sends all of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_prefetch::plan::{Limits, Rules};
use bentpipe_prefetch::scan::Urgency;
use bentpipe_prefetch::wire::{End, Frame, PAGE, Refusal, Request, Up, Ups};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf};
use tokio::time::timeout;

use super::fetch::Origins;
use super::out::Out;
use super::places::{Places, Share};
use super::pool::Pool;
use super::session::Session;
use crate::counters::Counters;
use crate::refusals::Limit;

/// Time within which the cabin must name its page: the request travels with the stream's opening.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a page's last bytes may wait for the link, once all others are in flight.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// Settings of the ground's half.
#[derive(Debug, Clone)]
pub struct GroundSettings {
    /// The bounds of each page.
    pub limits: Limits,
    /// Rules for the pages and objects that are fetched.
    pub rules: Rules,
    /// Pages at once, and as many downloads; those beyond it are refused, and the cabin fetches them as ever.
    pub pages: usize,
    /// Those of one aircraft, of either.
    pub per_aircraft: usize,
    /// Maximum duration of a page's stream; unsent bytes are then broken off.
    pub longest: Duration,
    /// Time for which a download tolerates that nothing moves: as long as a flow.
    pub idle: Duration,
}

/// The ground's half of Split HTTP.
pub struct GroundPages {
    pub(super) settings: GroundSettings,
    pub(super) pool: Pool,
    places: Arc<Places<String>>,
    pub(super) counters: Arc<Counters>,
}

impl GroundPages {
    /// A half without any page under way.
    pub fn new(settings: GroundSettings, counters: Arc<Counters>) -> Self {
        let share = Share { all: settings.pages, each: settings.per_aircraft };
        // Downloads may take hours: they have as many places of their own.
        let places = Places::new(share, share);
        Self { settings, pool: Pool::default(), places, counters }
    }

    /// Serves one page's stream of `aircraft`'s to its end. Reading and writing fail as they do when the
    /// cabin has gone; then nothing is left of it.
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
        let aircraft = aircraft.to_owned();
        let Some(place) = self.places.take(&aircraft) else {
            self.counters.refusals.refused(Limit::Pages, || self.places.holding(&aircraft));
            return timeout(REQUEST_PATIENCE, refuse(&mut to, Refusal::Busy)).await?;
        };
        self.counters.pages.add(1);
        let mut session = Session::new(self, origins, *request, place)?;
        session.run(&mut from, &mut to, &mut ups).await?;
        let patience = if session.is_download() { self.settings.idle } else { LAST_PATIENCE };
        timeout(patience, session.out.finish(&mut to)).await?
    }
}

/// Tells the cabin to ask for the page itself, and for others for a while.
async fn refuse(to: &mut (impl AsyncWrite + Unpin), why: Refusal) -> io::Result<()> {
    let mut out = Out::new().map_err(io::Error::other)?;
    out.frame(Urgency::PAGE, PAGE, Frame::End(PAGE, End::Refused(why)));
    while !out.is_empty() {
        out.write(to).await?;
    }
    out.finish(to).await
}

/// Upward messages, as far as they are whole.
#[derive(Default)]
pub struct Inbox {
    ups: Ups,
    pub ready: Vec<Up>,
    pub is_over: bool,
}

impl Inbox {
    async fn request<S: AsyncRead>(&mut self, from: &mut ReadHalf<S>) -> io::Result<Box<Request>> {
        while self.ready.is_empty() {
            if self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read(from).await?;
        }
        match self.ready.remove(0) {
            Up::Request(request) => Ok(request),
            Up::Cancel(_) => Err(io::ErrorKind::InvalidData.into()), // a request comes first
        }
    }

    /// Reads some more. May be dropped half-way without loss.
    pub async fn read<S: AsyncRead>(&mut self, from: &mut ReadHalf<S>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let count = from.read(&mut bytes).await?;
        self.is_over = count == 0;
        self.ups.push(&bytes[..count], &mut self.ready).map_err(io::Error::other)
    }
}
