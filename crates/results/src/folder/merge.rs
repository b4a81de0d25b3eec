//! Merging of a run's shards.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{cell_files, copy_whole, lines, read};
use super::{Folder, FolderError, LOG, grid_of};
use crate::measured::Measured;

impl Folder {
    /// Merges shards into one run. The result is the same however the work was divided, except for
    /// the order of the log. Results merged earlier are kept.
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
        for path in cell_files(&shard.path, Some("json"))? {
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
        for path in cell_files(&shard.raw(), None)? {
            let name = path.strip_prefix(&shard.path).expect("it was found below it");
            let copy = self.path.join(name);
            if !copy.exists() {
                copy_whole(&path, &copy)?;
            }
        }
        let (theirs, ours) = (lines(&shard.path.join(LOG))?, lines(&self.path.join(LOG))?);
        let ours: BTreeSet<&str> = ours.lines().collect();
        let new = theirs.lines().filter(|line| !ours.contains(line));
        self.log(&new.map(|line| format!("{line}\n")).collect::<String>())
    }
}
