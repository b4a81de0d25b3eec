//! The thread of all jobs but pings, one after another.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_probe::dns::names::NameList;
use bentpipe_probe::dns::{NameKind, ResolverKind};
use bentpipe_probe::epb as epb_hours;
use bentpipe_probe::ndt7::public_wait_since;
use bentpipe_probe::random::Random;
use bentpipe_probe::rate::Direction;
use bentpipe_probe::record::Measurement;
use bentpipe_probe::recorder::Activity;
use bentpipe_probe::schedule::{Job, Lane, Step};
use bentpipe_probe::target::{Side, Target};
use bentpipe_probe::trace::TraceMethod;
use url::Url;

use crate::address::{Checker, Servers};
use crate::channel::Trust;
use crate::epb::Provisioned;
use crate::event::{Event, Events};
use crate::gps::Receiver;
use crate::ndt7::Server;
use crate::objects::Rounds;
use crate::resolver::Names;
use crate::{clock, epb, ndt7, network, portal, rate, resolver, tracer};

/// Longest sleep, after which the thread looks whether it is to end.
const MAX_SLEEP: Duration = Duration::from_millis(200);

/// Facts that the jobs need.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Targets of pings; the first far one is that of traceroutes.
    pub targets: Vec<Target>,
    /// Names to look up.
    pub names: NameList,
    /// Resolvers to compare with the machine's own.
    pub resolvers: Vec<IpAddr>,
    /// Page of the portal check.
    pub portal_url: Url,
    /// API of a captive portal, instead of the one that the network names.
    pub portal_api: Option<Url>,
    /// Own origin of HTTP objects and trains of packets.
    pub origin: Option<Url>,
    /// Server of ndt7 tests.
    pub ndt7: Option<Server>,
    /// Time until their first one.
    pub ndt7_wait: Duration,
    /// Provisioned bandwidth, if EPB tests are wanted.
    pub epb: Option<Provisioned>,
    /// Address of gpsd.
    pub gpsd: Option<SocketAddr>,
    /// Servers that report the public address.
    pub address_servers: Servers,
    /// Seed of jitter and unique names.
    pub seed: u64,
}

/// Runs the jobs until the session ends. `start` is the boot time of the session's start.
pub fn run(plan: &Plan, start: Duration, events: &Events) {
    let jobs = [
        (Job::Portal, true),
        (Job::Gps, plan.gpsd.is_some()),
        (Job::Trace, true),
        (Job::Address, true),
        (Job::Dns, true),
        (Job::Objects, true),
        (Job::Rate, plan.origin.is_some()),
        (Job::Ndt7, plan.ndt7.is_some()),
        (Job::Epb, plan.epb.is_some()),
    ];
    let wanted = jobs.into_iter().filter(|(_, is_wanted)| *is_wanted);
    let jobs: Vec<_> = wanted.map(|(job, _)| (job, job.interval())).collect();
    let mut lane = Lane::new(&jobs, plan.seed);
    lane.postpone(Job::Ndt7, plan.ndt7_wait);
    let wall_us = clock::now().wall_us;
    if epb_hours::direction(wall_us).is_none() {
        lane.postpone(Job::Epb, epb_hours::wait(wall_us));
    }
    let mut state = State {
        random: Random::new(plan.seed ^ 1),
        portals: portal::Checker::new(plan.portal_api.as_ref(), Trust::of_the_system()),
        addresses: Checker::new(),
        receiver: plan.gpsd.map(Receiver::new),
        objects: Rounds::default(),
        last_public_us: None,
    };
    let mut number = 0;
    while !events.stopped() {
        let now = clock::boot().saturating_sub(start);
        match lane.step(now) {
            Step::Wait(until) => std::thread::sleep(until.saturating_sub(now).min(MAX_SLEEP)),
            Step::Run(job) => {
                number += 1;
                let activity = Activity { job, number };
                events.send(Event::Begin(activity, clock::now()));
                let began_us = clock::now().wall_us;
                perform(plan, activity, &mut state, events);
                events.send(Event::End(activity, clock::now()));
                lane.ran(job, now, clock::boot().saturating_sub(start));
                if job == Job::Epb {
                    // From its begin, so that a test beyond the end of its hour does not take the next one's place.
                    lane.postpone(job, now + epb_hours::wait(began_us));
                }
                if let Some(last_us) = state.last_public_us.filter(|_| job == Job::Ndt7) {
                    let now = clock::boot().saturating_sub(start);
                    // By this clock, which does not step.
                    lane.postpone(job, now + public_wait_since(last_us, last_us));
                }
            }
        }
    }
}

/// State of the jobs between their runs.
struct State {
    random: Random,
    portals: portal::Checker,
    addresses: Checker,
    receiver: Option<Receiver>,
    objects: Rounds,
    /// Wall clock at the last test of the public ndt7 service, as its record has it.
    last_public_us: Option<i64>,
}

