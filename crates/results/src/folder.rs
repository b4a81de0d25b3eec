//! The folder of a run.
//!
//! ```text
//! manifest.json                 what is run: the same for every shard of it
//! cells/STUDY/SECTION/CELL.json the rows of one finished cell
//! log.jsonl                     when each cell was run, where, and what its links were measured to be
//! tables/STUDY.SECTION.parquet  all rows of a section, once no cell is missing or asked for
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::measured::{Cell, Measured};
use crate::parquet::{TableError, read_table, write_table};

const MANIFEST: &str = "manifest.json";
const LOG: &str = "log.jsonl";

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
    /// Whether only the quick part of each section's grid is run.
    pub quick: bool,
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
    /// Two shards have different results of one cell.
    #[error("{study} {section} {cell} is in two folders, with different results")]
    Twice {
        /// Of which study.
        study: String,
        /// Of which section.
        section: String,
        /// Which.
        cell: Cell,
    },
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Manifest {
    fn describe(&self) -> String {
        let studies: Vec<_> =
            self.studies.iter().map(|(name, digest)| format!("{name} {digest:.8}")).collect();
        let quick = if self.quick { ", quick" } else { "" };
        format!("version {}, seed {}{quick}, {}", self.version, self.seed, studies.join(" "))
    }
}

impl Folder {
    /// Makes the folder for a run, or goes on with one that is of the same run.
    pub fn start(path: &Path, manifest: &Manifest) -> Result<Self, FolderError> {
        let file = path.join(MANIFEST);
        if file.exists() {
            let folder = Self::open(path)?;
            if folder.manifest != *manifest {
                let (found, wanted) = (folder.manifest.describe(), manifest.describe());
                return Err(FolderError::Another { path: path.into(), found, wanted });
            }
            return Ok(folder);
        }
        fs::create_dir_all(path).map_err(io_at(path))?;
        write_whole(&file, &json(manifest))?;
        Ok(Self { path: path.into(), manifest: manifest.clone() })
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

    /// The rows of a cell, if it was run to its end.
    pub fn cell(
        &self,
        study: &str,
        section: &str,
        cell: &Cell,
    ) -> Result<Option<Vec<Measured>>, FolderError> {
        let path = self.cell_path(study, section, cell);
        if path.exists() { read(&path).map(Some) } else { Ok(None) }
    }

    /// Keeps the rows of a cell that was run to its end, and a line for the log, in this order: a
    /// cell without its line was run, a line without its cell is harmless.
    pub fn keep(
        &self,
        (study, section, cell): (&str, &str, &Cell),
        rows: &[Measured],
        line: &impl Serialize,
    ) -> Result<(), FolderError> {
        let path = self.cell_path(study, section, cell);
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(io_at(folder))?;
        write_whole(&path, &json(&rows))?;
        let log = self.path.join(LOG);
        let mut line = serde_json::to_vec(line).expect("a line of the log is plain data");
        line.push(b'\n');
        let mut file = OpenOptions::new().append(true).create(true).open(&log).map_err(io_at(&log))?;
        file.write_all(&line).map_err(io_at(&log))
    }

    /// Every finished cell's rows, by study and section.
    pub fn rows(&self) -> Result<Vec<Measured>, FolderError> {
        let mut rows = Vec::new();
        for study in entries(&self.path.join("cells"))? {
            for section in entries(&study)? {
                for cell in entries(&section)? {
                    if cell.extension().is_some_and(|extension| extension == "json") {
                        rows.extend(read::<Vec<Measured>>(&cell)?);
                    }
                }
            }
        }
        Ok(rows)
    }

    /// Writes a table for every section that has rows, from its cells.
    pub fn write_tables(&self) -> Result<(), FolderError> {
        let folder = self.path.join("tables");
        fs::create_dir_all(&folder).map_err(io_at(&folder))?;
        let mut rows = self.rows()?;
        rows.sort_by(|one, other| section_of(one).cmp(&section_of(other)));
        for rows in rows.chunk_by(|one, other| section_of(one) == section_of(other)) {
            let (study, section) = section_of(&rows[0]);
            write_table(&folder.join(format!("{study}.{section}.parquet")), rows)?;
        }
        Ok(())
    }

    /// The rows of all tables in `folder`, a run's `tables` or a copy of them.
    pub fn read_tables(folder: &Path) -> Result<Vec<Measured>, FolderError> {
        let mut rows = Vec::new();
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((study, section)) =
                name.strip_suffix(".parquet").and_then(|name| name.split_once('.'))
            else {
                continue;
            };
            rows.extend(read_table(&path, study, section)?);
        }
        Ok(rows)
    }

    /// Makes one run of its shards.
    pub fn merge(into: &Path, shards: &[Self]) -> Result<(), FolderError> {
        let Some(first) = shards.first() else { return Ok(()) };
        let merged = Self::start(into, &first.manifest)?;
        for shard in shards {
            if shard.manifest != first.manifest {
                let (found, wanted) = (shard.manifest.describe(), first.manifest.describe());
                return Err(FolderError::Another { path: shard.path.clone(), found, wanted });
            }
            merged.take(shard)?;
        }
        merged.write_tables()
    }

