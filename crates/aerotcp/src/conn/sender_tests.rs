use super::*;
use crate::segment::Block;

const RTT: Duration = Duration::from_millis(480);

/// A half with `packets` packets of one byte in flight, numbers 1 and up, all sent at time zero.
fn sent(packets: u32) -> Sender {
    let mut sender = Sender::new(false, 1 << 20, RTT);
    sender.write(&vec![0; packets as usize]);
    let numbers = all(&mut sender, packets, Duration::ZERO);
    assert_eq!(numbers, (1..=u64::from(packets)).collect::<Vec<_>>());
    sender
}

/// Takes all packets that may be sent now.
fn all(sender: &mut Sender, window: u32, now: Duration) -> Vec<u64> {
    std::iter::from_fn(|| sender.next(window, |_| 1, now)).map(|packet| packet.start).collect()
}

fn ack(number: u64, blocks: &[(u64, u64)]) -> Ack {
    let blocks = blocks.iter().map(|(start, end)| Block { start: *start, end: *end }).collect();
    Ack { number, window: 1 << 20, blocks }
}

#[test]
fn the_window_counts_packets_and_slides() {
    let mut sender = sent(4);
    sender.write(&[0; 10]);
    assert_eq!(all(&mut sender, 4, RTT), [0_u64; 0]);
    sender.acknowledge(&ack(3, &[]), 4, RTT).unwrap();
    assert_eq!(all(&mut sender, 4, RTT), [5, 6]);
    assert_eq!(all(&mut sender, 6, RTT), [7, 8], "an adaptive window has grown");
    assert_eq!(sender.recovery(), None);
}

#[test]
fn recovery_lasts_from_the_first_duplicate_to_the_recovery_acknowledgement() {
    let mut sender = sent(4);
    let now = RTT;
    sender.acknowledge(&ack(1, &[(2, 3)]), 4, now).unwrap();
    assert_eq!(sender.recovery(), Some(Recovery { point: 5, pipe: 3 }));
    assert_eq!(all(&mut sender, 4, now), [1]);
    assert_eq!(sender.recovery().unwrap().pipe, 4, "initialised as the window");
    sender.acknowledge(&ack(1, &[(2, 3)]), 4, now).unwrap();
    assert_eq!(sender.recovery().unwrap().pipe, 4, "a duplicate that reports nothing new");
    sender.acknowledge(&ack(1, &[(2, 4)]), 4, now).unwrap();
    assert_eq!(sender.recovery().unwrap().pipe, 3);
    sender.acknowledge(&ack(4, &[]), 4, now).unwrap();
    assert_eq!(sender.recovery().unwrap().pipe, 1, "a partial acknowledgement");
    sender.acknowledge(&ack(5, &[]), 4, now).unwrap();
    assert_eq!(sender.recovery(), None);
}

#[test]
fn a_lost_retransmission_is_sent_twice_after_the_timeout() {
    let mut sender = sent(4);
    sender.write(&[0; 8]);
    sender.acknowledge(&ack(1, &[(2, 3)]), 4, RTT).unwrap();
    assert_eq!(all(&mut sender, 4, RTT), [1]);
    // However many duplicates arrive, 1 is not retransmitted for them.
    let mut now = RTT;
    for (step, end) in (4..=12).enumerate() {
        now = RTT * 2 + Duration::from_millis(step as u64);
        sender.acknowledge(&ack(1, &[(2, end)]), 4, now).unwrap();
        assert!(all(&mut sender, 4, now).iter().all(|number| *number > 4));
    }
    let due = sender.deadline().unwrap();
    assert_eq!(due, RTT + sender.timer().timeout(), "from when it was sent again");
    assert!(!sender.on_timeout(due - Duration::from_nanos(1)) && sender.timeouts() == 0);
    assert!(!sender.on_timeout(due));
    let pipe = sender.recovery().unwrap().pipe;
    assert_eq!(all(&mut sender, 4, due.max(now))[..2], [1, 1], "two copies");
    assert!(sender.recovery().unwrap().pipe >= pipe);
    assert_eq!(sender.timeouts(), 1);
    sender.acknowledge(&ack(12, &[]), 4, due + RTT).unwrap();
    assert_eq!(sender.recovery(), None);
}

