//! `bentpipe init ground`.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bentpipe_cli::out::say;
use bentpipe_flow::{Host, Target};
use bentpipe_gateway::config::GroundConfig;
use bentpipe_link::SecretKey;
use bentpipe_units::Span;
use clap::Args;

use super::files::{Files, existing, quoted};
use super::join::{JoinLine, check_name};
use super::service::{FOLDER, GROUND_UNIT, Service};
use crate::keys;

/// Port of a new ground gateway.
const PORT: u16 = 4500;

/// Destinations whose routes show this machine's own addresses. No packet is sent to them.
const SOMEWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Arguments of `init ground`.
#[derive(Args)]
pub struct GroundArgs {
    /// Name of the aircraft, ship or place, for the log.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Address of this machine as aircraft reach it: a host name or an IP address; with another
    /// port if something forwards it [default: this machine's own address, if it is public].
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Option<String>,
    /// Validity of the join line.
    #[arg(long, value_name = "TIME", default_value = "24 h")]
    valid: Span,
    /// Folder of ground.toml and its key.
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Adds the aircraft and prints its join line.
pub fn run(args: &GroundArgs) -> Result<(), Box<dyn Error>> {
    check_name(&args.name)?;
    let [config, key] = ["ground.toml", "ground.key"].map(|name| args.folder.join(name));
    let before = existing(&config)?;
    let parsed = before.as_deref().map(|text| GroundConfig::parse(&config, text)).transpose()?;
    let port = listening_port(parsed.as_ref(), &config)?;
    let ground = reached_at(args.address.as_deref(), port)?;
    if let Some(parsed) = &parsed {
        check_new(parsed, &args.name, &config)?;
    }
    let own = match &parsed {
        Some(parsed) => parsed.link.private_key.clone(),
        None if key.exists() => keys::read(&key)?,
        None => keys::fresh()?,
    };
    let aircraft = keys::fresh()?;
    let until = SystemTime::now()
        .checked_add(args.valid.duration())
        .ok_or("--valid is too long: write \"24 h\", say")?;
    let text = with_aircraft(before.as_deref(), args, &aircraft, until);

    let files = Files { dry_run: args.dry_run };
    files.folder(&args.folder)?;
    if parsed.is_none() && !key.exists() {
        files.key(&key, &own)?;
    }
    if !args.dry_run {
        GroundConfig::parse(&config, &text)?;
    }
    files.config(&config, &text, before.as_deref())?;
    serve(args, &config, parsed.is_some())?;
    if args.dry_run {
        eprintln!("would print the join line of {}, for {ground}", args.name);
        return Ok(());
    }
    let line = JoinLine {
        ground,
        ground_key: own.public(),
        name: args.name.clone(),
        key: aircraft,
        until,
    };
    tell(&line);
    Ok(())
}

/// Port of the radio transport.
fn listening_port(config: Option<&GroundConfig>, file: &Path) -> Result<u16, String> {
    match config.map(|config| config.link.listen) {
        None => Ok(PORT),
        Some(Some(address)) => Ok(address.port()),
        Some(None) => Err(format!(
            "{} does not serve the radio transport: write listen = \"[::]:{PORT}\" under [link]",
            file.display()
        )),
    }
}

fn check_new(config: &GroundConfig, name: &str, file: &Path) -> Result<(), String> {
    if config.aircraft.iter().all(|aircraft| aircraft.name != name) {
        return Ok(());
    }
    Err(format!(
        "{} has an aircraft {name:?} already, and its join line cannot be shown again\n\
         choose another name, or remove its [[aircraft]] from the file and run this command again",
        file.display()
    ))
}

/// Address of the ground as aircraft reach it.
fn reached_at(written: Option<&str>, port: u16) -> Result<Target, String> {
    let Some(written) = written else {
        return own_address(port);
    };
    let wrong = |_| format!("{written:?} is not an address: write a host name or an IP address");
    let target = match written.parse::<Target>() {
        Ok(target) => target,
        Err(_) => Target { host: written.parse::<Host>().map_err(wrong)?, port },
    };
    let is_nowhere = matches!(target.host, Host::Ip(ip) if ip.is_unspecified());
    if target.port == 0 || is_nowhere {
        return Err(format!("nothing can be sent to {target}: write the address of this machine"));
    }
    Ok(target)
}

/// This machine's own address, if it is public.
fn own_address(port: u16) -> Result<Target, String> {
    let own: Vec<IpAddr> = SOMEWHERE.iter().filter_map(|to| source_towards(to)).collect();
    if let Some(public) = own.iter().find(|ip| is_public(**ip)) {
        return Ok(SocketAddr::new(*public, port).into());
    }
    let found = match &own[..] {
        [] => "it has no route to the Internet".to_owned(),
        own => {
            let own: Vec<String> = own.iter().map(IpAddr::to_string).collect();
            format!("its own is {}, which is private", own.join(" and "))
        }
    };
    Err(format!(
        "the address at which aircraft reach this machine is not known: {found}\n\
         write it: --address ground.example.net, or the public IP address that is forwarded here"
    ))
}

/// Source address of packets to `destination`.
fn source_towards(destination: &str) -> Option<IpAddr> {
    let to: SocketAddr = destination.parse().ok()?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns whether an aircraft elsewhere may be able to reach the address.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            // 100.64.0.0/10: RFC 6598.
            let is_shared = a == 100 && b & 0xc0 == 64;
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared)
        }
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
    }
}

