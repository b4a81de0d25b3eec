//! Knowledge of the ground's support for single requests, and the form of a request that follows
//! from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bentpipe_link::ResetCode;
use bentpipe_prefetch::wire::single::End;
use tokio::time::Instant;

use super::taken::{Session, Taken};
use crate::classify::Name;

/// Knowledge of the ground.
#[derive(Debug, Default)]
pub struct Known {
    /// Support for packed heads.
    packed: Taken,
    /// … and knows requests to sites, to whose origins it makes TLS.
    sites: Taken,
    /// … and has this one. They are the operator's own, of which a file has 64 at most.
    each: Mutex<BTreeMap<Name, Arc<Taken>>>,
    /// The last for which one was refused, and then answered plainly, since the ground has answered for any.
    refused: Mutex<Option<Name>>,
}

/// A request that is packed, and in which session that was decided.
#[derive(Debug, Clone)]
pub struct AskedPacked {
    session: Session,
    site: Option<OfSite>,
}

/// Additional state of a request to a site.
#[derive(Debug, Clone)]
pub struct OfSite {
    /// The site.
    pub name: Name,
    /// End that the ground has reported.
    pub told: Told,
}

/// Filled once the ground has said how it ended.
pub type Told = Arc<OnceLock<End>>;

impl AskedPacked {
    /// The site to whose origin the ground makes TLS, if it does.
    pub fn site(&self) -> Option<&OfSite> {
        self.site.as_ref()
    }

    /// End that the ground has reported, if any.
    pub fn told(&self) -> Option<End> {
        self.site.as_ref()?.told.get().copied()
    }
}

impl Known {
    /// Packed form of a request that may or may not be repeated plainly, if it should be packed: to
    /// `site`, by TLS from the ground, or to an origin in clear.
    pub fn ask(
        &self,
        site: Option<&Name>,
        may_repeat: bool,
        session: Session,
        now: Instant,
    ) -> Option<AskedPacked> {
        let packs = match site {
            None => self.packed.packs(may_repeat, session, now),
            // That it has answered for one site does not say that it has another.
            Some(name) => {
                let may_know = self.sites.packs(true, session, now);
                may_know && self.each(name).packs(may_repeat, session, now)
            }
        };
        let site = site.map(|name| OfSite { name: name.clone(), told: Told::default() });
        packs.then_some(AskedPacked { session, site })
    }

    /// The ground has answered it.
    pub fn answered(&self, asked: &AskedPacked) {
        match &asked.site {
            None => self.packed.answered(asked.session),
            Some(site) => {
                self.heard(asked);
                self.each(&site.name).answered(asked.session);
            }
        }
    }

