//! The sequence of the paper's Figure 4, and more losses in a window, over a slotted channel.
//!
//! A slot is the time of one packet. The round trip in slots equals the window in packets, as in
//! the figure. In each slot the sender first receives an acknowledgement, then sends one allowed
//! packet.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use super::receiver::Receiver;
use super::sender::Sender;
use crate::pool::Pool;
use crate::segment::{Ack, Data};

const SLOT: Duration = Duration::from_millis(60);

/// Both halves and the channel between them. Packets have one byte, so their sequence numbers count
/// them.
struct Channel {
    sender: Sender,
    receiver: Receiver,
    pool: Pool,
    window: u32,
    line: VecDeque<(u64, Vec<u8>)>,
    to_receiver: BTreeMap<u32, (u64, Vec<u8>)>,
    to_sender: BTreeMap<u32, Ack>,
    sendings: BTreeMap<u64, u32>,
    duplicates: u32,
    last_ack: u64,
    received: usize,
    trace: String,
}

impl Channel {
    fn new(window: u32, packets: usize) -> Self {
        let rtt = SLOT * window;
        let mut sender = Sender::new(false, 1 << 20, rtt);
        sender.write(&vec![7; packets]);
        Self {
            sender,
            receiver: Receiver::new(1, 1 << 20),
            pool: Pool::new(1 << 20),
            window,
            line: VecDeque::new(),
            to_receiver: BTreeMap::new(),
            to_sender: BTreeMap::new(),
            sendings: BTreeMap::new(),
            duplicates: 0,
            last_ack: 0,
            received: 0,
            trace: String::new(),
        }
    }

    /// Runs `slots`. `lost` decides for a packet, and for the number of its transmission, if it is
    /// lost.
    fn run(&mut self, slots: u32, lost: impl Fn(u64, u32) -> bool) {
        for slot in 1..=slots {
            let now = SLOT * slot;
            let mut line = self.hear(slot, now);
            if self.sender.deadline().is_some_and(|at| at <= now) {
                self.sender.on_timeout(now);
                line.push_str("  timeout");
            }
            self.let_go(now);
            line.push_str(&self.send_one(slot, &lost));
            if !line.is_empty() {
                writeln!(self.trace, "{slot:>4}{line}").unwrap();
            }
            self.arrive(slot);
        }
    }

    fn hear(&mut self, slot: u32, now: Duration) -> String {
        let Some(ack) = self.to_sender.remove(&slot) else { return String::new() };
        let before = self.sender.recovery();
        self.sender.acknowledge(&ack, self.window, now).unwrap();
        // As the figure counts: `A0` acknowledges packet 0, and repetitions are duplicates.
        let number = ack.number - 1;
        self.duplicates = if number == self.last_ack { self.duplicates + 1 } else { 0 };
        self.last_ack = number;
        let pipe = |sender: &Sender| sender.recovery().map(|recovery| recovery.pipe);
        let after = pipe(&self.sender);
        self.let_go(now);
        let mut line = format!("  A{number}");
        for block in &ack.blocks {
            write!(line, " [{}-{}]", block.start, block.end - 1).unwrap();
        }
        match (before, self.sender.recovery()) {
            (None, None) => {}
            (None, Some(_)) => write!(line, "  dupacks={} recovery", self.duplicates).unwrap(),
            (Some(_), Some(_)) if self.duplicates > 0 => {
                write!(line, "  dupacks={}", self.duplicates).unwrap();
            }
            (Some(_), Some(_)) => line.push_str("  partial"),
            (Some(_), None) => line.push_str("  recovered"),
        }
        if let (Some(after), Some(then)) = (after, pipe(&self.sender)) {
            write!(line, " pipe={after}+{}", then - after).unwrap();
        }
        line
    }

    fn let_go(&mut self, now: Duration) {
        while let Some(packet) = self.sender.next(self.window, |_| 1, now) {
            self.line.push_back((packet.start, packet.payload.to_vec()));
        }
    }

    fn send_one(&mut self, slot: u32, lost: &impl Fn(u64, u32) -> bool) -> String {
        let Some((number, payload)) = self.line.pop_front() else { return String::new() };
        let sending = self.sendings.entry(number).or_default();
        *sending += 1;
        let again = if *sending > 1 { " again" } else { "" };
        if lost(number, *sending) {
            return format!("  -> {number}{again}  lost");
        }
        self.to_receiver.insert(slot + self.window / 2, (number, payload));
        format!("  -> {number}{again}")
    }

