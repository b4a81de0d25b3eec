//! `bentpipe reload`, and the gateway's side of it.

use std::error::Error;
use std::io::Read;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_gateway::config::ConfigError;
use bentpipe_gateway::status::{Outcome, Reload as Request};
use bentpipe_net::command_socket::CommandSocket;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Maximum length of an answer: as many lines as a configuration has settings.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Maximum time for which a command may keep the gateway from its next one.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(5);

/// Status files of the services, and the one that `bentpipe status` reads.
const USUAL_FILES: [&str; 3] = [
    "/run/bentpipe-ground/status.json",
    "/run/bentpipe-air/status.json",
    "/run/bentpipe/status.json",
];

/// Gateway that reads its configuration again.
#[derive(clap::Args)]
pub struct Reload {
    /// File named by `file` in `[status]` of the gateway's configuration, as for `bentpipe status`
    /// [default: that of the service that runs].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Socket of the gateway with this status file.
pub fn socket_of(status_file: &Path) -> PathBuf {
    status_file.with_extension("sock")
}

pub fn run(reload: &Reload) -> Result<(), Box<dyn Error>> {
    let usual = || {
        let usual = USUAL_FILES.iter().map(Path::new);
        usual.map(socket_of).find(|socket| socket.exists())
    };
    let socket = reload.file.as_deref().map(socket_of).or_else(usual).ok_or_else(|| {
        format!(
            "no gateway with a status file at {} runs here; name the file that its [status] names. \
             A gateway without [status] reloads with SIGHUP, and its log has the outcome",
            USUAL_FILES.join(", ")
        )
    })?;
    let mut stream = StdUnixStream::connect(&socket).map_err(|error| {
        format!(
            "no gateway answers at {}: {error}; name the status file of a running gateway, as root \
             or as its user",
            socket.display()
        )
    })?;
    let mut answer = String::new();
    (&mut stream).take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err("the gateway ended before it answered: its log says why".into());
    }
    let outcome: Outcome = serde_json::from_str(&answer)
        .map_err(|error| format!("{} is not a gateway's socket: {error}", socket.display()))?;
    for line in outcome? {
        eprintln!("{line}");
    }
    Ok(())
}

/// Reads the configuration with `load` at every SIGHUP, and for every command at `socket`. An error
/// in the file is logged and changes nothing.
pub fn requests<C: Send + 'static>(
    load: impl Fn() -> Result<C, ConfigError> + Send + 'static,
    status_file: Option<&Path>,
) -> std::io::Result<mpsc::Receiver<Request<C>>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let socket = status_file.map(|file| CommandSocket::bind(&socket_of(file), "[status]"));
    let socket = socket.and_then(|socket| {
        socket.map_err(|error| tracing::warn!("`bentpipe reload` cannot be used: {error}")).ok()
    });
    let (send, again) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let command = tokio::select! {
                got = hangup.recv() => match got {
                    Some(()) => None,
                    None => return,
                },
                stream = next_command(socket.as_ref()) => Some(stream),
            };
            let Some(outcome) = reload(load(), &send).await else { return };
            if let Some(stream) = command {
                // A command that does not read loses its answer.
                let _ = timeout(MAX_ANSWER_TIME, answer(stream, &outcome)).await;
            }
        }
    });
    Ok(again)
}

/// Passes a new configuration to the gateway. Returns `None` if the gateway has ended.
async fn reload<C>(
    loaded: Result<C, ConfigError>,
    to: &mpsc::Sender<Request<C>>,
) -> Option<Outcome> {
    match loaded {
        Ok(config) => {
            let (request, outcome) = Request::new(config);
            to.send(request).await.ok()?;
            outcome.await.ok()
        }
        Err(error) => {
            let error = format!("the configuration stays as it was, for this is wrong: {error}");
            tracing::error!("{error}");
            Some(Err(error))
        }
    }
}

async fn next_command(socket: Option<&CommandSocket>) -> UnixStream {
    let Some(socket) = socket else { return std::future::pending().await };
    let refused: Outcome = Err("only root and the gateway's own user may reload".to_owned());
    // The buffer of a new connection always has room for it.
    socket.accept(|stream| drop(stream.try_write(&line_of(&refused)))).await
}

async fn answer(mut stream: UnixStream, outcome: &Outcome) -> std::io::Result<()> {
    stream.write_all(&line_of(outcome)).await?;
    stream.shutdown().await
}

fn line_of(outcome: &Outcome) -> Vec<u8> {
    serde_json::to_vec(outcome).unwrap_or_default()
}
