//! The folder of a run.
//!
//! ```text
//! manifest.json                 what is run: the same for every shard of it
//! cells/PAPER/GRID/CELL.json    what one cell gave, once all its runs are over
//! log.jsonl                     when each cell was run, where, and what its links were measured to be
//! tables/PAPER.GRID.parquet     all that the cells of a grid gave
//! raw/cells/PAPER/GRID/*.har    page loads of cells, request by request, where they were asked for
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::measured::{Cell, Measured, Row};
use crate::parquet::{TableError, read_table, write_table};

const MANIFEST: &str = "manifest.json";
const LOG: &str = "log.jsonl";
const RAW: &str = "raw";

/// What stands for itself in a file's name.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'=').remove(b',').remove(b'.').remove(b'-').remove(b'_');

/// What is run, whoever runs which part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Manifest {
    /// Of this program.
    pub version: String,
    /// The studies, each with a digest of its file.
    pub studies: Vec<(String, String)>,
    /// Of all losses.
    pub seed: u64,
    /// Whether only the quick part of each grid is run.
    pub quick: bool,
    /// Every build of the program that gave results, each by a digest of its executable.
    #[serde(default)]
    pub builds: Vec<String>,
}

/// Where the results of a run are.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// It holds another run.
    #[error(
        "{} holds results of another run ({found}, not {wanted}): name another folder, or remove it",
        path.display()
    )]
    Another {
        /// Which.
        path: PathBuf,
        /// What it is of.
        found: String,
        /// What it should be of.
        wanted: String,
    },
    /// It holds results of another build of the program.
    #[error(
        "{} holds results of another build ({found}, not {wanted}): name another folder, or go on with \
         this one all the same (--mix-builds); the report will say so",
        path.display()
    )]
    AnotherBuild {
        /// Which.
        path: PathBuf,
        /// What it was made by.
        found: String,
        /// What would go on.
        wanted: String,
    },
    /// Two shards have different results of one cell.
    #[error(
        "{paper} {grid} {cell} is in two folders, with different results: leave one of them out"
    )]
    Twice {
        /// Of which study.
        paper: String,
        /// Of which grid.
        grid: String,
        /// Which.
        cell: Cell,
    },
    /// A run gave what no file of numbers holds.
    #[error("{paper} {grid} {cell}: {metric} of run {run} is {value}, which is no finite number")]
    NotFinite {
        /// Of which study.
        paper: String,
        /// Of which grid.
        grid: String,
        /// In which cell.
        cell: Cell,
        /// Of what.
        metric: String,
        /// In which run.
        run: u32,
        /// What it gave.
        value: f64,
    },
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Manifest {
    /// Whether it is of the same run, by whatever builds.
    fn is_same_run(&self, other: &Self) -> bool {
        let of = |one: &Self| Self { builds: Vec::new(), ..one.clone() };
        of(self) == of(other)
    }

    fn describe(&self) -> String {
        let studies: Vec<_> =
            self.studies.iter().map(|(name, digest)| format!("{name} {digest:.8}")).collect();
        let quick = if self.quick { ", quick" } else { "" };
        format!("version {}, seed {}{quick}, {}", self.version, self.seed, studies.join(" "))
    }
}

impl Folder {
    /// Makes the folder for a run, or goes on with one that is of the same run by the same build.
    pub fn start(path: &Path, manifest: &Manifest) -> Result<Self, FolderError> {
        if path.join(MANIFEST).exists() {
            let known = Self::open(path)?.manifest.builds;
            if !manifest.builds.iter().all(|build| known.contains(build)) {
                let say = |builds: &[String]| match builds {
                    [] => "an unknown one".to_owned(),
                    some => some.join(", "),
                };
                let (found, wanted) = (say(&known), say(&manifest.builds));
                return Err(FolderError::AnotherBuild { path: path.into(), found, wanted });
            }
        }
        Self::start_mixed(path, manifest)
    }

    /// The same with the results of any build, which the manifest then names.
    pub fn start_mixed(path: &Path, manifest: &Manifest) -> Result<Self, FolderError> {
        let file = path.join(MANIFEST);
        if !file.exists() {
            fs::create_dir_all(path).map_err(io_at(path))?;
            write_whole(&file, &json(manifest))?;
            return Ok(Self { path: path.into(), manifest: manifest.clone() });
        }
        let mut folder = Self::open(path)?;
        if !folder.manifest.is_same_run(manifest) {
            let (found, wanted) = (folder.manifest.describe(), manifest.describe());
            return Err(FolderError::Another { path: path.into(), found, wanted });
        }
        let known = &mut folder.manifest.builds;
        let new: Vec<String> =
            manifest.builds.iter().filter(|build| !known.contains(build)).cloned().collect();
        if !new.is_empty() {
            known.extend(new);
            write_whole(&file, &json(&folder.manifest))?;
        }
        Ok(folder)
    }