fn perform(plan: &Plan, activity: Activity, state: &mut State, events: &Events) {
    match activity.job {
        Job::Portal => {
            let began = clock::now();
            let check = state.portals.check(&plan.portal_url, &network::look().resolvers);
            done(activity, began, Measurement::Portal(Box::new(check)), events);
        }
        Job::Address => {
            let (network, servers) = (network::look(), &plan.address_servers);
            for family in servers.families(&network) {
                let began = clock::now();
                let check = state.addresses.check(servers, family, &network.resolvers);
                done(activity, began, Measurement::Address(check), events);
            }
        }
        Job::Gps => {
            let Some(receiver) = &mut state.receiver else { return };
            let began = clock::now();
            done(activity, began, Measurement::Gps(receiver.check()), events);
        }
        Job::Trace => traces(plan, activity, events),
        Job::Dns => lookups(plan, activity, &mut state.random, events),
        Job::Objects => {
            let (random, resolvers) = (&mut state.random, network::look().resolvers);
            let own = plan.origin.as_ref();
            state.objects.next(own, &plan.names, &resolvers, random, activity, events);
        }
        Job::Rate => rates(plan, activity, events),
        Job::Epb => files(plan, activity, events),
        Job::Ndt7 => state.last_public_us = speeds(plan, activity, events),
    }
}

/// Trains from and to the own origin.
fn rates(plan: &Plan, activity: Activity, events: &Events) {
    let Some(origin) = &plan.origin else { return };
    let resolvers = network::look().resolvers;
    for direction in [Direction::Down, Direction::Up] {
        let began = clock::now();
        let check = rate::check(origin, direction, &resolvers, events);
        if events.stopped() {
            return;
        }
        done(activity, began, Measurement::Rate(Box::new(check)), events);
    }
}

/// An EPB test of the hour's direction.
fn files(plan: &Plan, activity: Activity, events: &Events) {
    let began = clock::now();
    let direction = epb_hours::direction(began.wall_us);
    let (Some(origin), Some(provisioned), Some(direction)) = (&plan.origin, plan.epb, direction)
    else {
        return;
    };
    let test = epb::measure(origin, direction, provisioned, &network::look().resolvers);
    done(activity, began, Measurement::Epb(Box::new(test)), events);
}

/// An ndt7 test in each direction. Returns the begin of the last one, if it was one of the public service.
fn speeds(plan: &Plan, activity: Activity, events: &Events) -> Option<i64> {
    let server = plan.ndt7.as_ref()?;
    let (mut began, mut last_us) = (clock::now(), None);
    ndt7::measure(server, &network::look().resolvers, &mut |test| {
        done(activity, began, Measurement::Ndt7(Box::new(test)), events);
        last_us = Some(began.wall_us);
        began = clock::now();
    });
    last_us.filter(|_| *server == Server::Public)
}

/// Traceroutes to the first far target, or to the first of all: UDP, and ICMP if it is allowed.
fn traces(plan: &Plan, activity: Activity, events: &Events) {
    let far = plan.targets.iter().find(|target| target.side == Side::Far);
    let Some(target) = far.or(plan.targets.first()) else { return };
    for method in [TraceMethod::Udp, TraceMethod::Icmp] {
        let began = clock::now();
        match tracer::trace(&target.name, target.address, method, events) {
            // A session that ends cuts a traceroute short, which would pass for a path that dies.
            Ok(_) if events.stopped() => return,
            Ok(trace) => done(activity, began, Measurement::Trace(trace), events),
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => {}
                _ => done(activity, began, unable(target, method, &error), events),
            },
        }
    }
}

/// A traceroute that could not begin.
fn unable(target: &Target, method: TraceMethod, error: &io::Error) -> Measurement {
    use bentpipe_probe::trace::{Hop, Probe, Trace, TraceEnd};
    let failure = crate::failure::name(error);
    let hops = vec![Hop { ttl: 1, probes: vec![Probe::Failed { failure }] }];
    let (name, address, end) =
        (target.name.clone(), target.address, TraceEnd::Died { after_ttl: 0 });
    Measurement::Trace(Trace { target: name, address, method, flow: 0, hops, end })
}

/// A round of pairs at the machine's first resolver, and at those to compare.
fn lookups(plan: &Plan, activity: Activity, random: &mut Random, events: &Events) {
    let network = network::look();
    let local = network.resolvers.first().map(|resolver| (*resolver, ResolverKind::Local));
    let mut others = plan.resolvers.clone();
    if others.is_empty() {
        others.push(network::public_resolver(network.ipv4 || !network.ipv6));
    }
    let others = others.into_iter().map(|resolver| (resolver, ResolverKind::Other));
    let mut asked = Vec::new();
    for (address, kind) in local.into_iter().chain(others) {
        if asked.contains(&address) {
            continue;
        }
        asked.push(address);
        let mut names: Names =
            plan.names.names.iter().map(|name| (name.clone(), NameKind::Listed)).collect();
        names.push_back((plan.names.unique(random), NameKind::Unique));
        let record = |began, runtime_us, pair| {
            let measurement = Measurement::Dns(pair);
            events.send(Event::Measured { began, runtime_us, own: Some(activity), measurement });
        };
        resolver::round(address, kind, names, events, &record);
    }
}

fn done(
    activity: Activity,
    began: bentpipe_probe::clock::Moment,
    measurement: Measurement,
    events: &Events,
) {
    let runtime_us = clock::now().boot_us.saturating_sub(began.boot_us);
    events.send(Event::Measured { began, runtime_us, own: Some(activity), measurement });
}
