//! Compares QUIC over `mss` with its datagrams delivered in arrival order and in sending order, for
//! a page of 25 objects and for a download. Takes the number of runs of each case.

use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Sample;
use bentpipe_lab::sim::quic::{Visit, visit};
use bentpipe_units::Ratio;

/// Name, size of the document in bytes, number of objects after it, size of each in bytes.
const WORKLOADS: [(&str, u64, u16, u64); 2] =
    [("page", 30_000, 25, 18_500), ("download", 1_000, 1, 8_000_000)];
/// Fraction lost, and mean burst length.
const LOSSES: [(f64, f64); 4] = [(0.0, 1.0), (0.01, 1.0), (0.06, 1.0), (0.06, 4.0)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = std::env::args().nth(1).map_or(Ok(5), |runs| runs.parse())?;
    for (name, document_bytes, objects, object_bytes) in WORKLOADS {
        for (loss, burst) in LOSSES {
            for in_order in [false, true] {
                let mut took = Vec::new();
                for seed in 0..runs {
                    let profile = Profile::named("mss")?
                        .with_loss(Ratio::new(loss).ok_or("no share")?, burst)?;
                    let it =
                        Visit { profile, in_order, document_bytes, objects, object_bytes, seed };
                    let (Sample::Finished(seconds) | Sample::Cut(seconds)) = visit(&it)?;
                    took.push(seconds);
                }
                took.sort_by(f64::total_cmp);
                let how = if in_order { "in order" } else { "as it comes" };
                let (least, most) = (took.first(), took.last());
                let median = took.get(took.len() / 2);
                println!(
                    "{name:<8} {:>3.0} % lost, bursts of {burst}, {how:<11}: median {:.1} s, {:.1} to {:.1} s",
                    100.0 * loss,
                    median.unwrap_or(&f64::NAN),
                    least.unwrap_or(&f64::NAN),
                    most.unwrap_or(&f64::NAN),
                );
            }
        }
    }
    Ok(())
}
