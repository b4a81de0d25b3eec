//! `bentpipe lab papers`: repeats the published studies.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bentpipe_cli::out::say;
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::emu;
use bentpipe_lab::scratch::Scratch;
use bentpipe_papers::{Options, Plan, Wanted, build, digest};
use bentpipe_results::{Claims, Folder, Manifest, Shard, Study};
use clap::Args;

use super::common::{OneEngine, Outcome};

/// Arguments of `lab papers`.
#[derive(Args)]
#[command(override_usage = "bentpipe-lab papers [OPTIONS] [NAME]... <DIR>\n       \
                            bentpipe-lab papers --merge <DIR> <SHARD>...")]
pub struct PapersArgs {
    /// The studies, by the names of their files in experiments/ [default: all], then the folder for
    /// the results; with --merge, the folder for the merged results, then those of its shards.
    ///
    /// A folder with results of the same run is continued.
    #[arg(required = true, value_name = "NAME, DIR")]
    words: Vec<String>,
    /// Run only the quick part of each grid.
    #[arg(long)]
    quick: bool,
    /// Seed of all losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run one part of several, for example 2/8; --merge combines the parts.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE, hide_default_value = true)]
    shard: Shard,
    /// Number of parallel emulated links [default: 10 for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: Option<u16>,
    /// Run only this grid; may be repeated.
    #[arg(long, value_name = "GRID")]
    only: Vec<String>,
    /// Run only the cells of this engine.
    #[arg(long, value_name = "NAME")]
    engine: Option<OneEngine>,
    /// Choose the number of runs from the results in this folder: enough that the interval of each
    /// claim that they leave undecided probably decides it, at most 100. All shards need the same folder.
    #[arg(long, value_name = "DIR")]
    pilot: Option<PathBuf>,
    /// Continue a folder of results made by another build of this program.
    #[arg(long)]
    mix_builds: bool,
    /// Record each real-time run's link traffic (pcapng), and for page loads also HAR and, over
    /// HTTP/3, qlog: below raw/ in the folder.
    #[arg(long)]
    raw: bool,
    /// Merge the results of shards.
    #[arg(long, conflicts_with_all = ["quick", "seed", "shard", "jobs", "only", "engine", "pilot", "mix_builds", "raw"])]
    merge: bool,
}

/// Runs the remaining cells, or merges.
pub fn run(args: &PapersArgs) -> Outcome {
    if args.merge {
        return merge(&args.words);
    }
    let (names, folder) = args.words.split_at(args.words.len() - 1);
    let path = PathBuf::from(&folder[0]);
    let mut studies = studies(names)?;
    if names.is_empty() && Study::named(&folder[0]).is_ok() {
        return Err(format!(
            "{0} is a study: name the folder for its results behind it",
            folder[0]
        )
        .into());
    }
    let grids = || studies.iter().flat_map(|study| &study.grids);
    if let Some(unknown) = args.only.iter().find(|only| !grids().any(|grid| grid.id == **only)) {
        let all: Vec<&str> = grids().map(|grid| grid.id.as_str()).collect();
        return Err(format!("there is no grid {unknown:?}: there are {}", all.join(", ")).into());
    }
    if let Some(pilot) = &args.pilot {
        plan_runs(&mut studies, pilot)?;
    }
    let engine = args.engine.map(Into::into);
    let (quick, seed, grids) = (args.quick, args.seed, args.only.clone());
    let plan = Plan::new(&studies, &Wanted { quick, seed, grids, engine })?;
    if plan.needs_emulator() {
        // Must precede the first thread.
        emu::enter()?;
    }
    // Cells in virtual time start no gateway.
    let gateways = match plan.needs_emulator() {
        true => Some(sibling::find(GATEWAYS)?),
        false => sibling::find(GATEWAYS).ok(),
    };
    let programs: Vec<PathBuf> =
        [std::env::current_exe()?].into_iter().chain(gateways.clone()).collect();
    let manifest = manifest(&studies, args, build(&programs)?);
    let folder = match args.mix_builds {
        true => Folder::start_mixed(&path, &manifest)?,
        false => Folder::start(&path, &manifest)?,
    };
    let scratch = Scratch::new()?;
    scratch.advise("the same command goes on where this one was");
    let (began, raw) = (Instant::now(), folder.raw());
    let options = Options {
        shard: args.shard,
        folder: &folder,
        scratch: scratch.path(),
        program: gateways.as_deref().unwrap_or(Path::new(GATEWAYS)),
        raw: args.raw.then_some(&*raw),
        jobs: args.jobs.map(usize::from),
    };
    let outcome = bentpipe_papers::run(&plan, &options)?;
    folder.write_tables()?;
    say!("{}", outcome.words(began.elapsed()));
    say!("Now: bentpipe report {} --out report.html", path.display());
    Ok(())
}

fn studies(names: &[String]) -> Result<Vec<Study>, Box<dyn std::error::Error>> {
    if names.is_empty() {
        return Ok(Study::all()?);
    }
    Ok(names.iter().map(|name| Study::named(name)).collect::<Result<_, _>>()?)
}

/// Gives the cells of `studies` the numbers of runs that decide, by the results in the folder `pilot`.
fn plan_runs(studies: &mut [Study], pilot: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = Folder::open(pilot)?;
    let changed =
        Claims::all()?.plan_runs(studies, &folder.any_measured()?, folder.manifest().quick);
    say!(
        "{changed} cells of the studies have more runs, by the claims that {} leaves open",
        pilot.display()
    );
    Ok(())
}

fn manifest(studies: &[Study], args: &PapersArgs, build: String) -> Manifest {
    Manifest {
        version: env!("CARGO_PKG_VERSION").into(),
        studies: studies.iter().map(|one| (one.name.clone(), digest(&one.text))).collect(),
        seed: args.seed,
        quick: args.quick,
        builds: vec![build],
        hosts: vec![bentpipe_papers::host()],
        links: Vec::new(),
    }
}

fn merge(words: &[String]) -> Outcome {
    let [into, shards @ ..] = words else { return Ok(()) };
    if shards.is_empty() {
        return Err(
            "nothing to merge: name the folders of the shards behind that of the whole".into()
        );
    }
    let shards: Vec<Folder> =
        shards.iter().map(|path| Folder::open(Path::new(path))).collect::<Result<_, _>>()?;
    Folder::merge(Path::new(into), &shards)?;
    let cells = Folder::open(Path::new(into))?.measured()?.len();
    say!("{into} has {cells} cells now");
    Ok(())
}