    /// The folder of a run that was begun.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let manifest = read(&path.join(MANIFEST))?;
        Ok(Self { path: path.into(), manifest })
    }

    /// What is run.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What a cell gave, if all its runs are over.
    pub fn cell(
        &self,
        paper: &str,
        grid: &str,
        cell: &Cell,
    ) -> Result<Option<Measured>, FolderError> {
        let path = self.path.join(Self::cell_file(paper, grid, cell));
        if path.exists() { read(&path).map(Some) } else { Ok(None) }
    }

    /// The file of a cell, from the folder.
    pub fn cell_file(paper: &str, grid: &str, cell: &Cell) -> PathBuf {
        let name = utf8_percent_encode(&cell.to_string(), PLAIN).to_string();
        Path::new("cells").join(paper).join(grid).join(name + ".json")
    }

    /// Where the files of page loads go that belong to no table: below it as `cell_file` has it.
    pub fn raw(&self) -> PathBuf {
        self.path.join(RAW)
    }

    /// Keeps what a cell gave when all its runs are over, and a line for the log, in this order: a
    /// cell without its line was run, a line without its cell is harmless.
    pub fn keep(&self, measured: &Measured, line: &impl Serialize) -> Result<(), FolderError> {
        self.keep_cell(measured)?;
        self.note(line)
    }

    /// A line for the log that goes with no cell.
    pub fn note(&self, line: &impl Serialize) -> Result<(), FolderError> {
        let line = serde_json::to_string(line).expect("a line of the log is plain data");
        self.log(&format!("{line}\n"))
    }

    /// What every finished cell gave, by study and grid.
    pub fn measured(&self) -> Result<Vec<Measured>, FolderError> {
        cell_files(&self.path, "json")?.iter().map(|path| read(path)).collect()
    }

    /// Writes a table for every grid that has cells.
    pub fn write_tables(&self) -> Result<(), FolderError> {
        let folder = self.path.join("tables");
        fs::create_dir_all(&folder).map_err(io_at(&folder))?;
        // By study and grid, as the folders of their files are in order.
        for cells in self.measured()?.chunk_by(|one, two| grid_of(one) == grid_of(two)) {
            let (paper, grid) = grid_of(&cells[0]);
            write_table(&folder.join(format!("{paper}.{grid}.parquet")), cells)?;
        }
        Ok(())
    }

    /// What all tables in `folder` hold, a run's `tables` or a copy of them.
    pub fn read_tables(folder: &Path) -> Result<Vec<Measured>, FolderError> {
        let mut all = Vec::new();
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let parts = name.strip_suffix(".parquet").and_then(|name| name.split_once('.'));
            if let Some((paper, grid)) = parts {
                all.extend(read_table(&path, paper, grid)?);
            }
        }
        Ok(all)
    }

    /// Makes one run of its shards: the same files, whoever ran which part, but for the order of the
    /// log. What was merged before stays.
    pub fn merge(into: &Path, shards: &[Self]) -> Result<(), FolderError> {
        let Some(first) = shards.first() else { return Ok(()) };
        let merged = Self::start_mixed(into, &first.manifest)?;
        for shard in shards {
            if !shard.manifest.is_same_run(&first.manifest) {
                let (found, wanted) = (shard.manifest.describe(), first.manifest.describe());
                return Err(FolderError::Another { path: shard.path.clone(), found, wanted });
            }
            Self::start_mixed(into, &shard.manifest)?.take(shard)?;
        }
        merged.write_tables()
    }

    fn take(&self, shard: &Self) -> Result<(), FolderError> {
        for path in cell_files(&shard.path, "json")? {
            let measured: Measured = read(&path)?;
            let (paper, grid) = grid_of(&measured);
            match self.cell(paper, grid, &measured.cell)? {
                None => self.keep_cell(&measured)?,
                Some(same) if same == measured => {}
                Some(_) => {
                    let (paper, grid, cell) = (paper.into(), grid.into(), measured.cell.clone());
                    return Err(FolderError::Twice { paper, grid, cell });
                }
            }
        }
        for path in cell_files(&shard.raw(), "har")? {
            let name = path.strip_prefix(&shard.path).expect("it was found below it");
            let copy = self.path.join(name);
            if !copy.exists() {
                write_below(&copy, &fs::read(&path).map_err(io_at(&path))?)?;
            }
        }
        let (theirs, ours) = (lines(&shard.path.join(LOG))?, lines(&self.path.join(LOG))?);
        let ours: BTreeSet<&str> = ours.lines().collect();
        let new = theirs.lines().filter(|line| !ours.contains(line));
        self.log(&new.map(|line| format!("{line}\n")).collect::<String>())
    }

    fn keep_cell(&self, measured: &Measured) -> Result<(), FolderError> {
        let (paper, grid) = grid_of(measured);
        let finite = |row: &&Row| row.value.is_finite() && row.x.is_none_or(f64::is_finite);
        if let Some(row) = measured.rows.iter().find(|row| !finite(row)) {
            let (paper, grid, cell) = (paper.into(), grid.into(), measured.cell.clone());
            let (metric, run, value) = (row.metric.clone(), row.run, row.value);
            return Err(FolderError::NotFinite { paper, grid, cell, metric, run, value });
        }
        let path = self.path.join(Self::cell_file(paper, grid, &measured.cell));
        write_below(&path, &json(measured))
    }

    fn log(&self, lines: &str) -> Result<(), FolderError> {
        let path = self.path.join(LOG);
        let mut file =
            OpenOptions::new().append(true).create(true).open(&path).map_err(io_at(&path))?;
        file.write_all(lines.as_bytes()).map_err(io_at(&path))
    }
}

