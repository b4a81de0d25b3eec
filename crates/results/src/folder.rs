//! The folder of a run.
//!
//! ```text
//! manifest.json                 the run: the same for all its shards; its builds and machines, and
//!                               the measured properties of its links
//! cells/PAPER/GRID/CELL.json    results of one cell, once all its runs are finished
//! log.jsonl                     time and machine of each cell, and its links' measured properties
//! tables/PAPER.GRID.parquet     all results of a grid's cells
//! raw/cells/PAPER/GRID/         packets and page loads of the cells' runs, if requested
//! ```

mod error;
mod files;
mod links;
mod manifest;
mod merge;
#[cfg(test)]
mod tests;
mod times;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

pub use error::FolderError;
pub use links::{LinkMeasured, LinkRange};
pub use manifest::{Host, Manifest};

use crate::measured::{Cell, Measured, Row};
use crate::parquet::{read_table, write_table};
use files::{cell_files, entries, io_at, json, lines, read, write_below, write_whole};

const MANIFEST: &str = "manifest.json";
const LOG: &str = "log.jsonl";
const TABLES: &str = "tables";
const RAW: &str = "raw";

/// Characters that are not escaped in a file's name.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'=').remove(b',').remove(b'.').remove(b'-').remove(b'_');

/// Folder with the results of a run.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    manifest: Manifest,
}

impl Folder {
    /// Creates the folder for a run, or continues one of the same run by the same build.
    pub fn start(path: &Path, manifest: &Manifest) -> Result<Self, FolderError> {
        if path.join(MANIFEST).exists() {
            let there = Self::open(path)?.manifest;
            let known = &there.builds;
            let is_new = |build| !known.contains(build);
            if there.is_same_run(manifest) && manifest.builds.iter().any(is_new) {
                let say = |builds: &[String]| match builds {
                    [] => "an unknown one".to_owned(),
                    some => some.join(", "),
                };
                let (found, wanted) = (say(known), say(&manifest.builds));
                return Err(FolderError::AnotherBuild { path: path.into(), found, wanted });
            }
        }
        Self::start_mixed(path, manifest)
    }

    /// Like [`Self::start`], but accepts results of any build. The manifest then lists all builds.
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
        if folder.manifest.add_sources(manifest) {
            write_whole(&file, &json(&folder.manifest))?;
        }
        Ok(folder)
    }

    /// Opens the folder of an existing run.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let manifest = read(&path.join(MANIFEST))?;
        Ok(Self { path: path.into(), manifest })
    }

    /// Description of the run.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Results of a cell, if all its runs are finished.
    pub fn cell(
        &self,
        paper: &str,
        grid: &str,
        cell: &Cell,
    ) -> Result<Option<Measured>, FolderError> {
        let path = self.path.join(Self::cell_file(paper, grid, cell));
        if path.exists() { read(&path).map(Some) } else { Ok(None) }
    }

    /// Path of a cell's file, relative to the folder.
    pub fn cell_file(paper: &str, grid: &str, cell: &Cell) -> PathBuf {
        let name = utf8_percent_encode(&cell.to_string(), PLAIN).to_string();
        Path::new("cells").join(paper).join(grid).join(name + ".json")
    }

    /// Path of a grid's table, relative to the folder.
    pub fn table_file(paper: &str, grid: &str) -> PathBuf {
        Path::new(TABLES).join(format!("{paper}.{grid}.parquet"))
    }

    /// Folder for raw data of single runs (captures, page loads and qlogs), with paths as in
    /// [`Self::cell_file`].
    pub fn raw(&self) -> PathBuf {
        self.path.join(RAW)
    }

    /// Stores the results of a cell whose runs are all finished, then a line for the log. The order
    /// matters: a cell without its line was still run, and a line without its cell is harmless.
    pub fn keep(&self, measured: &Measured, line: &impl Serialize) -> Result<(), FolderError> {
        self.keep_cell(measured)?;
        self.note(line)
    }

    /// Adds a line to the log that belongs to no cell.
    pub fn note(&self, line: &impl Serialize) -> Result<(), FolderError> {
        let line = serde_json::to_string(line).expect("a line of the log is plain data");
        self.log(&format!("{line}\n"))
    }

    /// Results of every finished cell, by study and grid.
    pub fn measured(&self) -> Result<Vec<Measured>, FolderError> {
        cell_files(&self.path, Some("json"))?.iter().map(|path| read(path)).collect()
    }

    /// Returns `true` if it has files of cells. A copy of a run may contain only its tables.
    pub fn has_cells(&self) -> bool {
        self.path.join("cells").exists()
    }

    /// Results of every finished cell, from the tables if there are no files of cells.
    pub fn any_measured(&self) -> Result<Vec<Measured>, FolderError> {
        if self.has_cells() { self.measured() } else { Self::read_tables(&self.path.join(TABLES)) }
    }

    /// End times of the first and the last cell, in seconds since 1970; `None` for a run without a
    /// log.
    pub fn measured_between(&self) -> Result<Option<[u64; 2]>, FolderError> {
        Ok(times::ends(&lines(&self.path.join(LOG))?))
    }

    /// Writes a table for every grid that has cells, and adds the measured properties of their
    /// links to the manifest.
    pub fn write_tables(&self) -> Result<(), FolderError> {
        let folder = self.path.join(TABLES);
        fs::create_dir_all(&folder).map_err(io_at(&folder))?;
        // The cells are sorted by study and grid, because their folders are.
        for cells in self.measured()?.chunk_by(|one, two| grid_of(one) == grid_of(two)) {
            let (paper, grid) = grid_of(&cells[0]);
            write_table(&self.path.join(Self::table_file(paper, grid)), cells)?;
        }
        // Read the file again, because shards merged in the meantime have added builds and
        // machines.
        let mut manifest = Self::open(&self.path)?.manifest;
        let links = links::ranges(&lines(&self.path.join(LOG))?);
        if !links.is_empty() {
            manifest.links = links;
        }
        write_whole(&self.path.join(MANIFEST), &json(&manifest))
    }

    /// Contents of all tables in `folder`, which is a run's `tables` folder or a copy of it.
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

fn grid_of(measured: &Measured) -> (&str, &str) {
    (&measured.paper, &measured.grid)
}
