//! The receiver of records: batches of probes as files, `FOLDER/SESSION/FIRST-LAST-RECORDS.jsonl.zst`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bentpipe_probe::upload::{Batch, Held, MAX_BODY, Name, Receipt, Verdict, digest, is_session};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::token;

/// Maximum number of batches that are checked and written at a time: 4 × 16 MB of text and values.
const MAX_UPLOADS: usize = 4;

/// Space of the disk that stays free.
const MIN_FREE: u128 = 1 << 30;

/// End of the name of a batch, and of a file that is not complete.
const BATCH: &str = ".jsonl.zst";
const TEMPORARY: &str = ".tmp";

/// Returns `true` for a path of uploads.
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/records/")
}

/// The folder of batches.
pub struct Uploads {
    folder: PathBuf,
    /// SHA-256 of the expected field. Comparing it tells nothing about the token by its time.
    authorization: String,
    held: Mutex<Held>,
    permits: Semaphore,
    _lock: File,
}

/// A request for a session's last receipt, or with a batch.
enum Wanted {
    Last(String),
    Put(Name, String),
}

impl Uploads {
    /// Opens the folder, and removes files that a kill left incomplete.
    pub fn open(folder: &Path, token: &Path) -> Result<Arc<Self>, Error> {
        let authorization = digest(format!("Bearer {}", token::read(token)?).as_bytes());
        let fault = |error: io::Error| Error::Input { file: folder.into(), why: error.to_string() };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fault)?;
        let lock = File::create(folder.join(".lock")).map_err(fault)?;
        lock.try_lock().map_err(|_| Error::Input {
            file: folder.into(),
            why: "another origin uses the folder, or it cannot be locked".into(),
        })?;
        let held = scan(folder).map_err(fault)?.into();
        let permits = Semaphore::new(MAX_UPLOADS);
        Ok(Arc::new(Self { folder: folder.into(), authorization, held, permits, _lock: lock }))
    }

    /// Answers a request. `is_private` is set if nobody on the way can read it.
    pub async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        is_private: bool,
    ) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        // Refusals are sent after the body, so that they are not lost in a reset.
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return plain(StatusCode::PAYLOAD_TOO_LARGE);
            }
            Err(_) => return plain(StatusCode::BAD_REQUEST),
        };
        if !is_private {
            return text(StatusCode::FORBIDDEN, "uploads need TLS");
        }
        let field = head.headers.get(AUTHORIZATION).map_or(&b""[..], |field| field.as_bytes());
        if digest(field) != self.authorization {
            return plain(StatusCode::UNAUTHORIZED);
        }
        let Some(wanted) = wanted(&head.method, head.uri.path()) else {
            return text(StatusCode::BAD_REQUEST, "not the path of a session or of a batch");
        };
        let Ok(_permit) = self.permits.try_acquire() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE);
        };
        let uploads = Arc::clone(&self);
        let answer = tokio::task::spawn_blocking(move || match wanted {
            Wanted::Last(session) => uploads.last(&session),
            Wanted::Put(name, digest) => uploads.put(&Batch { name, digest, body: body.into() }),
        });
        match answer.await.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(response) => response,
            Err(error) => {
                eprintln!("bentpipe probe: {}: {error}", self.folder.display());
                plain(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    fn last(&self, session: &str) -> io::Result<Response<Full<Bytes>>> {
        let held = self.held.lock();
        let Some((name, total)) = held.last(session) else {
            return Ok(plain(StatusCode::NO_CONTENT));
        };
        let sha256 = digest(&fs::read(self.file(&name))?);
        Ok(receipt(name, sha256, total))
    }

    fn put(&self, batch: &Batch) -> io::Result<Response<Full<Bytes>>> {
        if let Err(why) = batch.check() {
            return Ok(text(StatusCode::UNPROCESSABLE_ENTITY, &why.to_string()));
        }
        let mut held = self.held.lock();
        let bytes = batch.body.len() as u64;
        let total = match held.verdict(&batch.name, bytes) {
            Verdict::There { total }
                if digest(&fs::read(self.file(&batch.name))?) == batch.digest =>
            {
                total
            }
            Verdict::There { .. } | Verdict::Conflict => return Ok(plain(StatusCode::CONFLICT)),
            Verdict::Full(why) => return Ok(text(StatusCode::INSUFFICIENT_STORAGE, why)),
            Verdict::Next { total } => {
                let disk = statvfs(&self.folder)?;
                let free = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
                if free < MIN_FREE {
                    return Ok(text(
                        StatusCode::INSUFFICIENT_STORAGE,
                        "the receiver's disk is full",
                    ));
                }
                self.write(batch)?;
                held.add(&batch.name, bytes);
                total
            }
        };
        Ok(receipt(batch.name.clone(), batch.digest.clone(), total))
    }

    fn file(&self, name: &Name) -> PathBuf {
        self.folder.join(&name.session).join(format!("{name}{BATCH}"))
    }

    /// Writes a batch so that it is on the disk in full, or not at all.
    fn write(&self, batch: &Batch) -> io::Result<()> {
        let session = self.folder.join(&batch.name.session);
        match DirBuilder::new().mode(0o700).create(&session) {
            Ok(()) => {
                let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
                // The next attempt has to sync it.
                synced.inspect_err(|_| drop(fs::remove_dir(&session)))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let temporary = session.join(format!("{}{TEMPORARY}", batch.name));
        let file = self.file(&batch.name);
        let write = || {
            let mut options = OpenOptions::new();
            let mut opened =
                options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            opened.write_all(&batch.body)?;
            opened.sync_all()?;
            fs::rename(&temporary, &file)?;
            File::open(&session)?.sync_all()
        };
        let written = write();
        if written.is_err() {
            // Without a receipt the batch comes again, maybe with other records.
            let _ = (fs::remove_file(&temporary), fs::remove_file(&file));
        }
        written
    }
}

fn wanted(method: &Method, path: &str) -> Option<Wanted> {
    let mut parts = path.strip_prefix("/records/")?.split('/');
    let (session, range, sha256) = (parts.next()?, parts.next(), parts.next());
    match (range, sha256, parts.next()) {
        (None, None, None) if *method == Method::GET && is_session(session) => {
            Some(Wanted::Last(session.into()))
        }
        (Some(range), Some(sha256), None) if *method == Method::PUT => {
            Some(Wanted::Put(Name::parse(session, range)?, sha256.into()))
        }
        _ => None,
    }
}

/// Reads the names of all batches, and syncs their folders, because a killed receiver may not have done
/// so. Other files are left alone.
fn scan(folder: &Path) -> io::Result<Held> {
    let mut held = Held::default();
    for session in fs::read_dir(folder)? {
        let session = session?;
        let id = session.file_name().to_string_lossy().into_owned();
        if !is_session(&id) || !session.file_type()?.is_dir() {
            continue;
        }
        let mut batches = Vec::new();
        for file in fs::read_dir(session.path())? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let named = |end| name.strip_suffix(end).and_then(|range| Name::parse(&id, range));
            if named(TEMPORARY).is_some() {
                fs::remove_file(file.path())?;
            } else if let Some(batch) = named(BATCH) {
                batches.push((batch, file.metadata()?.len()));
            }
        }
        File::open(session.path())?.sync_all()?;
        batches.sort_by_key(|(name, _)| name.first);
        batches.iter().for_each(|(name, bytes)| held.add(name, *bytes));
    }
    File::open(folder)?.sync_all()?;
    Ok(held)
}

fn receipt(name: Name, sha256: String, total: u64) -> Response<Full<Bytes>> {
    let receipt = Receipt { name, sha256, total };
    text(StatusCode::OK, &serde_json::to_string(&receipt).unwrap_or_default())
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    text(status, "")
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.to_owned().into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
