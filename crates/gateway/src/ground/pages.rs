//! Streams to the ground's half of Split HTTP: pages, and single requests with packed heads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bentpipe_link::{Class, ResetCode};
use bentpipe_prefetch::wire::WireError;
use bentpipe_prefetch::wire::single::End;
use bytes::Bytes;
use tokio::time::timeout;

use super::fleet::Permit;
use super::{Shared, Tcp};
use crate::classify::Name;
use crate::far::{Carried, Claim, FarStream, Incoming};
use crate::origin_tls::Failed;
use crate::replay::Replay;
use crate::single::{Cuts, Opening, Said, Unpacked, end};

/// Time within which the cabin must say what a stream is for: that travels with its opening.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// One page with what it will ask for, or a flow of single requests, where that is done here.
    pub(super) async fn serve_pages(&self, incoming: Incoming, permit: Permit) {
        let Incoming { aircraft, class, passenger, claim, carries, .. } = incoming;
        let from = (aircraft, passenger);
        let (pages, mut stream) = match (&self.pages, carries) {
            (Some(pages), Carried::Stream(stream)) => (pages, stream),
            (_, mut carries) => {
                self.counters.count_reset(ResetCode::Forbidden);
                return carries.reset(ResetCode::Forbidden);
            }
        };
        stream.connected();
        let opening = timeout(PATIENCE, Opening::read(&mut stream)).await;
        match opening.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            // Where it leads it may lead only by all that holds for a flow that was opened to there.
            Ok(Opening::Single(target, packed)) => {
                let flow = Box::new(Unpacked::new(stream, packed));
                self.serve_stream(target, (class, from), claim, flow, permit).await;
            }
            Ok(Opening::Site(name, packed)) => {
                self.serve_site(&name, (class, from), claim, (stream, packed), permit).await;
            }
            Ok(Opening::Page(read)) => {
                let mut stream = Replay::new(stream, read);
                if let Err(error) = pages.serve(self, permit.aircraft(), &mut stream).await {
                    self.broke_off(stream.into_inner(), error);
                }
            }
            Err(error) => self.broke_off(stream, error),
        }
    }

    /// A flow of single requests to a site of ours, over TLS where its origin speaks that.
    async fn serve_site(
        &self,
        name: &Name,
        (class, from): (Class, ([u8; 32], u32)),
        claim: Option<Claim>,
        (stream, packed): (Box<dyn FarStream>, Bytes),
        permit: Permit,
    ) {
        let Some(site) = self.site(name.as_str()) else {
            self.counters.count_reset(ResetCode::Forbidden);
            return told(stream, End::NoSite).await;
        };
        let mut stream = stream;
        let tcp = Tcp::of(self, &from);
        let dialled = self.dial(&site.origin, (class, claim), &tcp, &mut *stream, &permit).await;
        let Some((tcp, class)) = dialled else { return };
        let is_cut = Arc::<AtomicBool>::default();
        let (of, to) = ((class, from.1), &site.origin);
        let said = Said::new(is_cut.clone());
        let tls = match &site.client {
            Some(client) => self.secure(site, client.clone(), tcp).await,
            None => {
                let stream = Box::new(Unpacked::saying(stream, packed, said));
                return self.relay(Cuts::new(tcp, is_cut), to, of, stream, permit).await;
            }
        };
        match tls {
            Ok(tls) => {
                let stream = Box::new(Unpacked::saying(stream, packed, said));
                self.relay(Cuts::new(tls, is_cut), to, of, stream, permit).await;
            }
            Err(Failed::Tls(_)) => {
                self.counters.count_reset(ResetCode::Aborted);
                told(stream, End::Tls).await;
            }
            Err(Failed::Late) => {
                self.counters.count_reset(ResetCode::Timeout);
                stream.reset(ResetCode::Timeout);
            }
        }
    }

    /// Ends a stream. One that asks in an unknown version ends with no code of ours, by which the cabin
    /// knows it; all others do with one.
    fn broke_off(&self, mut stream: Box<dyn FarStream>, error: io::Error) {
        let wire = error.get_ref().and_then(|error| error.downcast_ref::<WireError>());
        if let Some(unknown @ WireError::Version(_)) = wire {
            return self
                .quiet
                .warn("an aircraft asks for a page as this ground does not know it", unknown);
        }
        tracing::debug!(%error, "a page's stream broke off");
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        stream.reset(if is_late { ResetCode::Timeout } else { ResetCode::Internal });
    }
}

/// Ends the stream of a site, by which nothing was said, like that.
async fn told(mut stream: Box<dyn FarStream>, how: End) {
    // Where it cannot be said there is nobody to hear it.
    let _ = timeout(PATIENCE, end(&mut *stream, how)).await;
}
