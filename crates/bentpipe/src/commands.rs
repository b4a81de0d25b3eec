//! Commands for a running gateway, over its socket: one line there, and an outcome back.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_flow::Target;
use bentpipe_gateway::config::ConfigError;
use bentpipe_gateway::status::{Asked, Command, Outcome};
use bentpipe_net::command_socket::CommandSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Maximum length of a line: a host name has at most 253 characters.
const MAX_LINE_BYTES: u64 = 512;

/// Maximum length of an answer: as many lines as a configuration has settings.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Maximum time for which a command may keep the gateway from its next one, before and after it.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(5);

/// Status files of the services, and the one that `bentpipe status` reads.
const USUAL_FILES: [&str; 3] = [
    "/run/bentpipe-ground/status.json",
    "/run/bentpipe-air/status.json",
    "/run/bentpipe/status.json",
];

const RELOAD: &str = "reload";
const EXPLAIN: &str = "explain ";

/// Gateway for which a command is.
#[derive(clap::Args)]
pub struct Gateway {
    /// File named by `file` in `[status]` of the gateway's configuration, as for `bentpipe status`
    /// [default: that of the service that runs].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Gateway {
    /// Lets the gateway read its configuration again.
    pub fn reload(&self) -> Result<Vec<String>, Box<dyn Error>> {
        self.ask(RELOAD)
    }

    /// Lets the gateway explain its egress for `target`.
    pub fn explain(&self, target: &Target) -> Result<Vec<String>, Box<dyn Error>> {
        self.ask(&format!("{EXPLAIN}{target}"))
    }

    fn ask(&self, line: &str) -> Result<Vec<String>, Box<dyn Error>> {
        let usual = || {
            let usual = USUAL_FILES.iter().map(Path::new);
            usual.map(socket_of).find(|socket| socket.exists())
        };
        let socket = self.file.as_deref().map(socket_of).or_else(usual).ok_or_else(|| {
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
        // A gateway that refuses this user does not read.
        let _ = writeln!(stream, "{line}");
        let mut answer = String::new();
        (&mut stream).take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
        if answer.is_empty() {
            return Err("the gateway ended before it answered: its log says why".into());
        }
        let outcome: Outcome = serde_json::from_str(&answer)
            .map_err(|error| format!("{} is not a gateway's socket: {error}", socket.display()))?;
        Ok(outcome?)
    }
}

fn socket_of(status_file: &Path) -> PathBuf {
    status_file.with_extension("sock")
}

/// Passes on every command at the socket beside `status_file`, and the configuration that `load` reads
/// at every SIGHUP. An error in the file is logged and changes nothing.
pub fn receive<C: Send + 'static>(
    load: impl Fn() -> Result<C, ConfigError> + Send + 'static,
    status_file: Option<&Path>,
) -> std::io::Result<mpsc::Receiver<Command<C>>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let socket = status_file.map(|file| CommandSocket::bind(&socket_of(file), "[status]"));
    let socket = socket.and_then(|socket| {
        socket.map_err(|error| tracing::warn!("`bentpipe reload` cannot be used: {error}")).ok()
    });
    let (send, commands) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let mut stream = tokio::select! {
                got = hangup.recv() => match got {
                    Some(()) => None,
                    None => return,
                },
                stream = next_command(socket.as_ref()) => Some(stream),
            };
            let asked = match &mut stream {
                None => read(RELOAD, &load),
                // A client that says nothing in time is told so.
                Some(stream) => match timeout(MAX_COMMAND_TIME, line_from(stream)).await {
                    Ok(Ok(line)) => read(&line, &load),
                    _ => Err("no command has arrived".to_owned()),
                },
            };
            let outcome = match asked {
                Ok(asked) => pass_on(asked, &send).await,
                Err(error) => Some(Err(error)),
            };
            let Some(outcome) = outcome else { return };
            if let Some(stream) = stream {
                // A command that does not read loses its answer.
                let _ = timeout(MAX_COMMAND_TIME, answer(stream, &outcome)).await;
            }
        }
    });
    Ok(commands)
}

/// The command in `line`.
fn read<C>(line: &str, load: &impl Fn() -> Result<C, ConfigError>) -> Result<Asked<C>, String> {
    if line == RELOAD {
        let loaded = load().map_err(|error| {
            let error = format!("the configuration stays as it was, for this is wrong: {error}");
            tracing::error!("{error}");
            error
        });
        return loaded.map(Asked::Config);
    }
    let target = line.strip_prefix(EXPLAIN).and_then(|target| target.parse().ok());
    target.map(Asked::Explain).ok_or_else(|| {
        "the gateway does not know this command: both have to be of the same release".to_owned()
    })
}

/// Passes a command to the gateway. Returns `None` if the gateway has ended.
async fn pass_on<C>(asked: Asked<C>, to: &mpsc::Sender<Command<C>>) -> Option<Outcome> {
    let (command, outcome) = Command::new(asked);
    to.send(command).await.ok()?;
    outcome.await.ok()
}

async fn next_command(socket: Option<&CommandSocket>) -> UnixStream {
    let Some(socket) = socket else { return std::future::pending().await };
    let refused: Outcome =
        Err("only root and the gateway's own user may command a gateway".to_owned());
    // The buffer of a new connection always has room for it.
    socket.accept(|stream| drop(stream.try_write(&bytes_of(&refused)))).await
}

/// Reads a line, without its end.
async fn line_from(stream: &mut UnixStream) -> std::io::Result<String> {
    let (mut line, mut stream) = (Vec::new(), stream.take(MAX_LINE_BYTES));
    while !line.ends_with(b"\n") {
        if stream.read_buf(&mut line).await? == 0 {
            break;
        }
    }
    let line = String::from_utf8(line).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(line.trim_end().to_owned())
}

async fn answer(mut stream: UnixStream, outcome: &Outcome) -> std::io::Result<()> {
    stream.write_all(&bytes_of(outcome)).await?;
    stream.shutdown().await
}

fn bytes_of(outcome: &Outcome) -> Vec<u8> {
    serde_json::to_vec(outcome).unwrap_or_default()
}
