//! Plan of a run: assigns cells to testbeds, an order and seeds. It is fixed before anything runs,
//! and is the same for every shard and after every interruption.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bentpipe_lab::experiment::engine::Kind;
use bentpipe_results::{Folder, FolderError, Shard, Study, Workload};

use crate::cost;
use crate::job::Job;
use crate::link::{Scene, SceneError, check_settings};
use crate::seed::seed;

/// Approximate maximum duration of a testbed. It limits how long a run waits for the last testbed,
/// while each testbed costs about 12 s of setup.
const SPAN: Duration = Duration::from_secs(200);

/// Selection of the studies' cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Selects only the quick part of each grid.
    pub quick: bool,
    /// Seed of all losses.
    pub seed: u64,
    /// Selects only these grids; if empty, all.
    pub grids: Vec<String>,
    /// Selects only cells of this engine.
    pub engine: Option<Kind>,
}

/// Runs of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Index of the cell in the plan.
    pub job: usize,
    /// Range of its runs.
    pub runs: Range<u32>,
}

/// Work of one testbed, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct TestbedRun {
    /// Runs of the testbed.
    pub parts: Vec<Part>,
    /// Seed of the testbed's losses.
    pub seed: u64,
    /// Estimated duration.
    pub cost: Duration,
}

impl TestbedRun {
    /// Seed of the testbed that is started after `attempt` others. Each attempt has different
    /// losses, so a failure caused by them does not recur.
    pub fn seed_of(&self, attempt: u32) -> u64 {
        match attempt {
            0 => self.seed,
            again => seed(self.seed, &[&"again", &again]),
        }
    }

    /// Removes the runs in `done`, given by their cells. For each part, that many runs are removed
    /// from its start.
    pub fn forget(&mut self, done: &[usize]) {
        for part in &mut self.parts {
            let over = done.iter().filter(|job| **job == part.job).count();
            let over = u32::try_from(over).unwrap_or(u32::MAX);
            part.runs.start = part.runs.start.saturating_add(over).min(part.runs.end);
        }
        self.parts.retain(|part| !part.runs.is_empty());
    }
}

/// Cells that stay together: one testbed with one or more cells, or one cell in several testbeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    /// Engine of the bundle.
    pub kind: Kind,
    /// Testbeds of the bundle.
    pub testbeds: Vec<TestbedRun>,
}

/// Complete plan.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Seed of all losses.
    pub seed: u64,
    /// Every cell, in the order of the studies' files.
    pub jobs: Vec<Job<'a>>,
    /// Scene of every cell, in the same order.
    pub scenes: Vec<Scene>,
    /// Bundles of cells that run together.
    pub bundles: Vec<Bundle>,
}

impl Wanted {
    /// Returns `true` if the cell is selected.
    fn has(&self, job: &Job<'_>) -> bool {
        let grid = self.grids.is_empty() || self.grids.contains(&job.grid.id);
        grid && self.engine.is_none_or(|engine| engine == kind(job))
    }
}

fn kind(job: &Job<'_>) -> Kind {
    if job.is_simulated() { Kind::Sim } else { Kind::Emu }
}

impl<'a> Plan<'a> {
    /// Plans the selected part of `studies`.
    pub fn new(studies: &'a [Study], wanted: &Wanted) -> Result<Self, SceneError> {
        let Wanted { quick, seed, .. } = *wanted;
        let mut jobs = Vec::new();
        for study in studies {
            study.grids.iter().try_for_each(check_settings)?;
            let cells = study.plan(quick).map(|(grid, planned)| Job { study, grid, planned });
            jobs.extend(cells.filter(|job| wanted.has(job)));
        }
        let scene = |job: &Job<'_>| Scene::of(job.study, job.grid, &job.planned.cell);
        let scenes: Vec<Scene> = jobs.iter().map(scene).collect::<Result<_, _>>()?;
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut firsts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for (place, job) in jobs.iter().enumerate() {
            let first = *firsts.entry(key(job)).or_insert(place);
            groups.entry(first).or_default().push(place);
        }
        let mut plan = Self { seed, jobs, scenes, bundles: Vec::new() };
        plan.bundles = groups.values().flat_map(|group| plan.bundles_of(group)).collect();
        Ok(plan)
    }

