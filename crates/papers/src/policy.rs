//! The Rural-PAWS policy between real kernels: testbeds with their own gateways, whose links show
//! what each class sends.

use bentpipe_lab::emu::Testbed;
use bentpipe_lab::experiment::rural_paws;
use bentpipe_lab::system::pair::Rates;
use bentpipe_lab::traffic::emu::EmuTraffic;
use bentpipe_lab::traffic::emu::fault::Fault;

use crate::job::Ran;
use crate::plan::{Plan, TestbedRun};
use crate::sim;
use crate::testbed::{Conditions, Machine, Tell, TestbedError, capture, lateness, sound};
use crate::workload;

/// Performs the runs of `testbed_run`, each in a testbed that is measured beforehand and checked
/// afterwards like any other. All classes and directions of a condition come from the same run.
pub fn run(
    machine: &Machine<'_>,
    plan: &Plan<'_>,
    testbed_run: &TestbedRun,
    attempt: u32,
    tell: &mut Tell<'_>,
) -> Result<(), TestbedError> {
    let begun = testbed_run.parts.iter().map(|part| part.runs.start).min().unwrap_or(0);
    let runs = testbed_run.parts.iter().map(|part| part.runs.end).max().unwrap_or(0);
    let first = testbed_run.parts[0].job;
    let (job, scene) = (&plan.jobs[first], &plan.scenes[first]);
    let (spec, profile) = (sim::policy_of(job, scene)?, &scene.profile);
    for run in begun..runs {
        let seed = testbed_run.seed_of(attempt) + u64::from(run);
        let testbed = Testbed::new(&profile.link, None, seed)?;
        let links = {
            let _pass = machine.measuring.take(1);
            testbed.measure()?
        };
        let limits = rural_paws::limits(&spec);
        let mut cabin = EmuTraffic::on(testbed, profile, &limits, Rates::Typed, machine.scratch)
            .map_err(TestbedError::Policy)?;
        let before = lateness(cabin.testbed())?;
        let capture = capture(machine, cabin.testbed(), job, run)?;
        let found = rural_paws::policy_in(&mut cabin, profile, &spec, seed);
        drop(capture);
        let conditions = Conditions { attempt, ..sound(cabin.testbed(), &links, &before)? };
        let failed = failed(cabin.finish())?;
        for part in testbed_run.parts.iter().filter(|part| part.runs.contains(&run)) {
            let mut values = sim::of_class(&plan.jobs[part.job], &found);
            if failed.is_some() {
                values = workload::failed(values);
            }
            let failed = failed.clone();
            tell(part.job, Ran { run, seed, values, failed }, &conditions);
        }
    }
    Ok(())
}

/// Returns the reason why a run counts as failed, if it does. A fault in a passenger's traffic is
/// attributed to the system under test; any other fault is an error of the measurement.
fn failed(end: anyhow::Result<()>) -> Result<Option<String>, TestbedError> {
    let Err(error) = end else { return Ok(None) };
    match error.downcast_ref() {
        Some(fault @ Fault::Passenger { .. }) => Ok(Some(fault.to_string())),
        _ => Err(TestbedError::Policy(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_lab::emu::EmuError;

    #[test]
    fn a_passengers_fault_fails_the_run_and_the_labs_has_it_made_again() {
        assert_eq!(failed(Ok(())).unwrap(), None);
        let reset = Fault::passenger("stream 3", "reset");
        assert_eq!(failed(Err(reset.into())).unwrap().unwrap(), "stream 3: reset");
        for error in [Fault::lab("stream 3", "no socket").into(), EmuError::Unmodelled(3).into()] {
            assert!(failed(Err(error)).unwrap_err().may_pass());
        }
    }
}
