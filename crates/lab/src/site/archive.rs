//! Sites on disk: a folder with `site.toml`, which lists everything, and a file for each body that was
//! recorded, `body/NUMBER`. Bodies that follow from the rule take no room.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};

use super::{Domain, Kind, Recorded, Resource, Site};

/// The most resources of a site: more than twice the requests of the 90th percentile of the HTTP
/// Archive.
pub const MAX_RESOURCES: usize = 1024;
/// The most domains of a site: four sockets each, 1024 in all.
pub const MAX_DOMAINS: usize = 256;
/// The longest body: a recorded film is not replayed.
pub const MAX_BODY_BYTES: u64 = 32 << 20;
/// All recorded bodies of a site together: what reading one may take of memory.
pub const MAX_SITE_BYTES: u64 = 256 << 20;
/// The longest index: 1024 resources of 2 KB, and as much again for what surrounds them.
const MAX_INDEX_BYTES: u64 = 4 << 20;
/// The longest path and query.
pub(super) const MAX_PATH_BYTES: usize = 2048;
/// Version of the folder's format.
const FORMAT: u32 = 1;
const INDEX: &str = "site.toml";
const BODIES: &str = "body";

/// A folder could not be written, or holds no site.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// Action that failed.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The index is no TOML, or not of this kind.
    #[error("{} is no index of a site: {source}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// Place and cause.
        source: Box<toml::de::Error>,
    },
    /// The index says what cannot be.
    #[error("{}: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Fault, and valid alternatives.
        why: String,
    },
    /// A body is not what the index says.
    #[error("{} has {found} bytes, and the index says {expected}", path.display())]
    Length {
        /// The body's file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// That of the index.
        expected: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Index {
    format: u32,
    name: String,
    visit: u64,
    domain: Vec<NamedDomain>,
    resource: Vec<Listed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedDomain {
    name: String,
    address: IpAddr,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Listed {
    domain: usize,
    path: String,
    bytes: u64,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<usize>,
    /// With it, the body was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
}

impl Site {
    /// Writes the site to `folder`, which is made if it is not there. Whatever of an older site is in
    /// the way is overwritten.
    pub fn write(&self, folder: &Path) -> Result<(), ArchiveError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| ArchiveError::File { doing, path, source }
        };
        let bodies = folder.join(BODIES);
        fs::create_dir_all(&bodies).map_err(failed("make the folder", &bodies))?;
        for (number, resource) in self.resources.iter().enumerate() {
            if let Some(recorded) = &resource.recorded {
                let path = bodies.join(number.to_string());
                fs::write(&path, &recorded.body).map_err(failed("write", &path))?;
            }
        }
        let index = Index {
            format: FORMAT,
            name: self.name.clone(),
            visit: self.visit,
            domain: (self.domains.iter())
                .map(|it| NamedDomain { name: it.name.clone(), address: it.address })
                .collect(),
            resource: self.resources.iter().map(Listed::of).collect(),
        };
        let path = folder.join(INDEX);
        let text = toml::to_string(&index).map_err(|error| ArchiveError::Wrong {
            path: path.clone(),
            why: format!("cannot be written: {error}"),
        })?;
        // Last, so that a folder with an index has all bodies.
        fs::write(&path, text).map_err(failed("write", &path))
    }

    /// Reads the site in `folder`: at most [`MAX_RESOURCES`] resources, whose recorded bodies have at
    /// most [`MAX_BODY_BYTES`] each and [`MAX_SITE_BYTES`] together.
    pub fn read(folder: &Path) -> Result<Self, ArchiveError> {
        let path = folder.join(INDEX);
        let text = String::from_utf8(file(&path, MAX_INDEX_BYTES)?)
            .map_err(|_| wrong(&path, "it is no text in UTF-8"))?;
        let index: Index = toml::from_str(&text)
            .map_err(|source| ArchiveError::Index { path: path.clone(), source: source.into() })?;
        index.check().map_err(|why| wrong(&path, why))?;
        let recorded = index.resource.iter().filter(|it| it.content_type.is_some());
        let all = recorded.fold(0_u64, |all, it| all.saturating_add(it.bytes));
        if all > MAX_SITE_BYTES {
            return Err(wrong(&path, format!("{all} bytes of bodies: {MAX_SITE_BYTES} are taken")));
        }
        let body = |(number, listed): (usize, Listed)| {
            let path = folder.join(BODIES).join(number.to_string());
            listed.with_body(&path)
        };
        Ok(Self {
            name: index.name,
            visit: index.visit,
            domains: (index.domain.into_iter())
                .map(|it| Domain { name: it.name, address: it.address })
                .collect(),
            resources: index
                .resource
                .into_iter()
                .enumerate()
                .map(body)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn wrong(path: &Path, why: impl Into<String>) -> ArchiveError {
    ArchiveError::Wrong { path: path.to_owned(), why: why.into() }
}

/// Content of a file of at most `most` bytes.
fn file(path: &Path, most: u64) -> Result<Vec<u8>, ArchiveError> {
    use io::Read;
    let failed = |source| ArchiveError::File { doing: "read", path: path.to_owned(), source };
    // A pipe or a device in its place would never end, or never begin.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(wrong(path, "it is no file"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(wrong(path, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

impl Listed {
    fn of(resource: &Resource) -> Self {
        let recorded = resource.recorded.as_ref();
        Self {
            domain: resource.domain,
            path: resource.path.clone(),
            bytes: resource.bytes,
            kind: resource.kind,
            after: resource.after,
            content_type: recorded.map(|it| it.content_type.clone()),
            content_encoding: recorded.and_then(|it| it.content_encoding.clone()),
        }
    }

    fn with_body(self, path: &Path) -> Result<Resource, ArchiveError> {
        let recorded = match self.content_type {
            None => None,
            Some(content_type) => {
                let body = file(path, MAX_BODY_BYTES)?;
                let (found, expected) = (body.len() as u64, self.bytes);
                if found != expected {
                    return Err(ArchiveError::Length { path: path.to_owned(), found, expected });
                }
                let content_encoding = self.content_encoding;
                Some(Recorded { body: body.into(), content_type, content_encoding })
            }
        };
        Ok(Resource {
            domain: self.domain,
            path: self.path,
            bytes: self.bytes,
            kind: self.kind,
            after: self.after,
            recorded,
        })
    }
}

impl Index {
    /// Checks that a site can be made of it.
    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("format {}: this program reads {FORMAT}", self.format));
        }
        let resources = self.resource.len();
        if !(1..=MAX_RESOURCES).contains(&resources) {
            return Err(format!("{resources} resources: 1 to {MAX_RESOURCES} are taken"));
        }
        // Each has sockets of its own.
        let domains = self.domain.len();
        if !(1..=MAX_DOMAINS).contains(&domains) {
            return Err(format!("{domains} domains: 1 to {MAX_DOMAINS} are taken"));
        }
        let mut seen = HashSet::new();
        for NamedDomain { name, .. } in &self.domain {
            if DnsName::try_from(name.as_str()).is_err() || !seen.insert(name) {
                return Err(format!("the domain {name:?} is no name, or stands here twice"));
            }
        }
        let mut seen = HashSet::new();
        for (number, resource) in self.resource.iter().enumerate() {
            let why = resource.check(number, self.domain.len()).err();
            let twice = || format!("{} stands here twice", resource.path);
            let why = why.or_else(|| (!seen.insert((resource.domain, &resource.path))).then(twice));
            if let Some(why) = why {
                return Err(format!("resource {number}: {why}"));
            }
        }
        Ok(())
    }
}

impl Listed {
    fn check(&self, number: usize, domains: usize) -> Result<(), String> {
        if self.domain >= domains {
            return Err(format!("there is no domain {}", self.domain));
        }
        let is_path = self.path.starts_with('/')
            && self.path.len() <= MAX_PATH_BYTES
            && self.path.parse::<PathAndQuery>().is_ok_and(|it| it.as_str() == self.path);
        if !is_path {
            return Err(format!("{:?} is no path of {MAX_PATH_BYTES} bytes at most", self.path));
        }
        if self.bytes > MAX_BODY_BYTES {
            return Err(format!("{} bytes: {MAX_BODY_BYTES} are taken", self.bytes));
        }
        match self.after {
            None if number == 0 => Ok(()),
            Some(after) if after < number => Ok(()),
            None => Err("it is found nowhere: after is the number of a resource before it".into()),
            Some(after) => Err(format!("it is found in {after}, which is not before it")),
        }
    }
}

#[cfg(test)]
mod tests;