/// The configuration with the aircraft at its end.
fn with_aircraft(
    before: Option<&str>,
    args: &GroundArgs,
    aircraft: &SecretKey,
    until: SystemTime,
) -> String {
    let before = before.map_or_else(
        || {
            format!(
                "# Ground gateway. `bentpipe check` explains this file; docs/settings.md lists all \
                 settings.\n[link]\nprivate-key-file = \"ground.key\"\nlisten = \"[::]:{PORT}\"\n"
            )
        },
        |text| if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") },
    );
    format!(
        "{before}\n# Its join line is valid until {}.\n[[aircraft]]\nname = {}\npublic-key = \"{}\"\n",
        httpdate::fmt_http_date(until),
        quoted(&args.name),
        aircraft.public()
    )
}

/// Starts the service, or says what to do. `is_known` is `true` if there was a configuration.
fn serve(args: &GroundArgs, config: &Path, is_known: bool) -> Result<(), Box<dyn Error>> {
    let (name, service) = (&args.name, Service::of(GROUND_UNIT, &args.folder));
    match service {
        Some(service) if service.runs() && args.dry_run => {
            eprintln!("would let {} read its configuration again", service.name());
        }
        Some(service) if service.runs() => service.reload(name)?,
        Some(service) if args.dry_run => eprintln!("would start {}", service.name()),
        Some(service) => service.start()?,
        None if is_known => eprintln!(
            "A gateway that runs already learns of {name} by SIGHUP or `bentpipe reload`, which \
             interrupts nobody. Otherwise start it: bentpipe ground --config {}",
            config.display()
        ),
        None => eprintln!("Start the gateway: bentpipe ground --config {}", config.display()),
    }
    Ok(())
}

/// Prints the line, and what to do with it.
fn tell(line: &JoinLine) {
    eprintln!(
        "UDP port {} of this machine has to be open to {}.\n\n\
         Until {}, on {1}:\n\n    \
         bentpipe init air 'LINE' --interface br-lan\n\n\
         LINE is the next line. Use it once and show it to nobody: it holds the private key of {1}.\n",
        line.ground.port,
        line.name,
        httpdate::fmt_http_date(line.until),
    );
    say!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_public_or_not() {
        for (ip, public) in [
            ("192.0.2.7", true),
            ("100.128.0.1", true),
            ("2001:db8::1", true),
            ("10.0.0.5", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("100.64.0.1", false),
            ("169.254.1.1", false),
            ("127.0.0.1", false),
            ("::1", false),
            ("fe80::1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_public(ip.parse().unwrap()), public, "{ip}");
        }
    }

    #[test]
    fn an_address_is_a_name_or_an_ip_with_or_without_a_port() {
        for (written, target) in [
            ("ground.example.net", "ground.example.net:4500"),
            ("ground.example.net:9", "ground.example.net:9"),
            ("192.0.2.7", "192.0.2.7:4500"),
            ("192.0.2.7:9", "192.0.2.7:9"),
            ("2001:db8::7", "[2001:db8::7]:4500"),
            ("[2001:db8::7]:9", "[2001:db8::7]:9"),
        ] {
            assert_eq!(reached_at(Some(written), PORT).unwrap().to_string(), target);
        }
        for wrong in
            ["", "a b", "0.0.0.0", "::", "ground.example.net:0", "https://ground.example.net"]
        {
            assert!(reached_at(Some(wrong), PORT).is_err(), "{wrong:?}");
        }
    }
}