    fn take(&self, shard: &Self) -> Result<(), FolderError> {
        for study in entries(&shard.path.join("cells"))? {
            for section in entries(&study)? {
                for path in entries(&section)? {
                    let rows: Vec<Measured> = read(&path)?;
                    let Some(first) = rows.first() else { continue };
                    let (study, section) = section_of(first);
                    let to = self.cell_path(study, section, &first.cell);
                    if to.exists() && read::<Vec<Measured>>(&to)? != rows {
                        let (study, section) = (study.into(), section.into());
                        return Err(FolderError::Twice { study, section, cell: first.cell.clone() });
                    }
                    let folder = to.parent().unwrap_or(&self.path);
                    fs::create_dir_all(folder).map_err(io_at(folder))?;
                    write_whole(&to, &json(&rows))?;
                }
            }
        }
        let (from, to) = (shard.path.join(LOG), self.path.join(LOG));
        if !from.exists() {
            return Ok(());
        }
        let lines = fs::read(&from).map_err(io_at(&from))?;
        let mut file = OpenOptions::new().append(true).create(true).open(&to).map_err(io_at(&to))?;
        file.write_all(&lines).map_err(io_at(&to))
    }

    fn cell_path(&self, study: &str, section: &str, cell: &Cell) -> PathBuf {
        let name = utf8_percent_encode(&cell.to_string(), PLAIN).to_string();
        self.path.join("cells").join(study).join(section).join(name + ".json")
    }
}

fn section_of(row: &Measured) -> (&str, &str) {
    (&row.study, &row.section)
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

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let studies = vec![("aerotcp".into(), "0123456789abcdef".into())];
        Manifest { version: "0.1.0".into(), studies, seed: 1, quick: true }
    }

    fn row(ber: &str, value: f64) -> Measured {
        Measured {
            study: "aerotcp".into(),
            section: "figure-5".into(),
            cell: Cell::of([("ber", ber), ("contender", "e2e/reno")]),
            metric: "utilization".into(),
            unit: "ratio".into(),
            run: 0,
            seed: 1,
            value,
            finished: true,
        }
    }

    fn keep(folder: &Folder, row: &Measured) {
        let of = ("aerotcp", "figure-5", &row.cell);
        folder.keep(of, std::slice::from_ref(row), &("took", 1.5)).unwrap();
    }

    #[test]
    fn a_run_goes_on_where_it_was() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::start(place.path(), &manifest()).unwrap();
        let rows = [row("1e-5", 0.8), row("1e-6", 0.9)];
        keep(&folder, &rows[0]);
        let again = Folder::start(place.path(), &manifest()).unwrap();
        assert_eq!(again.cell("aerotcp", "figure-5", &rows[0].cell).unwrap().unwrap(), rows[..1]);
        assert_eq!(again.cell("aerotcp", "figure-5", &rows[1].cell).unwrap(), None);
        let other = Manifest { seed: 2, ..manifest() };
        let error = Folder::start(place.path(), &other).unwrap_err().to_string();
        assert!(error.contains("seed 1") && error.contains("another folder"), "{error}");
    }

    #[test]
    fn shards_become_the_run_they_are_parts_of() {
        let place = tempfile::tempdir().unwrap();
        let start = |name: &str| Folder::start(&place.path().join(name), &manifest()).unwrap();
        let (whole, one, two) = (start("whole"), start("one"), start("two"));
        let rows = [row("1e-5", 0.8), row("1e-6", 0.9), row("1e-7", 0.95)];
        rows.iter().for_each(|row| keep(&whole, row));
        whole.write_tables().unwrap();
        keep(&one, &rows[2]);
        keep(&one, &rows[0]);
        keep(&two, &rows[1]);
        let merged = place.path().join("merged");
        Folder::merge(&merged, &[two.clone(), one.clone()]).unwrap();
        for file in ["manifest.json", "tables/aerotcp.figure-5.parquet"] {
            let of = |folder: &Path| fs::read(folder.join(file)).unwrap();
            assert_eq!(of(&merged), of(&place.path().join("whole")), "{file}");
        }
        assert_eq!(Folder::open(&merged).unwrap().rows().unwrap(), whole.rows().unwrap());
        assert_eq!(Folder::read_tables(&merged.join("tables")).unwrap(), rows);
        assert_eq!(fs::read_to_string(merged.join(LOG)).unwrap().lines().count(), 3);

        keep(&two, &Measured { value: 0.1, ..rows[0].clone() });
        let error = Folder::merge(&place.path().join("other"), &[one, two]).unwrap_err();
        assert!(matches!(error, FolderError::Twice { .. }), "{error}");
    }

    #[test]
    fn a_damaged_cell_is_named() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::start(place.path(), &manifest()).unwrap();
        keep(&folder, &row("1e-5", 0.8));
        let path = folder.cell_path("aerotcp", "figure-5", &row("1e-5", 0.8).cell);
        fs::write(&path, b"[{]").unwrap();
        let error = folder.rows().unwrap_err().to_string();
        assert!(error.contains("ber=1e-5,contender=e2e%2Freno.json"), "{error}");
    }
}
