//! Flows of datagrams over whole sessions in virtual time.

use std::time::Duration;

use super::common::{Pair, bytes, receive_all, write_all};
use bentpipe_flow::ResetCode;
use bentpipe_link::{Core, Counters, Receive, SendError, Session, SessionId, Settings};
use bentpipe_units::BitRate;

const RATE: BitRate = BitRate::from_bps(1_890_000);
const ONE_WAY: Duration = Duration::from_micros(380_500);

/// A flow at both ends: at the air, at the hub.
fn flow(pair: &mut Pair) -> ((SessionId, u64), (SessionId, u64)) {
    let near = pair.open_datagrams();
    (near, pair.accept())
}

fn counters(core: &mut impl Core<Session = Session>, id: SessionId) -> Counters {
    core.session(id).unwrap().counters()
}

#[test]
fn the_first_datagram_shares_a_packet_with_the_opening() {
    let mut pair = Pair::new(1, 0.0);
    pair.connect();
    let near = pair.open_datagrams();
    let now = pair.now;
    pair.air.session(near.0).unwrap().send_datagram(near.1, b"question", now).unwrap();
    let far = pair.accept();
    assert!(pair.now - now < ONE_WAY + Duration::from_millis(10), "{:?}", pair.now - now);
    assert_eq!(receive_all(&mut pair.hub, far, pair.now), [b"question"]);
    let counters = counters(&mut pair.air, near.0);
    assert_eq!((counters.symbols_sent, counters.datagrams_sent), (1, 1));
}

/// Queues datagrams at the hub so that twenty always wait; `handed` counts them.
fn keep_backlogged(pair: &mut Pair, far: (SessionId, u64), payload: &[u8], handed: &mut u64) {
    let session = pair.hub.session(far.0).unwrap();
    let counters = session.counters();
    let left = counters.datagrams_sent + counters.datagrams_dropped;
    while *handed < left + 20 {
        session.send_datagram(far.1, payload, pair.now).unwrap();
        *handed += 1;
    }
    pair.flush();
}

/// Fills the link to the aircraft for a minute. Returns the hub's counters and the share that
/// arrived.
fn backlog(loss: f64) -> (Counters, f64) {
    let mut pair = Pair::new(2, loss);
    pair.connect();
    let (near, far) = flow(&mut pair);
    pair.run_for(Duration::from_secs(5), |_| {});
    let (payload, mut came, mut handed) = (bytes(1200), 0u64, 0);
    pair.run_for(Duration::from_secs(60), |pair| {
        keep_backlogged(pair, far, &payload, &mut handed);
        came += receive_all(&mut pair.air, near, pair.now).len() as u64;
    });
    pair.run_for(Duration::from_secs(10), |pair| {
        came += receive_all(&mut pair.air, near, pair.now).len() as u64;
    });
    let counters = counters(&mut pair.hub, far.0);
    assert_eq!(counters.violations, 0);
    (counters, came as f64 / counters.datagrams_sent as f64)
}

#[test]
fn a_download_in_datagrams_costs_no_repairs_on_a_clean_link_and_its_classes_share_on_a_lossy_one() {
    let (counters, came) = backlog(0.0);
    let repairs = counters.repair_bytes as f64 / counters.symbol_bytes as f64;
    assert!(repairs <= 0.005, "{repairs:.4} of the bytes are repairs");
    assert_eq!((came, counters.retransmission_bytes), (1.0, 0));
    assert!(counters.datagrams_dropped > 0, "CoDel holds the queue down");
    let used = counters.symbol_bytes as f64 * 8.0 / 65.0 / RATE.bps() as f64;
    assert!(used > 0.85, "{used:.3} of the rate");

    let (counters, came) = backlog(0.06);
    let repairs = counters.repair_bytes as f64 / counters.symbol_bytes as f64;
    let share = 2.5 * 0.06 / 0.94;
    assert!((repairs / share - 1.0).abs() < 0.2, "{repairs:.3} of the bytes are repairs");
    assert!(came > 0.999, "{came:.5} of the datagrams came");
    let again = counters.retransmission_bytes as f64 / counters.symbol_bytes as f64;
    assert!(again < 0.005, "{again:.4} of the bytes were sent again");
}