    /// Returns the shard's bundles with cells that are not in `folder`, without the finished cells,
    /// longest first. The assignment of bundles to shards does not depend on finished cells.
    pub fn left(&self, shard: Shard, folder: &Folder) -> Result<Vec<Bundle>, FolderError> {
        let mut left = Vec::new();
        for bundle in shard.part(&self.bundles) {
            let mut bundle = bundle.clone();
            for testbed in &mut bundle.testbeds {
                let mut parts = Vec::new();
                for part in &testbed.parts {
                    let job = &self.jobs[part.job];
                    let (paper, grid) = (&job.study.name, &job.grid.id);
                    if folder.cell(paper, grid, &job.planned.cell)?.is_none() {
                        parts.push(part.clone());
                    }
                }
                testbed.cost = self.cost(&parts);
                testbed.parts = parts;
            }
            bundle.testbeds.retain(|testbed| !testbed.parts.is_empty());
            if !bundle.testbeds.is_empty() {
                left.push(bundle);
            }
        }
        left.sort_by_key(|bundle| std::cmp::Reverse(bundle.longest()));
        Ok(left)
    }

    /// Returns `true` if any cell runs between real kernels.
    pub fn needs_emulator(&self) -> bool {
        self.bundles.iter().any(|bundle| bundle.kind == Kind::Emu)
    }

    /// Number of cells in a shard.
    pub fn cells(&self, shard: Shard) -> usize {
        shard.part(&self.bundles).map(|bundle| bundle.jobs().len()).sum()
    }

    fn cost(&self, parts: &[Part]) -> Duration {
        let runs = parts.iter().map(|part| {
            let (job, scene) = (&self.jobs[part.job], &self.scenes[part.job]);
            cost::run(job, scene) * (part.runs.end - part.runs.start)
        });
        cost::TESTBED + runs.sum::<Duration>()
    }

    /// Splits cells with the same key into testbeds of about [`SPAN`].
    fn bundles_of(&self, group: &[usize]) -> Vec<Bundle> {
        let kind = kind(&self.jobs[group[0]]);
        let whole = |job: usize| Part { job, runs: 0..self.jobs[job].planned.runs };
        if kind == Kind::Sim || self.jobs[group[0]].grid.workload == Workload::RuralPolicy {
            let parts = group.iter().map(|job| whole(*job)).collect();
            return vec![Bundle { kind, testbeds: vec![self.testbed(parts)] }];
        }
        let mut bundles = Vec::new();
        let mut together: Vec<Part> = Vec::new();
        for &job in group {
            let one = cost::run(&self.jobs[job], &self.scenes[job]);
            let runs = self.jobs[job].planned.runs;
            if one * runs > SPAN && runs > 1 {
                let each = u32::try_from(SPAN.as_millis() / one.as_millis().max(1)).unwrap_or(1);
                bundles.push(Bundle { kind, testbeds: self.spread(job, each.max(1)) });
                continue;
            }
            if !together.is_empty() && self.cost(&together) + one * runs > SPAN {
                let parts = std::mem::take(&mut together);
                bundles.push(Bundle { kind, testbeds: vec![self.testbed(parts)] });
            }
            together.push(whole(job));
        }
        if !together.is_empty() {
            bundles.push(Bundle { kind, testbeds: vec![self.testbed(together)] });
        }
        bundles
    }

    /// Splits one cell into testbeds of at most `each` runs.
    fn spread(&self, job: usize, each: u32) -> Vec<TestbedRun> {
        let runs = self.jobs[job].planned.runs;
        let part = |first: u32| Part { job, runs: first..runs.min(first + each) };
        let firsts = (0..runs).step_by(each as usize);
        firsts.map(|first| self.testbed(vec![part(first)])).collect()
    }

    fn testbed(&self, parts: Vec<Part>) -> TestbedRun {
        let first = &parts[0];
        let job = &self.jobs[first.job];
        let cell = &job.planned.cell;
        let seed = seed(self.seed, &[&job.study.name, &job.grid.id, cell, &first.runs.start]);
        TestbedRun { seed, cost: self.cost(&parts), parts }
    }
}

