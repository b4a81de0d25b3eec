//! A hub's choice among its egresses, and the reports on which it rests.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_choice::{Choice, Estimate, Leg as LegTimes, Passenger, Query, Site};
use bentpipe_flow::{Reach, Target};
use bentpipe_transport::EgressStanding;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::leg::Leg;
use crate::origin::Origin;
use crate::wire::{Control, Decoder, Malformed, Sink};

/// Pause before an egress is asked again for its dials, which an older one refuses.
const ASK_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of reports that are read at once.
const READ_BYTES: usize = 4 << 10;

/// Way to an egress at present.
pub struct Way<'a> {
    /// Name of the egress.
    pub name: &'a str,
    /// Path to it, while there is a connection.
    pub leg: Option<LegTimes>,
    /// `true` if it may be used.
    pub is_up: bool,
    /// Reason why it may not be used, if it is known.
    pub trouble: Option<String>,
}

/// Choice among the egresses of a hub.
pub struct Preference {
    choice: Mutex<Choice>,
    epoch: Instant,
}

impl Preference {
    /// Chooses among egresses, to which the operator has given these sites.
    pub fn new(egresses: &[&[Site]]) -> Self {
        let mut choice = Choice::new(egresses.len());
        for (number, sites) in egresses.iter().enumerate() {
            sites.iter().for_each(|site| choice.fix(site.clone(), number));
        }
        Self { choice: Mutex::new(choice), epoch: Instant::now() }
    }

    /// Number of the egress for a new flow of `who` to `target`; `None` if none is up.
    pub fn choose(&self, who: Passenger, target: &Target, all: &[Way<'_>]) -> Option<usize> {
        let site = Site::of(target)?;
        // Without randomness nothing is tried, and everything else works.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        let query = Query {
            who,
            site: &site,
            now: self.epoch.elapsed(),
            random: f64::from(random) / f64::from(u32::MAX),
        };
        let mut choice = self.choice.lock();
        update_legs(&mut choice, all);
        choice.choose(&query, |number| all[number].is_up)
    }

    /// The egresses as ways to `target`.
    pub fn explain(&self, target: &Target, all: &[Way<'_>]) -> Vec<EgressStanding> {
        let Some(site) = Site::of(target) else { return Vec::new() };
        let (mut choice, now) = (self.choice.lock(), self.epoch.elapsed());
        update_legs(&mut choice, all);
        let is_up = |number: usize| all[number].is_up;
        let chosen = choice.expected(&site, now, is_up);
        let standing = |it: Estimate| EgressStanding {
            name: all[it.egress].name.to_owned(),
            is_up: is_up(it.egress),
            is_chosen: chosen == Some(it.egress),
            fails: it.fails,
            leg: it.leg,
            dial: it.dial,
            trouble: all[it.egress].trouble.clone(),
            source: match choice.fixed(&site) == Some(it.egress) {
                true => "its site by the configuration".to_owned(),
                false => it.source.to_string(),
            },
        };
        choice.estimates(&site, now, |_| true).into_iter().map(standing).collect()
    }

    /// Notes the end of a flow.
    pub fn ended(&self, who: Passenger, target: &Target) {
        if let Some(site) = Site::of(target) {
            self.choice.lock().ended(who, &site, self.epoch.elapsed());
        }
    }

    /// Notes a dial of an egress.
    pub fn dialled(&self, egress: usize, dialled: Dialled) {
        if let Some(site) = Site::of(&dialled.target) {
            let took = dialled.millis.map(|millis| Duration::from_millis(millis.into()));
            let site = (&site, dialled.target.port);
            self.choice.lock().dialled(egress, site, took, self.epoch.elapsed());
        }
    }
}

fn update_legs(choice: &mut Choice, all: &[Way<'_>]) {
    for (number, way) in all.iter().enumerate() {
        if let Some(leg) = way.leg {
            choice.set_leg(number, leg);
        }
    }
}

/// Report of a dial.
pub struct Dialled {
    /// Milliseconds that it took; `None` if nothing answered.
    pub millis: Option<u16>,
    /// Destination.
    pub target: Target,
}

/// Reads the reports of an egress, once `leg` is known, and gives them to `take`. Ends only with the leg: the
/// caller ends it.
pub async fn follow_dials(
    mut leg: watch::Receiver<Option<Arc<dyn Leg>>>,
    mut take: impl FnMut(Dialled) + Send,
) {
    let Ok(leg) = leg.wait_for(Option::is_some).await.map(|it| it.clone()) else { return };
    let Some(leg) = leg else { return };
    let mut reach = leg.watch_reach();
    // Forwarded for nobody: an egress reports dials on forwarded streams alone.
    let from = Origin::own([0; 32]);
    loop {
        if reach.wait_for(|reach| *reach == Reach::Up).await.is_err() {
            return;
        }
        let mut first = Vec::new();
        Control::Dials.put(&mut first);
        let Ok(mut reports) = leg.open(&from, Bytes::from(first)).await else {
            sleep(ASK_PAUSE).await;
            continue;
        };
        let (mut decoder, mut read) = (Decoder::default(), [0; READ_BYTES]);
        let mut reports_taken = Taken(&mut take);
        loop {
            let left = decoder.left();
            read[..left.len()].copy_from_slice(left);
            let Ok(count @ 1..) = reports.read(&mut read[left.len()..]).await else { break };
            let piece = &mut read[..left.len() + count];
            if let Err(error) = decoder.decode(piece, &mut reports_taken) {
                tracing::warn!(%error, "an egress reports its dials");
                break;
            }
        }
        sleep(ASK_PAUSE).await;
    }
}

/// Takes reports.
struct Taken<'a, F>(&'a mut F);

impl<F: FnMut(Dialled)> Sink for Taken<'_, F> {
    fn data(&mut self, _: usize) -> Result<usize, Malformed> {
        Err(Malformed("data between reports of dials"))
    }

    fn control(&mut self, record: Control) -> Result<(), Malformed> {
        let Control::Dialled { millis, target } = record else {
            return Err(Malformed("a record that reports something else"));
        };
        (self.0)(Dialled { millis, target });
        Ok(())
    }
}
