//! A round of HTTP objects, each fetched twice, one after another.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_probe::dns::names::NameList;
use bentpipe_probe::objects::{
    Fetch, LARGE, LARGE_EVERY, NAMES, ObjectKind, ObjectPair, SIZES, Signs,
};
use bentpipe_probe::random::Random;
use bentpipe_probe::record::Measurement;
use bentpipe_probe::recorder::Activity;
use url::Url;

use crate::event::{Event, Events};
use crate::web::{self, Bounds, Fetched};
use crate::{clock, failure, origin};

/// Bounds of a fetch. Listed pages are larger than anybody needs here; the largest object ends below its bound.
const LISTED: Bounds = Bounds { patience: Duration::from_secs(30), read: 16 * 1024, keep: 0 };
const OWN: Bounds = Bounds { patience: Duration::from_secs(60), read: LARGE, keep: 0 };

/// Time after which a round begins no further pair, so that a slow access does not fill the lane.
const MAX_ROUND: Duration = Duration::from_secs(120);

/// The rounds of a run.
#[derive(Debug, Default)]
pub struct Rounds {
    number: u64,
}

impl Rounds {
    /// Fetches objects of the origin, if there is one, and the next names of the list.
    pub fn next(
        &mut self,
        own: Option<&Url>,
        names: &NameList,
        resolvers: &[IpAddr],
        random: &mut Random,
        activity: Activity,
        events: &Events,
    ) {
        let large = self.number.is_multiple_of(LARGE_EVERY).then_some(LARGE);
        let offset = self.number as usize * NAMES;
        self.number += 1;
        let sizes = SIZES.into_iter().chain(large);
        let objects = own.into_iter().flat_map(|own| {
            let nonce = random.next_u64();
            sizes.clone().filter_map(move |bytes| {
                Some((own.join(&origin::path(bytes, nonce)).ok()?, ObjectKind::Origin))
            })
        });
        let mut wanted: Vec<(Url, ObjectKind)> = objects.collect();
        let listed = names.names.iter().cycle().skip(offset % names.names.len().max(1));
        wanted.extend(listed.take(NAMES.min(names.names.len())).filter_map(|name| {
            Some((Url::parse(&format!("http://{name}/")).ok()?, ObjectKind::Listed))
        }));
        let began = clock::boot();
        for (url, kind) in wanted {
            if events.stopped() || clock::boot().saturating_sub(began) > MAX_ROUND {
                break;
            }
            let began = clock::now();
            let pair = pair(&url, kind, resolvers);
            let runtime_us = clock::now().boot_us.saturating_sub(began.boot_us);
            let measurement = Measurement::Objects(Box::new(pair));
            events.send(Event::Measured { began, runtime_us, own: Some(activity), measurement });
        }
    }
}

fn pair(url: &Url, kind: ObjectKind, resolvers: &[IpAddr]) -> ObjectPair {
    let bounds = if kind == ObjectKind::Origin { OWN } else { LISTED };
    let fetch = || match web::fetch(url, resolvers, bounds) {
        Ok(fetched) => described(&fetched),
        Err(error) => Fetch::failed(failure::name(&error)),
    };
    let first = fetch();
    let second = first.failure.is_none().then(fetch);
    ObjectPair { url: url.to_string(), kind, first, second }
}

fn described(fetched: &Fetched) -> Fetch {
    let field = |name: &str| {
        let values = fetched.fields.get_all(name).iter();
        values.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>()
    };
    let serial = field(origin::SERIAL).last().and_then(|text| text.parse().ok());
    Fetch {
        address: Some(fetched.address.ip()),
        connect_us: Some(bentpipe_probe::micros(fetched.connected)),
        first_byte_us: Some(bentpipe_probe::micros(fetched.first_byte)),
        complete_us: Some(bentpipe_probe::micros(fetched.complete)),
        status: Some(fetched.status.as_u16()),
        bytes: fetched.bytes,
        cut: fetched.cut,
        serial,
        signs: Signs::of(field),
        failure: None,
    }
}
