//! A page of 60 objects on three levels in real Chromium over HTTPS. The name is the operator's,
//! for which there is a certificate, with and without cabin services; or it is a foreign one.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bentpipe_gateway::config::AirSplitHttp;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::browser::{self, Cabin, Choice};
use super::report::{Goal, Report};
use super::table::{align, seconds, table, written};
use crate::emu::SERVER;
use crate::result::{Percentile, Row, Samples};
use crate::scratch::no_folder;
use crate::system::pair::PassedQuic;
use crate::traffic::ClassLimits;
use crate::traffic::emu::fault::Fault;
use crate::traffic::emu::gateways::{Gateways, More};
use crate::workload::levels;
use crate::workload::secure::{Identity, PORT, SecureOrigin, Version};

/// The operator's name.
const SITE: &str = "site.test";
/// A foreign name.
const FOREIGN: &str = "foreign.test";

/// Maximum time for the air gateway to remove expired objects.
const LOOK: Duration = Duration::from_secs(2);

/// Prefix of the goals for pages of the operator's name. The origin's HTTP version follows.
pub const WITH_SERVICES: &str = "operator's name ÷ tunnel, origin with ";
/// Maximum ratio of load times with cabin services to those without, for the operator's name.
const MAX_WITH_SERVICES: f64 = 0.4;
/// Maximum load time for the operator's name, as a multiple of a round trip plus the page's bytes
/// at the rate that remains after losses.
const MAX_OVER_BOUND: f64 = 1.30;
/// Like the first maximum, for a foreign name. It exceeds 1 because each run has different losses.
const MAX_FOREIGN: f64 = 1.15;
/// Minimum fraction of the objects of new pages that were pushed and used.
const MIN_USED: f64 = 0.9;

/// Owner of the name, and the gateways' services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Any name, through gateways without cabin services.
    Tunnel,
    /// A foreign name, through gateways with cabin services.
    Foreign,
    /// The operator's name, through gateways with cabin services.
    Own,
}

/// Results of a case.
struct Found {
    case: Case,
    version: Version,
    /// Loads of new pages.
    loads: Samples,
    /// Loads of the same pages by a second passenger.
    again: Samples,
    /// Pushed objects that the browser requested, and those that it did not request.
    pushed: [u64; 2],
    /// Fraction of objects, requested without the browser, that arrived unchanged under the
    /// origin's certificate.
    untouched: Samples,
}

/// Runs all cases one after the other, with origins for each of `versions`, and their files below
/// `folder`. Each load is of a new page.
pub fn run(choice: &Choice, versions: &[Version], folder: &Path) -> anyhow::Result<Report> {
    let mut found = Vec::new();
    for version in versions.iter().copied() {
        for case in [Case::Tunnel, Case::Foreign, Case::Own] {
            let folder = folder.join(format!("{}-{version:?}", case.name()));
            std::fs::create_dir(&folder).map_err(no_folder)?;
            found.push(one(choice, (case, version), &folder)?);
        }
    }
    Ok(Report {
        text: text(choice, &found),
        rows: found.iter().flat_map(|found| found.rows(choice)).collect(),
        goals: goals(choice, versions, &found),
    })
}