#[test]
fn no_datagram_is_duplicated_or_invented_at_two_of_five_lost() {
    let mut pair = Pair::new(3, 0.4);
    pair.connect();
    let flows: Vec<_> = (0..40)
        .map(|number: u8| {
            let near = pair.open_datagrams();
            let now = pair.now;
            for index in 0..5 {
                let payload = [number, index];
                pair.air.session(near.0).unwrap().send_datagram(near.1, &payload, now).unwrap();
            }
            pair.run_for(Duration::from_millis(50), |_| {});
            near
        })
        .collect();
    // Unread datagrams expire, so that each is read on arrival, except those that arrive before the
    // opening.
    let mut all = Vec::new();
    pair.run_for(Duration::from_secs(65), |pair| {
        for far in pair.opened.clone() {
            let came = receive_all(&mut pair.hub, far, pair.now);
            all.extend(came.into_iter().map(|payload| (far.1, payload)));
        }
    });
    assert_eq!(pair.opened.len(), 40);
    all.sort();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    assert!(all.iter().all(|(far, payload)| flows[payload[0] as usize].1 == *far));
    let hub = counters(&mut pair.hub, pair.opened[0].0);
    assert_eq!(hub.datagrams_received, all.len() as u64);
    assert!(all.len() > 150 && hub.datagrams_early > 0, "{} came, {hub:?}", all.len());
    assert_eq!((hub.violations, hub.datagrams_unknown), (0, 0));
}

#[test]
fn datagrams_lost_in_an_outage_are_given_up_and_later_ones_pass() {
    let mut pair = Pair::new(4, 0.06);
    pair.connect();
    let (near, far) = flow(&mut pair);
    let (start, mut number, mut came) = (pair.now, 0u32, Vec::new());
    pair.run_for(Duration::from_secs(60), |pair| {
        let cut = (10..20).contains(&(pair.now - start).as_secs());
        (pair.up.cut, pair.down.cut) = (cut, cut);
        while start + Duration::from_millis(20) * number <= pair.now {
            let session = pair.hub.session(far.0).unwrap();
            session.send_datagram(far.1, &number.to_be_bytes(), pair.now).unwrap();
            number += 1;
        }
        pair.flush();
        came.extend(receive_all(&mut pair.air, near, pair.now));
    });
    let late = |payload: &&Vec<u8>| u32::from_be_bytes(payload[..].try_into().unwrap()) > 1250;
    let after = came.iter().filter(late).count();
    assert!(after > 1690, "{after} of the last 1749 came");
    let counters = counters(&mut pair.hub, far.0);
    // Datagrams sent before the outage was noticed are lost; those that waited too long were never
    // sent.
    assert!(counters.datagrams_abandoned > 50 && counters.datagrams_expired > 50, "{counters:?}");
    assert_eq!(
        (counters.violations, counters.retransmissions_sent),
        (0, counters.retransmissions_sent)
    );
    assert!(counters.held_bytes < 300_000, "{} bytes held", counters.held_bytes);
}

#[test]
fn idle_flows_are_reset_and_either_direction_keeps_one_open() {
    let datagram_idle = Duration::from_secs(120);
    let mut pair =
        Pair::with(5, 0.0, Settings { rate: RATE, datagram_idle, ..Settings::default() });
    pair.connect();
    let (near, far) = flow(&mut pair);
    let (other_near, other_far) = flow(&mut pair);
    let mut next = pair.now;
    pair.run_for(Duration::from_secs(400), |pair| {
        if next <= pair.now {
            let session = pair.hub.session(other_far.0).unwrap();
            session.send_datagram(other_far.1, b"still here", pair.now).unwrap();
            next += Duration::from_secs(100);
        }
        receive_all(&mut pair.air, other_near, pair.now);
    });
    let over = |core: &mut dyn FnMut() -> Receive| core() == Receive::Reset(ResetCode::Idle);
    let now = pair.now;
    assert!(over(&mut || pair.air.session(near.0).unwrap().receive_datagram(near.1, now)));
    assert!(over(&mut || pair.hub.session(far.0).unwrap().receive_datagram(far.1, now)));
    let session = pair.air.session(other_near.0).unwrap();
    assert_eq!(session.receive_datagram(other_near.1, now), Receive::Blocked);
    session.send_datagram(other_near.1, b"and so am I", now).unwrap();
}

#[test]
fn the_longest_payload_follows_the_path_mtu() {
    let mut pair = Pair::new(6, 0.0);
    pair.connect();
    let (near, far) = flow(&mut pair);
    pair.run_for(ONE_WAY * 8, |_| {});
    let now = pair.now;
    let session = pair.air.session(near.0).unwrap();
    assert_eq!(session.mtu_bytes(), 1500);
    let max = session.max_datagram_bytes(near.1);
    assert!(max >= 1420, "{max} bytes");
    let longer = vec![1; max + 1];
    let refused = session.send_datagram(near.1, &longer, now);
    assert_eq!(refused, Err(SendError::TooLarge { max }));
    session.send_datagram(near.1, &longer[..max], now).unwrap();
    pair.run_for(ONE_WAY + Duration::from_millis(100), |_| {});
    assert_eq!(receive_all(&mut pair.hub, far, pair.now), [&longer[..max]]);
    // The path shrinks amid datagrams of the old length: they are refused, shorter ones pass.
    pair.up.mtu_bytes = 1400;
    let (mut next, mut refusals, mut came) = (pair.now, 0, Vec::new());
    pair.run_for(Duration::from_secs(60), |pair| {
        while next <= pair.now {
            let session = pair.air.session(near.0).unwrap();
            if session.send_datagram(near.1, &longer[..max], pair.now).is_err() {
                refusals += 1;
                let max = session.max_datagram_bytes(near.1);
                session.send_datagram(near.1, &longer[..max], pair.now).unwrap();
            }
            next += Duration::from_millis(20);
        }
        pair.flush();
        came.extend(receive_all(&mut pair.hub, far, pair.now));
    });
    let session = pair.air.session(near.0).unwrap();
    assert!(session.mtu_bytes() <= 1400 && session.max_datagram_bytes(near.1) < max);
    assert!(refusals > 1000 && came.len() > 1000, "{refusals} refusals, {} came", came.len());
    assert_eq!(counters(&mut pair.hub, far.0).violations, 0);
}

