//! `bentpipe report`: compares measurements with the claims of studies.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bentpipe_cli::out::{say, show};
use bentpipe_results::{
    Claims, Files, Folder, FolderError, Host, Report, Study, html, markdown, text,
};
use clap::Args;

/// Library that draws figures, as installed by `scripts/setup.sh vega`.
const VEGA: &str = "target/vega/vega.js";

/// Last second of the year 9999, the last valid date, since 1970.
const LAST_DATE: u64 = 253_402_300_799;

/// Arguments of `report`.
#[derive(Args)]
pub struct ReportArgs {
    /// Folder of results made by `bentpipe lab papers`.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write the page to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the summary to this file as Markdown, from the run alone: the same run gives the same
    /// page.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The Vega bundle that draws the figures; `scripts/setup.sh vega` fetches it. Without it the
    /// page has no figures and says so.
    #[arg(long, value_name = "FILE", default_value = VEGA)]
    vega: PathBuf,
}

/// Prints the summary, and writes the page.
pub fn run(args: &ReportArgs) -> Result<(), Box<dyn Error>> {
    let folder = Folder::open(&args.folder)?;
    let (has_cells, measured) = (folder.has_cells(), folder.any_measured()?);
    let files = match &args.out {
        Some(out) => files(&args.folder, out, has_cells)?,
        None => Files::default(),
    };
    let named =
        |study: &Study| folder.manifest().studies.iter().any(|(name, _)| *name == study.name);
    let all = Study::all()?.into_iter().chain(Study::own()?);
    let studies: Vec<Study> = all.filter(named).collect();
    let claims = Claims::all()?;
    claims.check(&studies)?;
    let vega = read(&args.vega)?;
    let made = made(args, &folder)?;
    let report = Report {
        studies: &studies,
        claims: &claims,
        measured: &measured,
        manifest: folder.manifest(),
        made: &made,
        files: &files,
        vega: vega.as_deref(),
    };
    show!("{}", text(&report));
    if let [_, _, ..] = &folder.manifest().builds[..] {
        say!(
            "\nThe results are of several builds of the program ({}): what differs between cells may be \
             theirs.",
            folder.manifest().builds.join(", ")
        );
    }
    if let Some(out) = &args.markdown {
        let made = &run_made(args, &folder, Study::all()?.len())?;
        let page = markdown(&Report { made, ..report });
        fs::write(out, page).map_err(|error| format!("{}: {error}", out.display()))?;
        say!("\nThe page of Markdown is {}.", out.display());
    }
    if let Some(out) = &args.out {
        fs::write(out, html(&report)).map_err(|error| format!("{}: {error}", out.display()))?;
        say!("\nThe page is {}.", out.display());
        if vega.is_none() {
            say!("It has no figures: scripts/setup.sh vega fetches what they are drawn with.");
        }
    }
    Ok(())
}

/// Files to which a page at `out` links.
fn files(folder: &Path, out: &Path, has_cells: bool) -> Result<Files, Box<dyn Error>> {
    let page = out.parent().filter(|path| !path.as_os_str().is_empty());
    let page = page.unwrap_or(Path::new("."));
    let whole =
        |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    Ok(Files::new(&whole(folder)?, &whole(page)?, has_cells))
}

/// Returns the text of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, Box<dyn Error>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

fn made(args: &ReportArgs, folder: &Folder) -> Result<Vec<(String, String)>, FolderError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = nix::sys::utsname::uname();
    let kernel = system.map_or_else(
        |_| String::new(),
        |system| {
            format!(
                ", {} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            )
        },
    );
    let made = [
        ("report", format!("bentpipe report {}", args.folder.display())),
        ("date", httpdate::fmt_http_date(SystemTime::now())),
        ("machine", format!("{cores} cores{kernel}")),
    ];
    Ok(named(made.into_iter().chain(measured(folder)?)))
}

/// Properties of the run alone, for a run of `known` studies.
fn run_made(
    args: &ReportArgs,
    folder: &Folder,
    known: usize,
) -> Result<Vec<(String, String)>, FolderError> {
    let manifest = folder.manifest();
    let quick = if manifest.quick { " --quick" } else { "" };
    let seed =
        if manifest.seed == 1 { String::new() } else { format!(" --seed {}", manifest.seed) };
    let names: String = match manifest.studies.len() {
        all if all == known => String::new(),
        _ => manifest.studies.iter().map(|(name, _)| format!(" {name}")).collect(),
    };
    let made = [
        ("run", format!("`bentpipe lab papers{quick}{seed}{names} DIR`")),
        ("page", format!("`bentpipe report {} --markdown FILE`", args.folder.display())),
    ];
    Ok(named(made.into_iter().chain(measured(folder)?)))
}

fn named(all: impl Iterator<Item = (&'static str, String)>) -> Vec<(String, String)> {
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Time, builds and machines of a run.
fn measured(folder: &Folder) -> Result<impl Iterator<Item = (&'static str, String)>, FolderError> {
    let manifest = folder.manifest();
    let at = |seconds: u64| {
        let since = Duration::from_secs(seconds.min(LAST_DATE));
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
    };
    let when = folder
        .measured_between()?
        .map(|[first, last]| ("measured", format!("{} to {}", at(first), at(last))));
    let builds = match &manifest.builds[..] {
        [] => "unknown".to_owned(),
        [one] => one.clone(),
        several => format!("several, which may differ: {}", several.join(", ")),
    };
    let hosts = manifest.hosts.iter().map(|host| ("measured on", measured_on(host)));
    Ok(when.into_iter().chain([("build", builds)]).chain(hosts))
}

/// Describes a machine that produced results.
fn measured_on(host: &Host) -> String {
    let programs = host.programs.iter().map(|(name, version)| format!(", {name} {version}"));
    format!(
        "{}: {} cores, Linux {}{}",
        host.name,
        host.cores,
        host.kernel,
        programs.collect::<String>()
    )
}