fn one(choice: &Choice, (case, version): (Case, Version), folder: &Path) -> anyhow::Result<Found> {
    let cabin = Cabin::new(choice, choice.seed)?;
    let testbed = &cabin.testbed;
    let server = IpAddr::from(SERVER.v4);
    let origin = SecureOrigin::start_for(&testbed.server, server, &[SITE, FOREIGN], version)?;
    let on_board = Identity::new(&testbed.air, &[SITE])?;
    let more =
        if case == Case::Tunnel { More::default() } else { services(&on_board, &origin, folder)? };
    let limits = ClassLimits::default();
    let gateways =
        Gateways::start_with(testbed, &choice.profile, &limits, PassedQuic::Refused, more, folder)?;
    gateways.wait()?;
    let name = case.site();
    // The browser trusts only one key, so a page that loads was served under that certificate.
    let key = if case == Case::Own { &on_board.key_hash } else { &origin.identity.key_hash };
    let flags = [browser::flags("*", key), vec!["--disable-quic".to_owned()]].concat();
    let mut found = Found::new(case, version);
    for run in 0..choice.runs {
        let url = format!("https://{name}{}", levels::document(&run.to_string()));
        let load =
            |times: &str| cabin.load(&flags, &url, &folder.join(format!("chromium-{run}-{times}")));
        found.loads.0.push(load("first")?);
        if case == Case::Own {
            found.again.0.push(load("second")?);
        }
    }
    if case != Case::Own {
        let all = testbed.client.block_on(async || untouched(name, &origin.identity).await)?;
        found.untouched = all?.into_iter().map(|same| f64::from(u8::from(same))).collect();
    }
    cabin.check()?;
    if case == Case::Own {
        // Objects that nobody requested are counted when they expire.
        thread::sleep(Duration::from(AirSplitHttp::default().keep) + LOOK);
    }
    let counted = &gateways.counted;
    found.pushed = [counted.objects_used.get(), counted.objects_unused.get()];
    Ok(found)
}

/// Configuration of the cabin services for the operator's name, with their files in `folder`.
fn services(on_board: &Identity, origin: &SecureOrigin, folder: &Path) -> anyhow::Result<More> {
    for (name, text) in [
        ("site.pem", &on_board.certificate_pem),
        ("site.key", &on_board.key_pem),
        ("origin.pem", &origin.identity.certificate_pem),
    ] {
        std::fs::write(folder.join(name), text).map_err(no_folder)?;
    }
    let site = format!("\n[split-http]\n[[site]]\nname = \"{SITE}\"\norigin-ca = \"origin.pem\"\n");
    Ok(More {
        air: format!(
            "\n[http-cache]\n{site}certificate = \"site.pem\"\nkey = \"site.key\"\nsplit-http = true\n"
        ),
        ground: site,
        hosts: vec![(SITE.to_owned(), SERVER.v4.into())],
        ..More::default()
    })
}

/// Checks that some of the page's objects arrive from `name` unchanged under the certificate of
/// `origin`.
async fn untouched(name: &'static str, origin: &Identity) -> anyhow::Result<Vec<bool>> {
    let get = async {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(origin.certificate.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(SocketAddr::new(SERVER.v4.into(), PORT)).await?;
        let server = ServerName::try_from(name)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(server, tcp).await?;
        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let is_same = shown == Some(&origin.certificate);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        let going = tokio::spawn(connection);
        let mut all = Vec::new();
        for path in levels::paths("untouched").step_by(12) {
            let request = Request::get(&path).header("host", name).body(Empty::<Bytes>::new())?;
            let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
            all.push(is_same && levels::at(&path).is_some_and(|answer| answer.body == body));
        }
        going.abort();
        Ok::<_, Box<dyn std::error::Error>>(all)
    };
    get.await.map_err(|error| Fault::passenger(name, error).into())
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Foreign => "foreign",
            Self::Own => "own",
        }
    }

    fn site(self) -> &'static str {
        if self == Self::Own { SITE } else { FOREIGN }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Tunnel => "without cabin services",
            Self::Foreign => "with them, another's name",
            Self::Own => "with them, the operator's name",
        }
    }
}

impl Found {
    fn new(case: Case, version: Version) -> Self {
        let (loads, again, untouched) = Default::default();
        Self { case, version, loads, again, pushed: [0; 2], untouched }
    }

