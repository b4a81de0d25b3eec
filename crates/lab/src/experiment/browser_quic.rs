//! A page in real Chromium through intercepting gateways: over the browser's own QUIC if they carry
//! it, and immediately over TCP if they refuse it.

use std::path::Path;

use super::browser::{self, Cabin, Choice};
use super::report::{Goal, Report};
use super::table::{align, seconds, table, written};
use crate::emu::SERVER;
use crate::result::{Row, Samples};
use crate::scratch::no_folder;
use crate::system::pair::PassedQuic;
use crate::traffic::ClassLimits;
use crate::traffic::emu::gateways::Gateways;
use crate::workload::content::page_bytes;
use crate::workload::secure::{NAME, SecureOrigin};

/// Number of the page's objects, without its document.
const OBJECTS: usize = 25;
/// Maximum load time of a page whose QUIC is refused, as a multiple of that of a browser without
/// QUIC.
const MAX_SLOWER: f64 = 1.25;

/// Protocol of the browser, and treatment by the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// The browser uses HTTP/3 from the start, and the gateways carry it.
    Carry,
    /// The same, but the gateways deliver its datagrams in arrival order.
    AsItComes,
    /// The page announces HTTP/3 to the browser, and the gateways refuse it.
    Reject,
    /// QUIC is disabled in the browser.
    Tcp,
}

/// Result of a case.
struct Found {
    case: Case,
    loads: Samples,
    /// Requests answered over TCP, and over HTTP/3.
    answered: [usize; 2],
    /// QUIC datagrams that the air gateway refused.
    refused: u64,
}

/// Runs all cases one after the other, with their files below `folder`.
pub fn run(choice: &Choice, folder: &Path) -> anyhow::Result<Report> {
    let mut found = Vec::new();
    for (number, case) in (0..).zip([Case::Carry, Case::Reject, Case::Tcp, Case::AsItComes]) {
        let folder = folder.join(case.name());
        std::fs::create_dir(&folder).map_err(no_folder)?;
        found.push(one(choice, case, choice.seed + number, &folder)?);
    }
    Ok(Report {
        text: text(choice, &found),
        rows: found.iter().flat_map(|found| found.rows(choice)).collect(),
        goals: goals(&found),
    })
}

fn one(choice: &Choice, case: Case, seed: u64, folder: &Path) -> anyhow::Result<Found> {
    let cabin = Cabin::new(choice, seed)?;
    let origin = SecureOrigin::start(&cabin.testbed.server, SERVER.v4.into())?;
    let limits = ClassLimits::default();
    let gateways = Gateways::start(&cabin.testbed, &choice.profile, &limits, case.quic(), folder)?;
    gateways.wait()?;
    let flags = case.flags(&origin.identity.key_hash);
    let url = format!("https://{NAME}/page/{OBJECTS}");
    let mut loads = Samples::default();
    for run in 0..choice.runs {
        loads.0.push(cabin.load(&flags, &url, &folder.join(format!("chromium-{run}")))?);
    }
    cabin.check()?;
    let refused = gateways.counted.quic_rejected.get();
    Ok(Found { case, loads, answered: origin.answered(), refused })
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Carry => "quic-carried",
            Self::AsItComes => "quic-as-it-comes",
            Self::Reject => "quic-rejected",
            Self::Tcp => "no-quic",
        }
    }

    /// Setting of the gateways.
    fn quic(self) -> PassedQuic {
        match self {
            Self::Carry | Self::Tcp => PassedQuic::InOrder,
            Self::AsItComes => PassedQuic::AsItComes,
            Self::Reject => PassedQuic::Refused,
        }
    }

    /// Flags of the browser: the origin's address and key, and the protocols to try.
    fn flags(self, key_hash: &str) -> Vec<String> {
        let mut flags = browser::flags(NAME, key_hash);
        flags.push(match self {
            Self::Carry | Self::AsItComes => format!("--origin-to-force-quic-on={NAME}:443"),
            Self::Reject => "--enable-quic".into(),
            Self::Tcp => "--disable-quic".into(),
        });
        flags
    }
}

impl Found {
    /// Fraction of requests carried by HTTP/3.
    fn by_h3(&self) -> f64 {
        let [tcp, h3] = self.answered;
        h3 as f64 / (tcp + h3).max(1) as f64
    }

    fn rows(&self, choice: &Choice) -> Vec<Row> {
        let new = |metric: &str| {
            let workload = format!("chromium-{OBJECTS}, {}", self.case.name());
            choice.row("browser-quic", workload, metric)
        };
        let share: Samples = [self.by_h3()].into_iter().collect();
        let limit = choice.limit(page_bytes(OBJECTS));
        vec![self.loads.fill(Row { limit, ..new("plt") }), share.fill(new("h3-share"))]
    }

    fn median(&self) -> Option<f64> {
        self.loads.median()
    }
}

fn goals(found: &[Found]) -> Vec<Goal> {
    let of = |case| found.iter().find(|found| found.case == case);
    let ratio = of(Case::Reject).and_then(Found::median).zip(of(Case::Tcp).and_then(Found::median));
    let by_h3 = |case| of(case).map(Found::by_h3);
    let refused = of(Case::Reject).map(|found| found.refused as f64);
    vec![
        Goal::ratio_at_least("carried: share of requests by HTTP/3", by_h3(Case::Carry), 1.0),
        Goal::ratio_at_most("rejected: share of requests by HTTP/3", by_h3(Case::Reject), 0.0),
        Goal::ratio_at_least("rejected: datagrams refused", refused, 1.0),
        Goal::ratio_at_most(
            "rejected ÷ a browser without QUIC, median",
            ratio.map(|(reject, tcp)| reject / tcp),
            MAX_SLOWER,
        ),
    ]
}

fn text(choice: &Choice, found: &[Found]) -> String {
    let mut table = table(&["", "median", "worst", "by TCP", "by HTTP/3", "refused", "n"]);
    for one in found {
        let [tcp, h3] = one.answered;
        table.add_row([
            one.case.name().to_owned(),
            written(one.loads.percentile(0.5), seconds),
            written(one.loads.percentile(1.0), seconds),
            tcp.to_string(),
            h3.to_string(),
            one.refused.to_string(),
            one.loads.len().to_string(),
        ]);
    }
    align(&mut table, &[1, 2, 3, 4, 5, 6]);
    format!(
        "{}\nA page of {} KB in {} objects in Chromium, intercepted; requests that the server\n\
         answered by each protocol, and datagrams of QUIC that the air gateway refused:\n\n{}\n",
        choice.profile.about,
        page_bytes(OBJECTS) / 1000,
        OBJECTS + 1,
        table.trim_fmt()
    )
}
