//! Concurrent file downloads over the radio link in virtual time, as in AeroTCP's paper (section
//! VI). Either AeroTCP or Bentpipe's radio transport carries them.

use std::time::Duration;

use bentpipe_link::{Core, Read, Settings};

use super::pair::{FlowKey, Opens, Pair};
use crate::profile::Profile;
use crate::result::Sample;
use crate::system::aerotcp::AeroTcp;
use crate::system::roomy;

/// Maximum time until the session is up and the requests have arrived.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
const CHUNK_BYTES: usize = 16 << 10;

/// Concurrent downloads of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// Number of files.
    pub count: usize,
    /// Bytes in each file.
    pub bytes: usize,
    /// Maximum virtual time of a run, counted from the requests.
    pub limit: Duration,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Downloaded {
    /// Payload bytes that arrived.
    pub bytes: u64,
    /// Time from the first payload byte to the last one, or to the limit.
    pub took: Duration,
    /// Time of each file from its request to its last byte.
    pub files: Vec<Sample>,
    /// Bytes received of each file when the first one was complete, or at the limit.
    pub abreast: Vec<u64>,
    /// IP bytes offered to the link towards the aircraft since the requests.
    pub offered_bytes: u64,
}

/// Downloads files concurrently over the radio link of `profile`: by AeroTCP if `aerotcp` is given,
/// otherwise by the radio transport. Returns `None` if the requests did not arrive.
pub fn download(
    profile: &Profile,
    aerotcp: Option<&AeroTcp>,
    files: &Files,
    seed: u64,
) -> Option<Downloaded> {
    match aerotcp {
        Some(told) => fetch(&mut Pair::aerotcp(profile, &told.settings(), seed), files),
        None => fetch(&mut Pair::between(profile, &Settings::default(), &roomy(), seed), files),
    }
}

/// Downloads concurrently on an existing session.
fn fetch<A: Opens, H: Core>(ends: &mut Pair<A, H>, files: &Files) -> Option<Downloaded> {
    let mut flows = Vec::new();
    while flows.len() < files.count && ends.now() < CONNECT_LIMIT {
        match ends.open(b"GET") {
            Some(flow) => flows.push(flow),
            None => ends.step(),
        }
    }
    let (asked_at, offered) = (ends.now(), ends.counters().0.offered.bytes);
    let (mut served, mut got) = (Vec::new(), vec![0; files.count]);
    let (mut done, mut first_at, mut abreast) = (vec![None; flows.len()], None, None);
    let mut last_at = asked_at;
    let chunk = [0x5a; CHUNK_BYTES];
    let mut buffer = [0; CHUNK_BYTES];
    while done.iter().any(Option::is_none) && ends.now() < asked_at + files.limit {
        ends.step();
        while let Some(flow) = ends.accept() {
            served.push((flow, files.bytes));
        }
        for (flow, left) in &mut served {
            serve(ends, *flow, left, &chunk);
        }
        for (flow, (got, done)) in flows.iter().zip(got.iter_mut().zip(&mut done)) {
            while let Some(Read::Taken(taken)) = ends.fetch(*flow, &mut buffer) {
                first_at.get_or_insert(ends.now());
                last_at = ends.now();
                *got += taken;
            }
            if *got == files.bytes {
                done.get_or_insert((ends.now() - asked_at).as_secs_f64());
            }
        }
        if done.iter().any(Option::is_some) {
            abreast.get_or_insert_with(|| got.clone());
        }
    }
    let cut = (ends.now() - asked_at).as_secs_f64();
    if done.iter().any(Option::is_none) {
        last_at = ends.now();
    }
    let first_at = first_at.filter(|_| served.len() == files.count)?;
    let sample = |file: Option<f64>| file.map_or(Sample::Cut(cut), Sample::Finished);
    let abreast = abreast.unwrap_or_else(|| got.clone());
    Some(Downloaded {
        bytes: got.iter().sum::<usize>() as u64,
        took: last_at - first_at,
        files: done.into_iter().map(sample).collect(),
        abreast: abreast.into_iter().map(|bytes| bytes as u64).collect(),
        offered_bytes: ends.counters().0.offered.bytes - offered,
    })
}

/// Writes as much as the flow accepts, and ends the flow after its last byte.
fn serve<A: Opens, H: Core>(ends: &mut Pair<A, H>, flow: FlowKey, left: &mut usize, chunk: &[u8]) {
    while *left > 0 {
        let taken = ends.serve(flow, &chunk[..chunk.len().min(*left)]);
        *left -= taken;
        if *left == 0 {
            ends.finish(flow);
        }
        if taken == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_units::Ratio;

    fn profile(ber: f64) -> Profile {
        Profile::named("aero").unwrap().with_ber(Ratio::new(ber).unwrap())
    }

    /// Downloads the paper's ten files.
    fn ten(ber: f64) -> Downloaded {
        let files = Files { count: 10, bytes: 1_600_000, limit: Duration::from_secs(640) };
        let declared =
            "aerotcp-connections = 10\naerotcp-peak-rate = \"400 kbit/s\"".parse().unwrap();
        let told = AeroTcp::declared(&declared, &profile(ber)).unwrap();
        download(&profile(ber), Some(&told), &files, 1).unwrap()
    }

    #[test]
    fn aerotcp_fills_a_clean_link_and_falls_where_its_paper_says() {
        let rate_bps = profile(0.0).link.forward.rate().unwrap().bps() as f64;
        let utilization =
            |found: &Downloaded| 8.0 * found.bytes as f64 / found.took.as_secs_f64() / rate_bps;
        let (clean, worst) = (ten(1e-8), ten(1e-5));
        assert_eq!(worst, ten(1e-5), "a run repeats");
        let (clean, worst) = (utilization(&clean), utilization(&worst));
        assert!(clean > 0.9, "{clean:.3}");
        assert!(worst < clean - 0.1, "{worst:.3} at 1e-5, {clean:.3} at 1e-8");
    }

    #[test]
    fn any_files_are_downloaded_and_a_limit_cuts_them_off() {
        let profile = profile(3e-8);
        let files = Files { count: 2, bytes: 1_000_000, limit: Duration::from_secs(60) };
        let whole = download(&profile, None, &files, 1).unwrap();
        assert_eq!((whole.bytes, whole.files.len()), (2_000_000, 2));
        assert!(whole.offered_bytes > whole.bytes && whole.offered_bytes < whole.bytes * 11 / 10);
        let least = whole.abreast.iter().min().unwrap();
        assert!(*least > 900_000, "{:?}", whole.abreast);
        let cut = Files { limit: Duration::from_secs(2), ..files };
        let told = AeroTcp::adaptive(&profile);
        let cut = download(&profile, Some(&told), &cut, 1).unwrap();
        assert!(cut.files.iter().all(|file| matches!(file, Sample::Cut(_))), "{:?}", cut.files);
        assert!(cut.bytes > 0 && cut.took < Duration::from_secs(2));
    }
}
