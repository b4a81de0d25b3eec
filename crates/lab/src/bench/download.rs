//! Processor time of both ends for downloads through SOCKS5 on loopback. The result is the rate
//! that one core of each end carries.
//!
//! The systems under test take turns, so that other load on the machine affects all of them alike.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_units::BitRate;
use nix::unistd::{SysconfVar, sysconf};
use tokio::io::AsyncReadExt;
use tokio::runtime::{self, Runtime};

use super::{BenchError, failed};
use crate::experiment::table;
use crate::profile::Profile;
use crate::result::{Row, Samples};
use crate::system::pair::{Pair, PairSpec};
use crate::system::process::Process;
use crate::workload::client;

/// Target rates in Gbit/s for one core of the air gateway, and of the ground gateway.
pub const TARGETS: [f64; 2] = [6.0, 5.0];
const ENDS: [&str; 2] = ["air", "ground"];

/// Rate beyond the capacity of either end.
const RATE: BitRate = BitRate::from_bps(20_000_000_000);
/// Size of each system's first download, which is not measured: windows open and memory is mapped.
const WARM_UP_BYTES: u64 = 20_000_000;
/// Time for both ends to connect.
const PATIENCE: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 256 << 10;

/// Systems under test, and their downloads.
pub struct Plan {
    /// Builds of `bentpipe`. The first one is compared with the targets.
    pub programs: Vec<PathBuf>,
    /// Hysteria 2, if it takes part.
    pub hysteria: Option<PathBuf>,
    /// Length of a download.
    pub bytes: u64,
    /// Downloads of each system.
    pub rounds: usize,
}

/// Results.
pub struct Found {
    bytes: u64,
    systems: Vec<(String, [Samples; 2])>,
}

/// Runs the plan, with the files of the systems in `folder`.
pub fn run(plan: &Plan, folder: &Path) -> Result<Found, BenchError> {
    let origin = origin().map_err(failed("start an origin"))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed("start a client"))?;
    let mut systems = Vec::new();
    for (index, program) in plan.programs.iter().enumerate() {
        let name = if index == 0 { "bentpipe".into() } else { program.display().to_string() };
        systems.push(System::bentpipe(name, program, &folder.join(index.to_string()))?);
    }
    if let Some(program) = &plan.hysteria {
        systems.push(System::hysteria(program, &folder.join("hysteria"))?);
    }
    for system in &systems {
        system.reach(&runtime, origin)?;
    }
    let mut found: Vec<_> =
        systems.iter().map(|it| (it.name.clone(), <[Samples; 2]>::default())).collect();
    for _ in 0..plan.rounds {
        for (system, (_, samples)) in systems.iter().zip(&mut found) {
            let before = system.cpu_time()?;
            system.download(&runtime, origin, plan.bytes)?;
            for (end, after) in system.cpu_time()?.into_iter().enumerate() {
                let spent = after.saturating_sub(before[end]);
                samples[end].push(8.0 * plan.bytes as f64 / spent.as_secs_f64());
            }
        }
    }
    Ok(Found { bytes: plan.bytes, systems: found })
}

/// Both ends of a tunnel with a SOCKS5 proxy.
struct System {
    name: String,
    ends: [Process; 2],
    socks5: SocketAddr,
}

impl System {
    fn bentpipe(name: String, program: &Path, folder: &Path) -> Result<Self, BenchError> {
        fs::create_dir_all(folder).map_err(failed("make a folder"))?;
        let [socks5, peer] = addresses().map_err(failed("find free ports"))?;
        let spec = PairSpec {
            forward: RATE,
            back: RATE,
            allow: vec!["127.0.0.0/8".into()],
            ..PairSpec::new(&Profile::named("clean")?, socks5, peer)
        };
        let Pair { air, ground } =
            Pair::start(&spec, folder, Command::new(program), Command::new(program))?;
        Ok(Self { name, ends: [air, ground], socks5 })
    }

    fn hysteria(program: &Path, folder: &Path) -> Result<Self, BenchError> {
        let doing = failed::<io::Error>("start Hysteria");
        let [socks5, server] = addresses().map_err(&doing)?;
        write_hysteria(folder, socks5, server).map_err(&doing)?;
        let start = |role: &str| {
            let mut command = Command::new(program);
            command.args([role, "--disable-update-check", "-c"]);
            command.arg(folder.join(format!("{role}.yaml")));
            Process::start(command, &folder.join(format!("{role}.log"))).map_err(&doing)
        };
        let ground = start("server")?;
        Ok(Self { name: "hysteria".into(), ends: [start("client")?, ground], socks5 })
    }

    /// Waits until a short download succeeds.
    fn reach(&self, runtime: &Runtime, origin: SocketAddr) -> Result<(), BenchError> {
        let began = Instant::now();
        loop {
            match self.download(runtime, origin, WARM_UP_BYTES) {
                Err(_) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                done => return done,
            }
        }
    }

    fn download(
        &self,
        runtime: &Runtime,
        origin: SocketAddr,
        bytes: u64,
    ) -> Result<(), BenchError> {
        let receiving = receive(self.socks5, origin, bytes);
        let got = runtime.block_on(receiving).map_err(|why| BenchError::Transfer {
            doing: "download",
            why: format!("{why}\n{}\n{}", self.ends[0].tail(), self.ends[1].tail()),
        })?;
        if got == bytes { Ok(()) } else { Err(failed("download")("it ended early")) }
    }

    /// Processor time of both ends so far.
    fn cpu_time(&self) -> Result<[Duration; 2], BenchError> {
        let of = |end: usize| cpu_time(self.ends[end].id()).map_err(failed("read processor time"));
        Ok([of(0)?, of(1)?])
    }
}

