//! `bentpipe init air`.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bentpipe_cli::log;
use bentpipe_cli::out::say;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transports::{Trial, TrialError, trial};
use clap::Args;

use super::files::{Files, existing, quoted};
use super::join::JoinLine;
use super::service::{AIR_UNIT, FOLDER, Service};
use crate::{bridge, keys};

/// Time for the ground to answer: 5 s for a lookup of its name, and the rest for repeated handshakes
/// over a link with a round trip of up to 2 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Port for intercepted connections, on loopback.
const TPROXY_PORT: u16 = 1081;

/// Maximum length of a line that is read from standard input.
const MAX_LINE_BYTES: u64 = 4096;

/// Arguments of `init air`.
#[derive(Args)]
pub struct AirArgs {
    /// The join line that `bentpipe init ground` printed; `-` reads it from standard input, so that
    /// no list of processes shows it.
    #[arg(value_name = "LINE")]
    line: String,
    /// Interface of the clients, whose connections are intercepted; may be repeated. Without it only
    /// the proxies on this machine are served: SOCKS5 at 127.0.0.1:1080, HTTP at 127.0.0.1:8080.
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Folder of air.toml and its key.
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Writes the configuration, tries the link, and starts the service.
pub fn run(args: &AirArgs) -> Result<(), Box<dyn Error>> {
    let line: JoinLine = read_line(&args.line)?.parse()?;
    check_time(&line)?;
    let [config, key] = ["air.toml", "air.key"].map(|name| args.folder.join(name));
    let (text, files) = (config_text(&line, &args.interfaces), Files { dry_run: args.dry_run });
    let is_there = check_existing(&config, &text, &key, &line)?;
    files.folder(&args.folder)?;
    if !key.exists() {
        files.key(&key, &line.key)?;
    }
    if args.dry_run {
        if !is_there {
            files.config(&config, &text, None)?;
        }
        eprintln!("would call the ground at {}, and report what it measured", line.ground);
        if let Some(service) = Service::of(AIR_UNIT, &args.folder) {
            eprintln!("would start {}", service.name());
        }
        return Ok(());
    }
    // Wrong arguments have to fail before the file is there.
    let checked = AirConfig::parse(&config, &text)?;
    if !is_there {
        files.config(&config, &text, None)?;
    }
    for name in args.interfaces.iter().filter(|name| !has_interface(name)) {
        eprintln!(
            "note: this machine has no interface {name:?} now; `ip link` lists them. It is intercepted \
             when it appears"
        );
    }
    for note in args.interfaces.iter().filter_map(|name| bridge::note(name)) {
        eprintln!("note: {note}");
    }
    start(&checked, &config, Service::of(AIR_UNIT, &args.folder))
}

fn read_line(written: &str) -> Result<String, Box<dyn Error>> {
    if written != "-" {
        return Ok(written.to_owned());
    }
    let mut line = String::new();
    std::io::stdin().take(MAX_LINE_BYTES).read_to_string(&mut line)?;
    Ok(line)
}

fn check_time(line: &JoinLine) -> Result<(), String> {
    let now = SystemTime::now();
    if now <= line.until {
        return Ok(());
    }
    Err(format!(
        "this join line was valid until {}, and the clock of this machine says {}\n\
         set the clock if it is wrong; otherwise remove {:?} from ground.toml and make a new line there",
        httpdate::fmt_http_date(line.until),
        httpdate::fmt_http_date(now),
        line.name
    ))
}

/// Rejects files that hold something else. Returns `true` if the configuration is there already, as
/// after an earlier try.
fn check_existing(
    config: &Path,
    text: &str,
    key: &Path,
    line: &JoinLine,
) -> Result<bool, Box<dyn Error>> {
    let other = |file: &Path, what: &str| {
        let file = file.display();
        format!(
            "{file} exists and holds {what}: move it away first, or name another folder with --folder"
        )
    };
    if key.exists() && keys::read(key)? != line.key {
        return Err(other(key, "another key").into());
    }
    match existing(config)? {
        Some(there) if there == text => Ok(true),
        Some(_) => Err(other(config, "other settings").into()),
        None => Ok(false),
    }
}

fn config_text(line: &JoinLine, interfaces: &[String]) -> String {
    let names: Vec<String> = interfaces.iter().map(|name| quoted(name)).collect();
    let tproxy = match &names[..] {
        [] => String::new(),
        names => {
            format!("tproxy = {{ port = {TPROXY_PORT}, interfaces = [{}] }}\n", names.join(", "))
        }
    };
    format!(
        "# Air gateway of {}. `bentpipe check` explains this file; docs/settings.md lists all settings.\n\
         [link]\n\
         private-key-file = \"air.key\"\n\
         peer = {}\n\
         peer-public-key = \"{}\"\n\
         # Connections outlive a restart of either gateway.\n\
         keep-flows = true\n\
         \n\
         [listen]\n\
         socks5 = \"127.0.0.1:1080\"\n\
         http-proxy = \"127.0.0.1:8080\"\n\
         {tproxy}",
        line.name,
        quoted(&line.ground.to_string()),
        line.ground_key,
    )
}

fn has_interface(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// Tries the link and starts the service. A service starts even if the ground does not answer,
/// because the radio may be out of reach now.
fn start(config: &AirConfig, file: &Path, service: Option<Service>) -> Result<(), Box<dyn Error>> {
    if let Some(service) = service.as_ref().filter(|service| service.runs()) {
        eprintln!("{} runs already, with the same settings", service.name());
        return Ok(());
    }
    log::warnings();
    eprintln!("calling the ground at {} …", config.link.peer);
    let runtime = tokio::runtime::Runtime::new()?;
    let tried = runtime.block_on(trial(config, PATIENCE));
    if let Ok(found) = &tried {
        say!("{}", measured(found));
    }
    match service {
        Some(service) => service.start()?,
        None => eprintln!("Start the gateway: bentpipe air --config {}", file.display()),
    }
    tried.map(drop).map_err(|error| explain(&error, config).into())
}

fn measured(found: &Trial) -> String {
    let [up_after, round_trip] =
        [found.up_after, found.round_trip].map(|time| 1e3 * time.as_secs_f64());
    format!(
        "The link is up after {up_after:.1} ms, with a round trip of {round_trip:.1} ms. Its rate is \
         learned from the traffic."
    )
}

fn explain(error: &TrialError, config: &AirConfig) -> String {
    match error {
        TrialError::Silent { peer, .. } => format!(
            "{error}. The files are written, and the gateway keeps calling when it runs. Check in this \
             order:\n\
             1. Does the ground run? On it: `systemctl status bentpipe-ground`.\n\
             2. Was it restarted after the aircraft was added? It has to know the key {}.\n\
             3. Is UDP port {} open on the way, in the firewall of the ground's provider too?\n\
             4. Does this machine reach the Internet over the radio: `ping {}`?",
            config.link.private_key.public(),
            peer.port,
            peer.host
        ),
        error => format!("{error}. The files are written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn line() -> JoinLine {
        let key = |byte| bentpipe_link::SecretKey::from_bytes([byte; 32]);
        JoinLine {
            ground: "[2001:db8::7]:4500".parse().unwrap(),
            ground_key: key(7).public(),
            name: "boat-1".to_owned(),
            key: key(8),
            until: UNIX_EPOCH + Duration::from_secs(1_000_000_000),
        }
    }

    #[test]
    fn the_configuration_is_what_the_gateway_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (file, line) = (folder.path().join("air.toml"), line());
        keys::write(&folder.path().join("air.key"), &line.key.to_base64()).unwrap();
        let config = |interfaces: &[&str]| {
            let interfaces: Vec<String> = interfaces.iter().map(|name| (*name).into()).collect();
            AirConfig::parse(&file, &config_text(&line, &interfaces))
        };
        let plain = config(&[]).unwrap();
        assert_eq!(plain.link.peer, line.ground);
        assert_eq!(plain.link.peer_public_key, line.ground_key);
        assert!(plain.listen.tproxy.is_none() && plain.listen.socks5.is_some());
        let both = config(&["br-lan", "eth1.30"]).unwrap().listen.tproxy.unwrap();
        assert_eq!(both.interfaces, ["br-lan", "eth1.30"]);
        let wrong = config(&["br\"lan\n[dns]"]).unwrap_err().to_string();
        assert!(wrong.contains("is not the name of a network interface"), "{wrong}");
    }

    #[test]
    fn a_line_ends_at_its_time() {
        let said = check_time(&line()).unwrap_err();
        assert!(said.contains("valid until Sun, 09 Sep 2001 01:46:40 GMT"), "{said}");
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(check_time(&JoinLine { until: later, ..line() }).is_ok());
    }
}
