//! Times of an egress's dials, for the hubs that choose among egresses.

use bentpipe_flow::{ResetCode, Target};
use bentpipe_transport::FlowStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::wire::Control;

/// Maximum number of reports that wait for a slow hub. Further ones replace the oldest.
const MAX_WAITING: usize = 1024;

/// Reports of dials, to every hub that listens.
pub struct Dials(broadcast::Sender<Control>);

/// A dial that is to be reported.
pub struct Dialling {
    dials: broadcast::Sender<Control>,
    target: Target,
    began: Instant,
}

impl Default for Dials {
    fn default() -> Self {
        Self(broadcast::channel(MAX_WAITING).0)
    }
}

impl Dials {
    /// Begins a dial. `None` if no hub listens.
    pub fn begin(&self, target: Target) -> Option<Dialling> {
        let began = Instant::now();
        (self.0.receiver_count() > 0).then(|| Dialling { dials: self.0.clone(), target, began })
    }

    /// Reports dials on `stream` until it ends.
    pub async fn report(&self, mut stream: Box<dyn FlowStream>) {
        let mut dials = self.0.subscribe();
        stream.connected();
        let mut record = Vec::new();
        loop {
            let mut nothing = [0];
            tokio::select! {
                dialled = dials.recv() => match dialled {
                    Ok(dialled) => dialled.put(&mut record),
                    // The oldest are gone; newer ones say as much.
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                // The hub sends nothing.
                _ = stream.read(&mut nothing) => return,
            }
            if stream.write_all(&record).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            record.clear();
        }
    }
}

impl Dialling {
    /// Reports that the destination has answered.
    pub fn connected(self) {
        // 65,535 means that nothing answered.
        let millis = u16::try_from(self.began.elapsed().as_millis()).unwrap_or(u16::MAX);
        self.report(Some(millis.min(u16::MAX - 1)));
    }

    /// Reports that nothing answered, if that was the reason.
    pub fn failed(self, code: ResetCode) {
        if matches!(code, ResetCode::Timeout | ResetCode::Unreachable) {
            self.report(None);
        }
    }

    fn report(self, millis: Option<u16>) {
        // Fails if no hub listens any more.
        let _ = self.dials.send(Control::Dialled { millis, target: self.target });
    }
}