impl Bundle {
    /// Cells of the bundle, without duplicates.
    pub fn jobs(&self) -> Vec<usize> {
        let mut jobs: Vec<usize> = self
            .testbeds
            .iter()
            .flat_map(|testbed| testbed.parts.iter().map(|part| part.job))
            .collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    fn longest(&self) -> Duration {
        self.testbeds.iter().map(|testbed| testbed.cost).max().unwrap_or_default()
    }
}

/// Properties that cells must share to run in one testbed. For the Rural-PAWS policy, columns that
/// come from the same run are excluded. Between real kernels, columns that do not change the
/// testbed are excluded.
fn key(job: &Job<'_>) -> Vec<String> {
    let mut key = vec![job.study.name.clone(), job.grid.id.clone()];
    let policy = job.grid.workload == Workload::RuralPolicy;
    for (column, value) in job.planned.cell.columns() {
        let same_run = policy && matches!(column, "class" | "direction");
        let same_testbed = !job.is_simulated()
            && matches!(column, "page" | "protocol" | "loader" | "class" | "direction");
        if !same_run && !same_testbed {
            key.push(format!("{column}={value}"));
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_results::Manifest;
    use std::collections::BTreeSet;

    fn folder() -> (tempfile::TempDir, Folder) {
        let at = tempfile::tempdir().unwrap();
        let (version, studies, builds, hosts) = ("1".into(), Vec::new(), Vec::new(), Vec::new());
        let manifest =
            Manifest { version, studies, seed: 1, quick: true, builds, hosts, links: Vec::new() };
        let folder = Folder::start(at.path(), &manifest).unwrap();
        (at, folder)
    }

    fn quick(seed: u64) -> Wanted {
        Wanted { quick: true, seed, ..Wanted::default() }
    }

    #[test]
    fn every_run_of_every_cell_is_planned_once() {
        let studies = Study::all().unwrap();
        for quick in [true, false] {
            let plan = Plan::new(&studies, &Wanted { quick, ..super::tests::quick(1) }).unwrap();
            let mut runs = vec![0; plan.jobs.len()];
            let testbeds = plan.bundles.iter().flat_map(|bundle| &bundle.testbeds);
            for part in testbeds.flat_map(|testbed| &testbed.parts) {
                assert_eq!(part.runs.start, runs[part.job]);
                runs[part.job] = part.runs.end;
            }
            let planned: Vec<u32> = plan.jobs.iter().map(|job| job.planned.runs).collect();
            assert_eq!(runs, planned);
        }
    }

    #[test]
    fn another_testbed_has_other_losses_and_the_runs_that_are_left() {
        let part = |job, runs| Part { job, runs };
        let parts = vec![part(3, 0..2), part(4, 5..7)];
        let mut testbed = TestbedRun { parts, seed: 77, cost: Duration::ZERO };
        let seeds = [0, 1, 2].map(|attempt| testbed.seed_of(attempt));
        assert_eq!((seeds[0], testbed.seed_of(1)), (77, seeds[1]));
        assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), 3);
        testbed.forget(&[3, 3, 4]);
        assert_eq!(testbed.parts, [part(4, 6..7)]);
        testbed.forget(&[4]);
        assert_eq!(testbed.parts, []);
    }

    #[test]
    fn shards_have_every_bundle_once_with_the_seeds_of_the_whole() {
        let studies = Study::all().unwrap();
        let plan = Plan::new(&studies, &quick(1)).unwrap();
        let (_at, folder) = folder();
        let of = |shard| -> BTreeSet<(u64, usize)> {
            let left = plan.left(shard, &folder).unwrap();
            let testbeds = left.iter().flat_map(|bundle| &bundle.testbeds);
            testbeds.map(|testbed| (testbed.seed, testbed.parts[0].job)).collect()
        };
        let (one, two) = (of(Shard::new(1, 2).unwrap()), of(Shard::new(2, 2).unwrap()));
        assert!(one.is_disjoint(&two));
        assert_eq!(one.union(&two).copied().collect::<BTreeSet<_>>(), of(Shard::WHOLE));
        let other = Plan::new(&studies, &quick(2)).unwrap();
        assert_ne!(other.bundles[0].testbeds[0].seed, plan.bundles[0].testbeds[0].seed);
    }

    #[test]
    fn finished_cells_are_left_out_and_shards_stay() {
        let studies = [Study::named("aerotcp").unwrap()];
        let plan =
            Plan::new(&studies, &Wanted { grids: vec!["files".into()], ..quick(1) }).unwrap();
        let (_at, folder) = folder();
        let shard = Shard::new(2, 3).unwrap();
        let cells = |bundles: &[Bundle]| -> Vec<usize> {
            let mut cells: Vec<_> = bundles.iter().flat_map(Bundle::jobs).collect();
            cells.sort_unstable();
            cells
        };
        let before = cells(&plan.left(shard, &folder).unwrap());
        let job = &plan.jobs[before[1]];
        folder.keep(&job.measured(&[]), &"a line").unwrap();
        let after = cells(&plan.left(shard, &folder).unwrap());
        assert_eq!(after.len() + 1, before.len());
        assert!(after.iter().all(|cell| before.contains(cell)));
    }

    #[test]
    fn cells_share_a_testbed_where_link_and_system_are_the_same() {
        let studies = Study::all().unwrap();
        let plan = Plan::new(&studies, &quick(1)).unwrap();
        for testbed in plan.bundles.iter().flat_map(|bundle| &bundle.testbeds) {
            let first = &plan.scenes[testbed.parts[0].job];
            for part in &testbed.parts {
                assert_eq!(&plan.scenes[part.job], first);
                assert_eq!(plan.jobs[part.job].system(), plan.jobs[testbed.parts[0].job].system());
            }
        }
    }
}
