//! URLs of a run's files, relative to the page.

use std::path::{Component, Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::folder::Folder;
use crate::measured::Measured;

/// Characters that are not escaped in a path segment.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Files of a run to which a report links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    folder: String,
    has_cells: bool,
}

impl Files {
    /// Files of the run in `folder`, for a page in the folder `page`. Both are absolute paths
    /// without symbolic links. `has_cells` is `true` if each cell has a file, because a copy of a
    /// run may have only its tables.
    pub fn new(folder: &Path, page: &Path, has_cells: bool) -> Self {
        let parts = |path: &Path| path.components().map(part).collect::<Vec<_>>();
        let (to, from) = (parts(folder), parts(page));
        let common = to.iter().zip(&from).take_while(|(one, two)| one == two).count();
        let up = from[common..].iter().map(|_| "../".to_owned());
        let down = to[common..].iter().map(|part| format!("{part}/"));
        Self { folder: up.chain(down).collect(), has_cells }
    }

    /// Returns `true` if each cell has a file.
    pub(super) fn has_cells(&self) -> bool {
        self.has_cells
    }

    /// URL of the file with a cell's values: its own file, or otherwise the table of its grid.
    pub(super) fn of(&self, measured: &Measured) -> String {
        let Measured { paper, grid, cell, .. } = measured;
        let path = match self.has_cells {
            true => Folder::cell_file(paper, grid, cell),
            false => Folder::table_file(paper, grid),
        };
        // Percent signs in the file's name are escaped once more.
        format!("{}{}", self.folder, path.to_string_lossy().replace('%', "%25"))
    }
}

fn part(component: Component<'_>) -> String {
    utf8_percent_encode(&component.as_os_str().to_string_lossy(), PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Cell;

    #[test]
    fn a_page_leads_to_its_run_wherever_that_is() {
        let cell = Cell::of([("protocol", "http/1.1")]);
        let (paper, grid) = ("spdy".to_owned(), "sites".to_owned());
        let measured = Measured { paper, grid, cell, rows: Vec::new() };
        let of = |folder: &str, page: &str, has_cells| {
            Files::new(Path::new(folder), Path::new(page), has_cells).of(&measured)
        };
        let cell = "cells/spdy/sites/protocol=http%252F1.1.json";
        assert_eq!(of("/a/run", "/a/run", true), cell);
        assert_eq!(of("/a/run", "/a", true), format!("run/{cell}"));
        assert_eq!(of("/a/my run", "/b/c", true), format!("../../a/my%20run/{cell}"));
        assert_eq!(of("/a/run", "/a/run", false), "tables/spdy.sites.parquet");
    }
}
