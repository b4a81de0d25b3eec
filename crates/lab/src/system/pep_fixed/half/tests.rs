use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BOUNDS: Bounds = Bounds { buffer: 400_000, window: 60_000, reserve: 50_000 };
const DELAY: Duration = Duration::from_millis(250);

/// Two proxies and a link that loses one datagram in ten.
struct Link {
    halves: [Half; 2],
    under_way: VecDeque<(Duration, usize, Vec<u8>)>,
    rng: ChaCha8Rng,
    now: Duration,
    events: [Vec<Event>; 2],
}

impl Link {
    fn new() -> Self {
        let rng = ChaCha8Rng::seed_from_u64(1);
        let halves = [Half::new(BOUNDS), Half::new(BOUNDS)];
        let events = Default::default();
        Self { halves, under_way: VecDeque::new(), rng, now: Duration::ZERO, events }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(5);
            while self.under_way.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, to, datagram)) = self.under_way.pop_front() else { break };
                self.halves[to].datagram(&datagram, self.now);
            }
            for from in [0, 1] {
                self.halves[from].timeout(self.now);
                while let Some(datagram) = self.halves[from].transmit(self.now) {
                    if self.rng.random::<f64>() < 0.9 {
                        self.under_way.push_back((self.now + DELAY, 1 - from, datagram));
                    }
                }
                while let Some(event) = self.halves[from].next_event() {
                    if let Event::Bytes(flow, bytes) = &event {
                        self.halves[from].handed(*flow, bytes.len(), self.now);
                    }
                    self.events[from].push(event);
                }
            }
        }
    }

    fn received(&self, at: usize, flow: u32) -> Vec<u8> {
        let bytes = |event: &Event| match event {
            Event::Bytes(of, bytes) if *of == flow => bytes.to_vec(),
            _ => Vec::new(),
        };
        self.events[at].iter().flat_map(bytes).collect()
    }
}

#[test]
fn flows_cross_a_lossy_link_whole_and_both_proxies_forget_them() {
    let mut link = Link::new();
    let target = "198.18.3.2:80".parse().unwrap();
    let sent: Vec<u8> = (0..150_000u32).map(|at| (at % 251) as u8).collect();
    for flow in [1, 2] {
        link.halves[0].open(flow, target);
        for chunk in sent.chunks(10_000) {
            link.halves[0].took(flow, Bytes::copy_from_slice(chunk));
        }
        link.halves[0].near_ended(flow);
    }
    link.pass(Duration::from_secs(20));
    for flow in [1, 2] {
        assert!(link.events[1].contains(&Event::Open(flow, target)));
        assert!(link.received(1, flow) == sent, "flow {flow}");
        link.halves[1].took(flow, Bytes::from_static(b"answer"));
        link.halves[1].near_ended(flow);
    }
    link.pass(Duration::from_secs(20));
    for flow in [1, 2] {
        assert_eq!(link.received(0, flow), b"answer");
        assert_eq!(link.events[0].iter().filter(|it| **it == Event::End(flow)).count(), 1);
    }
    for half in &link.halves {
        assert_eq!((half.flows.len(), half.buffered, half.resets()), (0, 0, 0));
    }
}

/// Issues 1 and 4 of the report: a source that sends on after the stop signal has its flow reset.
#[test]
fn a_full_buffer_resets_the_flow_that_holds_most_of_it() {
    let mut link = Link::new();
    for flow in [1, 2] {
        link.halves[0].open(flow, "198.18.3.2:80".parse().unwrap());
    }
    let chunk = Bytes::from(vec![0; 50_000]);
    link.halves[0].took(1, chunk.clone());
    for _ in 0..6 {
        assert!(!link.halves[0].stopped());
        link.halves[0].took(2, chunk.clone());
    }
    link.halves[0].took(2, chunk.slice(..1));
    assert!(link.halves[0].stopped());
    assert_eq!(link.halves[0].next_event(), None);
    link.halves[0].took(2, chunk);
    assert_eq!(link.halves[0].next_event(), Some(Event::Reset(2)));
    assert_eq!((link.halves[0].resets(), link.halves[0].buffered), (1, 50_000));
    assert!(!link.halves[0].stopped());
    link.pass(Duration::from_secs(10));
    // The other proxy gets the reset, unless it never saw the flow.
    let opened = link.events[1].iter().any(|it| matches!(it, Event::Open(2, _)));
    assert_eq!(link.events[1].contains(&Event::Reset(2)), opened);
    assert_eq!(link.received(1, 1).len(), 50_000);
}