    fn rows(&self, choice: &Choice) -> Vec<Row> {
        let limit = choice.limit(levels::bytes());
        let new = |which: &str, metric: &str| {
            let (case, origin) = (self.case.name(), written_version(self.version));
            let workload = format!("levels-{}, {case}{which}, origin {origin}", levels::OBJECTS);
            choice.row("pages-browser", workload, metric)
        };
        let mut rows = vec![self.loads.fill(Row { limit, ..new("", "plt") })];
        if !self.again.0.is_empty() {
            rows.push(self.again.fill(new(", second", "plt")));
        }
        if !self.untouched.0.is_empty() {
            rows.push(self.untouched.fill(new("", "untouched")));
        }
        rows
    }

    fn median(&self) -> Option<f64> {
        self.loads.median()
    }

    /// Fraction of the objects of its loads that were pushed and used.
    fn used(&self) -> f64 {
        self.pushed[0] as f64 / (self.loads.len().max(1) * levels::OBJECTS) as f64
    }
}

fn written_version(version: Version) -> &'static str {
    match version {
        Version::Http1 => "HTTP/1.1",
        Version::Http2 => "HTTP/2",
    }
}

fn goals(choice: &Choice, versions: &[Version], found: &[Found]) -> Vec<Goal> {
    let of =
        |case, version| found.iter().find(|found| found.case == case && found.version == version);
    let ratio = |case, version| {
        let [case, tunnel] = [case, Case::Tunnel].map(|case| of(case, version)?.median());
        Some(case? / tunnel?)
    };
    let mut goals = Vec::new();
    let bound = choice.limit(levels::bytes());
    for version in versions.iter().copied() {
        let origin = written_version(version);
        // An origin with HTTP/2 gets requests for all objects of a level at once, so there is less
        // to gain. The goal is the same.
        goals.push(Goal::ratio_at_most(
            format!("{WITH_SERVICES}{origin}"),
            ratio(Case::Own, version),
            MAX_WITH_SERVICES,
        ));
        let own = of(Case::Own, version).and_then(Found::median);
        goals.push(Goal::ratio_at_most(
            format!("operator's name ÷ bound, origin with {origin}"),
            own.zip(bound).map(|(own, bound)| own / bound),
            MAX_OVER_BOUND,
        ));
        goals.push(Goal::ratio_at_least(
            format!("operator's name: objects pushed and used, origin with {origin}"),
            of(Case::Own, version).map(Found::used),
            MIN_USED,
        ));
        let least = of(Case::Foreign, version).and_then(|found| found.untouched.percentile(0.0));
        goals.push(Goal::ratio_at_most(
            format!("another's name ÷ tunnel, origin with {origin}"),
            ratio(Case::Foreign, version),
            MAX_FOREIGN,
        ));
        goals.push(Goal::ratio_at_least(
            format!("another's name: bytes untouched, origin with {origin}"),
            least.and_then(Percentile::known),
            1.0,
        ));
    }
    goals
}

fn text(choice: &Choice, found: &[Found]) -> String {
    let header = ["origin", "", "median", "worst", "second passenger", "pushed", "in vain", "n"];
    let mut table = table(&header);
    for one in found {
        let [used, unused] = one.pushed;
        let again = one.again.percentile(0.5);
        table.add_row([
            written_version(one.version).to_owned(),
            one.case.title().to_owned(),
            written(one.loads.percentile(0.5), seconds),
            written(one.loads.percentile(1.0), seconds),
            again.map_or("–".to_owned(), |again| written(Some(again), seconds)),
            used.to_string(),
            unused.to_string(),
            one.loads.len().to_string(),
        ]);
    }
    align(&mut table, &[2, 3, 4, 5, 6, 7]);
    let bytes = levels::bytes();
    let least = choice.profile.forward_limit(bytes).map_or(f64::NAN, |limit| limit.as_secs_f64());
    format!(
        "{}\nA page of {} KB in {} objects over three levels in Chromium, over HTTPS and intercepted; a\n\
         round trip and its bytes alone take {least:.2} s:\n\n{}\n",
        choice.profile.about,
        bytes / 1000,
        levels::OBJECTS + 1,
        table.trim_fmt()
    )
}
