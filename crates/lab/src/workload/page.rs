//! Loading a page as browsers do over HTTP/1.1: the document, then its objects on up to six
//! connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::content;
use super::fetch::{Client, Connection, FetchError};

/// Connections to one host: what Chromium, Firefox and Safari open.
const CONNECTIONS: usize = 6;

/// Loads a page of `objects` inline objects: from before connecting to the last byte of all.
pub async fn load(client: &Client, objects: usize) -> Result<Duration, FetchError> {
    let began = Instant::now();
    let mut first = client.connect().await?;
    first.get(&format!("/page/{objects}")).await?;
    let waiting: Arc<Mutex<VecDeque<String>>> =
        Arc::new(Mutex::new(content::page_paths(objects).collect()));
    let mut loading = JoinSet::new();
    loading.spawn(drain(first, waiting.clone()));
    for _ in 1..CONNECTIONS.min(objects) {
        let (client, waiting) = (*client, waiting.clone());
        loading.spawn(async move { drain(client.connect().await?, waiting).await });
    }
    while let Some(done) = loading.join_next().await {
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    }
    Ok(began.elapsed())
}

/// Asks for what waits, one after the other.
async fn drain(
    mut connection: Connection,
    waiting: Arc<Mutex<VecDeque<String>>>,
) -> Result<(), FetchError> {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match next {
            Some(path) => connection.get(&path).await?,
            None => return Ok(()),
        }
    }
}