/// The files of cells below `root` with this extension, in order.
fn cell_files(root: &Path, extension: &str) -> Result<Vec<PathBuf>, FolderError> {
    let mut files = Vec::new();
    for paper in entries(&root.join("cells"))? {
        for grid in entries(&paper)? {
            let wanted = |path: &PathBuf| path.extension().is_some_and(|one| one == extension);
            files.extend(entries(&grid)?.into_iter().filter(wanted));
        }
    }
    Ok(files)
}

fn grid_of(measured: &Measured) -> (&str, &str) {
    (&measured.paper, &measured.grid)
}

fn lines(path: &Path) -> Result<String, FolderError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(io_at(path)),
    }
}

/// What a folder holds, in order; nothing where there is no folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(io_at(folder))?,
    };
    let paths: Result<Vec<_>, _> = listed.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(io_at(folder))?;
    paths.sort();
    Ok(paths)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("rows and manifests are plain data");
    bytes.push(b'\n');
    bytes
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, FolderError> {
    let bytes = fs::read(path).map_err(io_at(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| FolderError::Damaged { path: path.into(), why: error.to_string() })
}

/// All of it or nothing, also when the machine stops.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(io_at(path))
}

/// The same in a folder that may have to be made.
fn write_below(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(io_at(folder))?;
    write_whole(path, bytes)
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let studies = vec![("aerotcp".into(), "0123456789abcdef".into())];
        let builds = vec!["0011".into()];
        Manifest { version: "0.1.0".into(), studies, seed: 1, quick: true, builds }
    }

    fn measured(ber: &str, value: f64) -> Measured {
        let row = Row {
            metric: "utilization".into(),
            unit: "ratio".into(),
            series: String::new(),
            x: None,
            run: 0,
            seed: 1,
            value,
            finished: true,
        };
        Measured {
            paper: "aerotcp".into(),
            grid: "files".into(),
            cell: Cell::of([("x", ber), ("protocol", "http/1.1")]),
            rows: vec![row],
        }
    }

    fn keep(folder: &Folder, measured: &Measured) {
        folder.keep(measured, &("took", measured.rows[0].value)).unwrap();
    }

    #[test]
    fn a_run_goes_on_where_it_was() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::start(place.path(), &manifest()).unwrap();
        let (done, open) = (measured("0.1", 0.8), measured("0.01", 0.9));
        keep(&folder, &done);
        let again = Folder::start(place.path(), &manifest()).unwrap();
        assert_eq!(again.cell("aerotcp", "files", &done.cell).unwrap(), Some(done));
        assert_eq!(again.cell("aerotcp", "files", &open.cell).unwrap(), None);
        let other = Manifest { seed: 2, ..manifest() };
        let error = Folder::start(place.path(), &other).unwrap_err().to_string();
        assert!(error.contains("seed 1") && error.contains("another folder"), "{error}");
    }

    #[test]
    fn another_build_goes_on_only_where_it_is_told_to_and_is_named() {
        let place = tempfile::tempdir().unwrap();
        let by = |build: &str| Manifest { builds: vec![build.into()], ..manifest() };
        Folder::start(place.path(), &manifest()).unwrap();
        let error = Folder::start(place.path(), &by("2233")).unwrap_err().to_string();
        assert!(error.contains("0011, not 2233") && error.contains("--mix-builds"), "{error}");
        let both = Folder::start_mixed(place.path(), &by("2233")).unwrap();
        assert_eq!(both.manifest().builds, ["0011", "2233"]);
        assert_eq!(Folder::start(place.path(), &by("2233")).unwrap().manifest(), both.manifest());
        // Shards of several builds are of all of them.
        let shard =
            |name: &str, build| Folder::start(&place.path().join(name), &by(build)).unwrap();
        let merged = place.path().join("merged");
        Folder::merge(&merged, &[shard("one", "44"), shard("two", "55")]).unwrap();
        assert_eq!(Folder::open(&merged).unwrap().manifest().builds, ["44", "55"]);
        // A folder that was made before builds were named.
        let text = fs::read_to_string(place.path().join(MANIFEST)).unwrap();
        let old: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut old = old.as_object().unwrap().clone();
        old.remove("builds");
        fs::write(place.path().join(MANIFEST), serde_json::to_vec(&old).unwrap()).unwrap();
        let error = Folder::start(place.path(), &manifest()).unwrap_err().to_string();
        assert!(error.contains("an unknown one, not 0011"), "{error}");
    }

    #[test]
    fn shards_become_the_run_they_are_parts_of() {
        let place = tempfile::tempdir().unwrap();
        let start = |name: &str| Folder::start(&place.path().join(name), &manifest()).unwrap();
        let (whole, one, two) = (start("whole"), start("one"), start("two"));
        // A number whose last digit a hasty reader of JSON gets wrong.
        let hard = 3.812_042_376_882_124_6;
        let all = [measured("0.001", hard), measured("0.01", 0.9), measured("0.1", 0.8)];
        all.iter().for_each(|cell| keep(&whole, cell));
        for folder in [&whole, &two] {
            let har = Folder::cell_file("aerotcp", "files", &all[1].cell).with_extension("0.har");
            write_below(&folder.raw().join(har), b"{}").unwrap();
        }
        whole.write_tables().unwrap();
        keep(&one, &all[2]);
        keep(&one, &all[0]);
        keep(&two, &all[1]);
        let merged = place.path().join("merged");
        for _ in 0..2 {
            Folder::merge(&merged, &[two.clone(), one.clone()]).unwrap();
            assert_eq!(files(&merged), files(&place.path().join("whole")));
            assert_eq!(Folder::read_tables(&merged.join("tables")).unwrap(), all);
            assert_eq!(fs::read_to_string(merged.join(LOG)).unwrap().lines().count(), 3);
        }
        keep(&two, &measured("0.1", 0.1));
        let error = Folder::merge(&place.path().join("other"), &[one, two]).unwrap_err();
        assert!(matches!(error, FolderError::Twice { .. }), "{error}");
    }

    /// Every file but the log, with what is in it.
    fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        for path in entries(folder).unwrap() {
            let name = PathBuf::from(path.file_name().unwrap());
            if path.is_dir() {
                all.extend(files(&path).into_iter().map(|(file, bytes)| (name.join(file), bytes)));
            } else if name != Path::new(LOG) {
                all.push((name, fs::read(&path).unwrap()));
            }
        }
        all
    }

    #[test]
    fn a_damaged_cell_is_named() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::start(place.path(), &manifest()).unwrap();
        let cell = measured("0.1", 0.8);
        keep(&folder, &cell);
        let path = place.path().join(Folder::cell_file("aerotcp", "files", &cell.cell));
        fs::write(&path, b"{").unwrap();
        let error = folder.measured().unwrap_err().to_string();
        assert!(error.contains("protocol=http%2F1.1,x=0.1.json"), "{error}");
    }

    #[test]
    fn what_is_no_number_is_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::start(place.path(), &manifest()).unwrap();
        let error = folder.keep(&measured("0.1", f64::NAN), &()).unwrap_err().to_string();
        assert!(error.contains("utilization of run 0 is NaN"), "{error}");
        assert_eq!(folder.measured().unwrap(), []);
    }
}
