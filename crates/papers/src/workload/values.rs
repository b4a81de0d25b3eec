//! Values of a run that failed.

use bentpipe_results::Row;

use crate::job::Job;

/// Metrics that remain valid if the run failed.
const COUNTED: [&str; 4] = ["ceiling", "connections", "connections-dropped", "resets"];

/// Marks the values of a run as those of a failed run.
pub fn failed(mut values: Vec<Row>) -> Vec<Row> {
    values.retain(|value| value.metric != "failed");
    for value in values.iter_mut().filter(|value| !COUNTED.contains(&value.metric.as_str())) {
        value.finished = false;
    }
    values.push(Row::of("failed", 1.0, true));
    values
}

/// Values of a run that failed before it gave any.
pub fn nothing(job: &Job<'_>) -> Vec<Row> {
    const TIMES: [&str; 6] =
        ["plt", "lcp", "repeat-plt", "repeat-lcp", "response-time", "call-delay"];
    const SHARES: [&str; 5] = ["goodput", "utilization", "epb", "epb-received", "epb-fair"];
    let deadline = job.planned.deadline.as_secs_f64();
    let times = TIMES.map(|metric| Row::of(metric, deadline, false));
    let shares = SHARES.map(|metric| Row::of(metric, 0.0, false));
    let asked = |value: &Row| job.grid.metrics.contains(&value.metric);
    let worst = ["below-window", "call-loss"].map(|metric| Row::of(metric, 1.0, false));
    failed(times.into_iter().chain(shares).chain(worst).filter(asked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_failed_has_no_time_that_ended_whatever_it_made_of_it() {
        let values = failed(vec![
            Row::of("plt", 3.0, true),
            Row::of("connections", 6.0, true),
            Row::of("failed", 0.0, true),
        ]);
        let expected = [
            Row::of("plt", 3.0, false),
            Row::of("connections", 6.0, true),
            Row::of("failed", 1.0, true),
        ];
        assert_eq!(values, expected);
    }
}
