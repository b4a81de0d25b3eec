//! Comparison of the transports over one profile in virtual time: objects one after another, and
//! bulk.

use std::time::Duration;

use ::bytes::Bytes;
use bentpipe_link::Settings;
use bentpipe_masque::Congestion;
use bentpipe_units::BitRate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::play::in_virtual_time;
use super::{OverLink, OverMasque, Stream, Testbed, Transport};
use crate::profile::Profile;

/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;
/// Pause between two objects, so that the end of one does not overlap the next.
const PAUSE: Duration = Duration::from_secs(2);

/// A transport to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemUnderTest {
    /// Bentpipe's own transport, paced at the profile's rate.
    Link,
    /// HTTP/3 CONNECT.
    Masque(Congestion),
}

impl SystemUnderTest {
    /// The combinations in the comparison.
    pub const ALL: [Self; 3] =
        [Self::Link, Self::Masque(Congestion::Cubic), Self::Masque(Congestion::Bbr)];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "bentpipe",
            Self::Masque(Congestion::Cubic) => "bentpipe-masque (cubic)",
            Self::Masque(Congestion::NewReno) => "bentpipe-masque (new reno)",
            Self::Masque(Congestion::Bbr) => "bentpipe-masque (bbr)",
        }
    }

    fn start(
        self,
        testbed: &Testbed,
        profile: &Profile,
        seed: u64,
    ) -> Result<Box<dyn Transport>, String> {
        let rate = profile.link.forward.rate().unwrap_or(BitRate::from_bps(1_000_000_000));
        let settings = Settings { rate, ..Settings::default() };
        Ok(match self {
            Self::Link => Box::new(OverLink::with(testbed, settings, seed)?),
            Self::Masque(congestion) => Box::new(OverMasque::start(testbed, seed, congestion)?),
        })
    }
}

/// Fetches `count` objects of `bytes`, one after another over one session. Returns the time of each
/// from its request to its last byte. An object that is not complete after `patience` counts with
/// that time.
///
/// # Errors
///
/// The network could not be set up, or a flow failed.
pub fn objects(
    system: SystemUnderTest,
    profile: &Profile,
    bytes: usize,
    count: usize,
    patience: Duration,
    seed: u64,
) -> Result<Vec<Duration>, String> {
    in_virtual_time(async {
        let testbed = Testbed::new(&profile.link, seed)?;
        let transport = system.start(&testbed, profile, seed)?;
        let body = vec![0x5a; bytes];
        let mut took = Vec::new();
        for number in 0..count {
            sleep(PAUSE).await;
            let began = Instant::now();
            let fetch = async {
                let (near, far) = open(&*transport, number as u16).await?;
                let ((got, at), ()) = tokio::try_join!(drain(near), serve(far, &body))?;
                if got == bytes { Ok(at) } else { Err(format!("{got} bytes of {bytes} came")) }
            };
            let fetched = timeout_at(began + patience, fetch).await;
            took.push(fetched.map_or(Ok(patience), |done| done.map(|at| at - began))?);
        }
        Ok(took)
    })
}

/// Downloads for `length`. Returns the payload rate from the first byte on, in bit/s.
///
/// # Errors
///
/// The network could not be set up, or the flow failed.
pub fn bulk(
    system: SystemUnderTest,
    profile: &Profile,
    length: Duration,
    seed: u64,
) -> Result<f64, String> {
    in_virtual_time(async {
        let testbed = Testbed::new(&profile.link, seed)?;
        let transport = system.start(&testbed, profile, seed)?;
        let (mut near, far) = open(&*transport, 0).await?;
        let end = Instant::now() + length;
        let reading = async {
            let mut buffer = vec![0; CHUNK_BYTES];
            let (mut bytes, mut first) = (0, None);
            while let Ok(Ok(taken)) = timeout_at(end, near.read(&mut buffer)).await {
                first.get_or_insert(Instant::now());
                bytes += taken;
            }
            8.0 * bytes as f64 / (end - first.unwrap_or(end)).as_secs_f64().max(f64::MIN_POSITIVE)
        };
        let endless = async {
            let (mut far, chunk) = (far, vec![0x5a; CHUNK_BYTES]);
            while far.write_all(&chunk).await.is_ok() {}
            std::future::pending().await
        };
        Ok(tokio::select! {
            biased;
            goodput_bps = reading => goodput_bps,
            never = endless => never,
        })
    })
}

async fn open(
    transport: &dyn Transport,
    number: u16,
) -> Result<(Box<dyn Stream>, Box<dyn Stream>), String> {
    let accept = async { transport.accept().await.ok_or_else(|| "the ground has closed".into()) };
    let opened = transport.open(number, Bytes::from_static(b"GET"));
    let (near, (_, far)) = tokio::try_join!(opened, accept)?;
    Ok((near, far))
}

/// Number of bytes that arrived, and the time of the last one.
async fn drain(mut near: Box<dyn Stream>) -> Result<(usize, Instant), String> {
    let mut got = Vec::new();
    near.read_to_end(&mut got).await.map_err(|error| error.to_string())?;
    let at = Instant::now();
    near.shutdown().await.map_err(|error| error.to_string())?;
    Ok((got.len(), at))
}

async fn serve(mut far: Box<dyn Stream>, body: &[u8]) -> Result<(), String> {
    let mut request = [0; 3];
    far.read_exact(&mut request).await.map_err(|error| error.to_string())?;
    far.write_all(body).await.map_err(|error| error.to_string())?;
    far.shutdown().await.map_err(|error| error.to_string())?;
    // The other direction ends a round trip later.
    far.read_to_end(&mut Vec::new()).await.map_err(|error| error.to_string())?;
    Ok(())
}