#[test]
fn a_stopped_reader_loses_the_oldest_datagrams_and_holds_no_memory() {
    let mut pair = Pair::new(7, 0.0);
    pair.connect();
    let (near, far) = flow(&mut pair);
    let (mut number, payload) = (0u32, bytes(1000));
    let mut next = pair.now;
    pair.run_for(Duration::from_secs(30), |pair| {
        while next <= pair.now {
            let payload = [&number.to_be_bytes()[..], &payload].concat();
            pair.hub.session(far.0).unwrap().send_datagram(far.1, &payload, pair.now).unwrap();
            (number, next) = (number + 1, next + Duration::from_millis(10));
        }
    });
    pair.run_for(Duration::from_secs(2), |_| {});
    let air = counters(&mut pair.air, near.0);
    assert_eq!(air.datagrams_received, u64::from(number));
    assert!(air.held_bytes <= 256 << 10, "{} bytes held", air.held_bytes);
    let waiting = receive_all(&mut pair.air, near, pair.now);
    let air = counters(&mut pair.air, near.0);
    assert_eq!(air.datagrams_dropped + waiting.len() as u64, u64::from(number));
    assert_eq!(waiting.last().unwrap()[..4], (number - 1).to_be_bytes());
    assert!(waiting.len() < 100, "{} wait, some for more than 3 s", waiting.len());
}

#[test]
fn a_datagram_does_not_wait_for_another_passengers_bulk() {
    let mut pair = Pair::new(8, 0.0);
    pair.connect();
    let bulk = pair.open(b"");
    let bulk_far = pair.accept();
    let (near, far) = flow(&mut pair);
    let (body, mut at) = (bytes(20_000_000), 0);
    let (mut next, mut sent, mut waits) = (pair.now + Duration::from_secs(10), None, Vec::new());
    let mut sink = vec![0; 1 << 16];
    pair.run_for(Duration::from_secs(60), |pair| {
        write_all(&mut pair.hub, bulk_far, pair.now, &body, &mut at);
        let now = pair.now;
        while let bentpipe_link::Read::Taken(_) =
            pair.air.session(bulk.0).unwrap().read(bulk.1, &mut sink, now)
        {}
        if next <= pair.now {
            pair.hub.session(far.0).unwrap().send_datagram(far.1, &[0; 100], now).unwrap();
            (sent, next) = (Some(now), now + Duration::from_millis(700));
        }
        pair.flush();
        if !receive_all(&mut pair.air, near, now).is_empty() {
            waits.extend(sent.take().map(|sent| now - sent - ONE_WAY));
        }
    });
    waits.sort();
    assert!(waits.len() > 60, "{} came", waits.len());
    // At a lease of exactly its rate, the link's queue keeps the burst that the pacer began with.
    let (p95, max) = (waits[waits.len() * 95 / 100], RATE.time_for(4 * 1500));
    assert!(p95 < max, "{p95:?}, four packets take {max:?}");
}

#[test]
fn datagrams_released_together_after_a_gap_are_not_dropped() {
    let settings = Settings { rate: BitRate::from_bps(8_000_000), ..Settings::default() };
    let mut pair = Pair::with(5, 0.01, settings);
    pair.connect();
    let (near, far) = flow(&mut pair);
    pair.air.session(near.0).unwrap().keep_order(near.1);
    pair.run_for(Duration::from_secs(5), |_| {});
    let (payload, mut came, mut handed, mut read_at) = (bytes(1200), 0u64, 0, pair.now);
    pair.run_for(Duration::from_secs(30), |pair| {
        keep_backlogged(pair, far, &payload, &mut handed);
        // Its reader has other work too, and returns within 200 kB.
        if pair.now >= read_at {
            read_at = pair.now + Duration::from_millis(200);
            came += receive_all(&mut pair.air, near, pair.now).len() as u64;
        }
    });
    let counted = counters(&mut pair.air, near.0);
    assert!(came > 20_000, "{came} came");
    assert_eq!(counted.datagrams_dropped, 0, "{counted:?}");
}