    fn arrive(&mut self, slot: u32) {
        let Some((seq, payload)) = self.to_receiver.remove(&slot) else { return };
        let data = Data { seq, syn: None, fin: false, payload: &payload };
        self.receiver.take(&data, &mut self.pool);
        let mut buffer = [0; 4096];
        let ack = self.receiver.ack();
        self.received += self.receiver.read(&mut buffer, &mut self.pool);
        self.to_sender.insert(slot + self.window - self.window / 2, ack);
    }
}

#[test]
fn figure_4_two_losses_in_a_window_of_eight() {
    let mut channel = Channel::new(8, 30);
    channel.run(40, |number, sending| number <= 2 && sending == 1);
    let expected: String = include_str!("../../tests/figure4.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(channel.trace == expected, "the sequence is another one:\n{}", channel.trace);
}

/// A window in which the first `losses` packets are lost. Everything arrives without a timeout, and
/// the whole window is used afterwards.
fn losses_in_a_window(losses: u64, window: u32) -> Channel {
    let packets = 4 * window;
    let mut channel = Channel::new(window, packets as usize);
    // The window, a round trip for the retransmissions, one for the data held back, and the rest.
    channel.run(8 * window, |number, sending| number <= losses && sending == 1);
    assert_eq!(channel.received, packets as usize, "{}", channel.trace);
    assert_eq!(channel.sender.timeouts(), 0, "{}", channel.trace);
    assert!(channel.sendings.values().skip(losses as usize).all(|times| *times == 1));
    assert!(channel.sendings.values().take(losses as usize).all(|times| *times == 2));
    channel
}

/// Slot in which `what` first occurs in the trace.
fn slot_of(channel: &Channel, what: &str) -> u32 {
    let line = channel.trace.lines().find(|line| line.contains(what));
    let line = line.unwrap_or_else(|| panic!("{what} never happens:\n{}", channel.trace));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn one_two_three_and_ten_losses_are_repaired_in_one_round_trip() {
    for (losses, window) in [(1, 8), (2, 8), (3, 8), (10, 24)] {
        let channel = losses_in_a_window(losses, window);
        let (begun, over) = (slot_of(&channel, "recovery pipe"), slot_of(&channel, "recovered"));
        // One retransmission per slot. The last one arrives one round trip later.
        assert_eq!(over - begun, window + losses as u32 - 1, "{losses}:\n{}", channel.trace);
    }
}

#[test]
fn scattered_losses_are_repaired_as_duplicates_arrive() {
    let mut channel = Channel::new(24, 96);
    let lost = |number, sending| sending == 1 && number <= 20 && number % 2 == 1;
    channel.run(24 * 8, lost);
    assert_eq!((channel.received, channel.sender.timeouts()), (96, 0), "{}", channel.trace);
    let over = slot_of(&channel, "recovered") - slot_of(&channel, "recovery pipe");
    // The last hole is known when packet 20 is reported, 18 slots after the first one.
    assert_eq!(over, 24 + 18, "{}", channel.trace);
}

#[test]
fn more_holes_than_duplicates_take_another_round_trip() {
    // Ten losses in a window of 12: only two duplicates arrive, and each releases one packet.
    let channel = losses_in_a_window(10, 12);
    let (begun, over) = (slot_of(&channel, "recovery pipe"), slot_of(&channel, "recovered"));
    assert!(over - begun > 12 + 10 && over - begun < 4 * 12, "{}", channel.trace);
}

#[test]
fn a_lost_retransmission_costs_a_timeout_but_no_window() {
    let mut channel = Channel::new(8, 64);
    channel.run(100, |number, sending| number == 1 && sending <= 2);
    assert_eq!((channel.received, channel.sender.timeouts()), (64, 1), "{}", channel.trace);
    assert_eq!(channel.sendings[&1], 4, "two copies after the timeout");
    assert!(channel.sendings.iter().all(|(number, times)| *number == 1 || *times == 1));
}

#[test]
fn a_completely_lost_window_recovers_after_one_timeout() {
    let mut channel = Channel::new(8, 64);
    channel.run(120, |number, sending| number <= 8 && sending == 1);
    assert_eq!(channel.received, 64, "{}", channel.trace);
    let timeouts = channel.sender.timeouts();
    assert!(timeouts <= 2, "{timeouts} timeouts:\n{}", channel.trace);
}