/// Free addresses: one for TCP, one for UDP.
fn addresses() -> io::Result<[SocketAddr; 2]> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok([TcpListener::bind(any)?.local_addr()?, UdpSocket::bind(any)?.local_addr()?])
}

fn write_hysteria(folder: &Path, socks5: SocketAddr, server: SocketAddr) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let own = rcgen::generate_simple_self_signed(["hysteria.test".to_owned()]);
    let own = own.map_err(io::Error::other)?;
    fs::write(folder.join("cert.pem"), own.cert.pem())?;
    fs::write(folder.join("key.pem"), own.signing_key.serialize_pem())?;
    let at = folder.display();
    let text = format!(
        "listen: {server}\ntls:\n  cert: {at}/cert.pem\n  key: {at}/key.pem\n\
         auth:\n  type: password\n  password: lab\n"
    );
    fs::write(folder.join("server.yaml"), text)?;
    let text = format!(
        "server: {server}\nauth: lab\ntls:\n  sni: hysteria.test\n  insecure: true\n\
         bandwidth:\n  up: 20 gbps\n  down: 20 gbps\nsocks5:\n  listen: {socks5}\n"
    );
    fs::write(folder.join("client.yaml"), text)
}

/// A server on loopback, with its own threads. Each client requests a number of bytes: a u64,
/// little-endian.
fn origin() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            std::thread::spawn(move || serve(tcp));
        }
    });
    Ok(address)
}

fn serve(mut tcp: std::net::TcpStream) -> io::Result<()> {
    let mut wanted = [0; 8];
    io::Read::read_exact(&mut tcp, &mut wanted)?;
    let (mut left, chunk) = (u64::from_le_bytes(wanted), vec![0x5a; CHUNK_BYTES]);
    while left > 0 {
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        tcp.write_all(&chunk[..bytes])?;
        left -= bytes as u64;
    }
    Ok(())
}

async fn receive(proxy: SocketAddr, origin: SocketAddr, bytes: u64) -> io::Result<u64> {
    let mut tcp = client::socks5(proxy, origin).await?;
    tokio::io::AsyncWriteExt::write_all(&mut tcp, &bytes.to_le_bytes()).await?;
    let (mut got, mut buffer) = (0, vec![0; CHUNK_BYTES]);
    loop {
        match tcp.read(&mut buffer).await? {
            0 => return Ok(got),
            more => got += more as u64,
        }
    }
}

/// Processor time of a process so far, over all its threads: `utime` and `stime` of proc(5).
fn cpu_time(process: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The process name before the last `)` may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
    let per_s = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100);
    Ok(Duration::from_secs_f64(ticks as f64 / per_s as f64))
}

impl Found {
    /// Missed targets, one line each.
    pub fn missed(&self) -> Vec<String> {
        let Some((name, samples)) = self.systems.first() else { return Vec::new() };
        let ends = samples.iter().zip(ENDS).zip(TARGETS);
        let missed = ends.filter(|((samples, _), target)| gbits(samples) < *target);
        let line = |((samples, end), target): ((&Samples, &str), f64)| {
            format!("{name}: a core at the {end} carries {:.2} Gbit/s: {target}", gbits(samples))
        };
        missed.map(line).collect()
    }

    /// Results as rows: the rate that a core of each end carries.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (index, (name, samples)) in self.systems.iter().enumerate() {
            for (end, samples) in samples.iter().enumerate() {
                rows.push(samples.fill(Row {
                    experiment: "cpu".into(),
                    system: Some(name.clone()),
                    workload: Some(format!("download-{}", self.bytes)),
                    metric: format!("{}-per-core", ENDS[end]),
                    unit: "bit/s".into(),
                    limit: (index == 0).then(|| TARGETS[end] * 1e9),
                    ..Row::default()
                }));
            }
        }
        rows
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(name, samples): &(String, [Samples; 2])| {
            let [air, ground] = samples.each_ref().map(|samples| {
                let at = |q| percentile(samples, q) / 1e9;
                format!("{:.2}  ({:.2} – {:.2})", at(0.5), at(0.0), at(1.0))
            });
            [name.clone(), air, ground]
        };
        let lines: Vec<_> = self.systems.iter().map(line).collect();
        f.write_str(&table::groups(["system", "air", "ground"], &lines))?;
        let [air, ground] = TARGETS;
        writeln!(
            f,
            "Gbit/s for each core that works for it, of a download of {} MB by SOCKS5 on loopback: the \
             median, and the range (targets: {air} and {ground})",
            self.bytes / 1_000_000
        )
    }
}

fn percentile(samples: &Samples, q: f64) -> f64 {
    samples.known(q).unwrap_or(f64::NAN)
}

fn gbits(samples: &Samples) -> f64 {
    percentile(samples, 0.5) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_this_process_rises() {
        let before = cpu_time(std::process::id()).expect("it runs");
        let began = super::super::cpu::now();
        while super::super::cpu::since(began) < Duration::from_millis(50) {
            std::hint::black_box(began);
        }
        assert!(cpu_time(std::process::id()).expect("it runs") > before);
    }

    #[test]
    fn the_first_system_alone_is_judged() {
        let samples =
            |air: f64, ground: f64| [air, ground].map(|rate| [rate * 1e9].into_iter().collect());
        let systems = vec![("a".into(), samples(6.1, 4.9)), ("b".into(), samples(1.0, 1.0))];
        let found = Found { bytes: 1, systems };
        assert_eq!(found.missed(), ["a: a core at the ground carries 4.90 Gbit/s: 5"]);
        assert_eq!(found.rows().len(), 4);
    }
}