    /// The ground has said how it ended, or answered: it knows requests to sites.
    pub fn heard(&self, asked: &AskedPacked) {
        self.sites.answered(asked.session);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns `true` if the end with `code`, before anything came, may mean that the ground does
    /// not know such requests.
    pub fn is_refusal(&self, asked: &AskedPacked, code: ResetCode) -> bool {
        let taken = if asked.site.is_some() { &self.sites } else { &self.packed };
        taken.is_refusal(asked.session, code)
    }

    /// The ground has said that it does not have the site.
    pub fn no_site(&self, asked: &AskedPacked, now: Instant) {
        let Some(OfSite { name, .. }) = &asked.site else { return };
        if self.each(name).unserved(now) {
            tracing::warn!(
                site = name.as_str(),
                "the ground has no [[site]] of this name: what is asked for beside its pages crosses over TLS from \
                 on board; write one into ground.toml, or leave out split-http = true here; it is asked again in \
                 10 minutes"
            );
        }
    }

    /// Notes that the refused request has been answered plainly.
    pub fn answered_plainly(&self, asked: &AskedPacked, session: Session, now: Instant) {
        if asked.told().is_some() {
            return; // It was the site, and that is noted.
        }
        match &asked.site {
            None if self.packed.answered_plainly(asked.session, session, now) => tell_packed(),
            Some(site) => self.site_answered_plainly(&site.name, asked, session, now),
            None => {}
        }
    }

    /// One site's origin may break off whoever asks it from the ground. Where another's does too, the ground is an
    /// older one.
    fn site_answered_plainly(
        &self,
        name: &Name,
        asked: &AskedPacked,
        session: Session,
        now: Instant,
    ) {
        self.each(name).answered_plainly(asked.session, session, now);
        let refused = &mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let other = refused.replace(name.clone());
        if other.is_some_and(|other| other != *name)
            && self.sites.answered_plainly(asked.session, session, now)
        {
            tell_sites();
        }
    }

    /// The ground has no Split HTTP.
    pub fn unserved(&self, now: Instant) {
        self.sites.unserved(now);
        if self.packed.unserved(now) {
            tell_packed();
        }
    }

    fn each(&self, name: &Name) -> Arc<Taken> {
        // Nothing in here panics half-way.
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        each.entry(name.clone()).or_default().clone()
    }
}

fn tell_packed() {
    tracing::info!(
        "the ground does not seem to take packed heads of single requests: it has no [split-http], or is older than \
         this gateway; they cross as they are, and it is asked again in 10 minutes"
    );
}

fn tell_sites() {
    tracing::info!(
        "the ground does not seem to take single requests to sites: it has no [split-http], or is older than this \
         gateway; they cross over TLS from on board, and it is asked again in 10 minutes"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single::taken::UNSERVED_FOR;

    const SESSION: Session = Some(1);

    fn names() -> [Name; 2] {
        ["a.test", "b.test"].map(|name| name.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_repeated_waits_for_each_site() {
        let (known, now, [a, b]) = (Known::default(), Instant::now(), names());
        let may = |site, repeat| known.ask(site, repeat, SESSION, now).is_some();
        known.answered(&known.ask(None, true, SESSION, now).unwrap());
        assert!(may(Some(&a), true) && !may(Some(&a), false), "one may know heads alone");
        known.answered(&known.ask(Some(&a), true, SESSION, now).unwrap());
        assert!(may(Some(&a), false) && may(None, false));
        assert!(may(Some(&b), true) && !may(Some(&b), false), "it may not have that one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_that_the_ground_does_not_have_is_remembered_alone() {
        let (known, now, [a, b]) = (Known::default(), Instant::now(), names());
        let asked = known.ask(Some(&a), true, SESSION, now).unwrap();
        asked.site().unwrap().told.set(End::NoSite).unwrap();
        known.heard(&asked);
        known.no_site(&asked, now);
        known.answered_plainly(&asked, SESSION, now);
        let may = |site, at| known.ask(Some(site), true, SESSION, at).is_some();
        assert!(!may(&a, now) && may(&b, now) && may(&a, now + UNSERVED_FOR));
        let other = known.ask(Some(&b), true, SESSION, now).unwrap();
        assert!(!known.is_refusal(&other, ResetCode::Aborted), "the ground knows such requests");
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_ground_is_remembered_for_all_sites_and_not_for_heads() {
        let (known, now, [a, b]) = (Known::default(), Instant::now(), names());
        let other = "c.test".parse().unwrap();
        for name in [&a, &b] {
            let asked = known.ask(Some(name), true, SESSION, now).unwrap();
            assert!(known.is_refusal(&asked, ResetCode::Aborted));
            known.answered_plainly(&asked, SESSION, now);
            assert!(known.ask(Some(name), true, SESSION, now).is_none());
            assert_eq!(known.ask(Some(&other), true, SESSION, now).is_some(), *name == a);
        }
        for name in [&a, &b, &other] {
            assert!(known.ask(Some(name), true, SESSION, now).is_none());
            assert!(known.ask(Some(name), true, SESSION, now + UNSERVED_FOR).is_some());
        }
        assert!(known.ask(None, true, SESSION, now).is_some());
        known.unserved(now);
        assert!(known.ask(None, true, SESSION, now).is_none());
    }
}