#[test]
fn a_lost_tail_is_retransmitted_after_the_timeout() {
    let mut sender = sent(3);
    sender.acknowledge(&ack(2, &[]), 8, RTT).unwrap();
    assert_eq!((sender.recovery(), all(&mut sender, 8, RTT)), (None, vec![]));
    let due = sender.deadline().unwrap();
    sender.on_timeout(due);
    // 3 was sent with 2 and is overdue too: it is missing, and the window does not change.
    assert_eq!(all(&mut sender, 8, due), [2, 2, 3]);
    assert_eq!(sender.recovery().map(|recovery| recovery.pipe), Some(2));
    let second = sender.deadline().unwrap();
    assert!(second - due > due, "the timeout has doubled: {second:?} after {due:?}");
    sender.acknowledge(&ack(3, &[]), 8, due + RTT).unwrap();
    assert_eq!(
        all(&mut sender, 8, due + RTT),
        [0_u64; 0],
        "3 was sent again only a round trip ago"
    );
    let third = sender.deadline().unwrap();
    assert_eq!(third, due + sender.timer().timeout());
    sender.on_timeout(third);
    assert_eq!(all(&mut sender, 8, third), [3, 3]);
    sender.acknowledge(&ack(4, &[]), 8, third + RTT).unwrap();
    assert_eq!((sender.recovery(), sender.deadline()), (None, None));
}

#[test]
fn an_acknowledged_packet_is_not_sent_again() {
    let mut sender = sent(2);
    let due = sender.deadline().unwrap();
    sender.on_timeout(due);
    assert_eq!(sender.next(8, |_| 1, due).map(|packet| packet.start), Some(1));
    sender.acknowledge(&ack(3, &[]), 8, due).unwrap();
    assert_eq!(all(&mut sender, 8, due), [0_u64; 0]);
}

#[test]
fn the_peers_window_bounds_new_data_and_is_probed_when_closed() {
    let mut sender = Sender::new(true, 3, RTT);
    sender.write(b"abcdefgh");
    let syn = sender.next(8, |_| 2, RTT).unwrap();
    assert!(syn.syn && syn.start == 0 && &syn.payload[..] == b"ab" && syn.end == 3);
    let rest = sender.next(8, |_| 2, RTT).unwrap();
    assert_eq!((rest.start, &rest.payload[..]), (3, &b"c"[..]));
    assert!(sender.next(8, |_| 2, RTT).is_none());
    let closed = Ack { number: 4, window: 0, blocks: vec![] };
    sender.acknowledge(&closed, 8, RTT * 2).unwrap();
    assert!(sender.next(8, |_| 2, RTT * 2).is_none());
    let due = sender.deadline().unwrap();
    assert!(due > RTT * 3 && sender.on_timeout(due), "a probe");
    let again = sender.deadline().unwrap();
    assert!(again - due > due - RTT * 2, "ever more rarely");
    sender.acknowledge(&Ack { window: 2, ..closed }, 8, again).unwrap();
    let packet = sender.next(8, |_| 9, again).unwrap();
    assert_eq!((packet.start, &packet.payload[..]), (4, &b"de"[..]));
}

#[test]
fn the_fin_takes_a_number_but_no_room() {
    let mut sender = Sender::new(false, 2, RTT);
    sender.write(b"ab");
    sender.finish();
    sender.write(b"too late");
    let last = sender.next(8, |_| 9, RTT).unwrap();
    assert!(last.fin && last.end == 4 && &last.payload[..] == b"ab");
    assert!(!sender.is_done());
    sender.acknowledge(&ack(4, &[]), 8, RTT).unwrap();
    assert!(sender.is_done() && sender.deadline().is_none());

    let mut empty = Sender::new(false, 0, RTT);
    empty.finish();
    let fin = empty.next(8, |_| 9, RTT).unwrap();
    assert!(fin.fin && fin.payload.is_empty() && (fin.start, fin.end) == (1, 2));
}

#[test]
fn acknowledgements_of_unsent_data_are_refused() {
    let mut sender = sent(3);
    assert_eq!(sender.acknowledge(&ack(5, &[]), 8, RTT), Err(NeverSent));
    assert_eq!(sender.acknowledge(&ack(1, &[(3, 9)]), 8, RTT), Err(NeverSent));
    assert_eq!(sender.acknowledge(&ack(4, &[]), 8, RTT), Ok(()));
    assert_eq!(sender.acknowledge(&ack(2, &[]), 8, RTT), Ok(()), "overtaken on the way");
    assert!(sender.held_bytes() == 0);
}

#[test]
fn packets_in_flight_are_not_abandoned() {
    let mut sender = sent(2);
    sender.write(&[0; 100]);
    sender.abandon();
    assert_eq!(sender.held_bytes(), 2);
    assert_eq!(all(&mut sender, 8, RTT), [3], "the FIN");
}
