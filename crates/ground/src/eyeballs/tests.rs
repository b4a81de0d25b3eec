//! Ordering and timing, in virtual time with a simulated resolver and network.

use super::*;
use parking_lot::Mutex;
use tokio::time::sleep;

/// Delay and answer of a family's query.
#[derive(Clone)]
struct Script(u64, Answer);

struct Names {
    v6: Script,
    v4: Script,
}

impl Resolve for Names {
    fn resolve(&self, _: String, family: Family) -> BoxFuture<'_, Answer> {
        let Script(after_ms, answer) =
            if family == Family::V6 { self.v6.clone() } else { self.v4.clone() };
        Box::pin(async move {
            sleep(Duration::from_millis(after_ms)).await;
            answer
        })
    }
}

/// A network in which each address answers after a fixed delay, or never.
struct Network {
    began: Instant,
    log: Mutex<Vec<(u64, String)>>,
    answers: Vec<(&'static str, u64, Result<(), io::ErrorKind>)>,
}

impl Network {
    fn new(answers: &[(&'static str, u64, Result<(), io::ErrorKind>)]) -> Self {
        Self { began: Instant::now(), log: Mutex::default(), answers: answers.to_vec() }
    }

    fn log(&self) -> Vec<(u64, String)> {
        self.log.lock().clone()
    }
}

impl Connect for Network {
    type Stream = String;
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<String>> {
        let ip = address.ip().to_string();
        let at = self.began.elapsed().as_millis() as u64;
        self.log.lock().push((at, ip.clone()));
        let answer = self.answers.iter().find(|(known, ..)| *known == ip).cloned();
        Box::pin(async move {
            let Some((_, after_ms, result)) = answer else { std::future::pending().await };
            sleep(Duration::from_millis(after_ms)).await;
            result.map(|()| ip).map_err(io::Error::from)
        })
    }
}

fn ips(list: &[&str]) -> Answer {
    Ok(list.iter().map(|ip| ip.parse().unwrap()).collect())
}

async fn race(names: Names, network: &Network) -> Result<String, ResetCode> {
    let permit = |ip: IpAddr| (!ip.is_loopback()).then_some(ip);
    dial(&names, network, &permit, ("x.test", 80), Duration::from_secs(10)).await
}

fn at(log: &[(u64, &str)]) -> Vec<(u64, String)> {
    log.iter().map(|(at, ip)| (*at, (*ip).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn families_take_turns_a_quarter_second_apart() {
    let network = Network::new(&[("1.0.0.2", 10, Ok(()))]);
    let names = Names {
        v6: Script(5, ips(&["2a00::1", "2a00::2", "2a00::3"])),
        v4: Script(5, ips(&["1.0.0.1", "1.0.0.2"])),
    };
    assert_eq!(race(names, &network).await.as_deref(), Ok("1.0.0.2"));
    let expected = [(5, "2a00::1"), (255, "1.0.0.1"), (505, "2a00::2"), (755, "1.0.0.2")];
    assert_eq!(network.log(), at(&expected));
}

#[tokio::test(start_paused = true)]
async fn ipv4_waits_fifty_milliseconds_for_ipv6() {
    let network = Network::new(&[("1.0.0.1", 10, Ok(())), ("2a00::1", 10, Ok(()))]);
    let names = Names { v6: Script(40, ips(&["2a00::1"])), v4: Script(10, ips(&["1.0.0.1"])) };
    assert_eq!(race(names, &network).await.as_deref(), Ok("2a00::1"));
    assert_eq!(network.log(), at(&[(40, "2a00::1")]));

    let network = Network::new(&[("1.0.0.1", 10, Ok(()))]);
    let names = Names { v6: Script(3000, ips(&["2a00::1"])), v4: Script(10, ips(&["1.0.0.1"])) };
    assert_eq!(race(names, &network).await.as_deref(), Ok("1.0.0.1"));
    assert_eq!(network.log(), at(&[(60, "1.0.0.1")]));
}

#[tokio::test(start_paused = true)]
async fn a_name_without_ipv6_loses_no_time() {
    let network = Network::new(&[("1.0.0.1", 10, Ok(()))]);
    let names =
        Names { v6: Script(20, Err(ResetCode::NameNotFound)), v4: Script(10, ips(&["1.0.0.1"])) };
    assert_eq!(race(names, &network).await.as_deref(), Ok("1.0.0.1"));
    assert_eq!(network.log(), at(&[(20, "1.0.0.1")]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_brings_the_next_at_once() {
    let refused = Err(io::ErrorKind::ConnectionRefused);
    let network = Network::new(&[("2a00::1", 30, refused), ("1.0.0.1", 30, Ok(()))]);
    let names = Names { v6: Script(0, ips(&["2a00::1"])), v4: Script(0, ips(&["1.0.0.1"])) };
    assert_eq!(race(names, &network).await.as_deref(), Ok("1.0.0.1"));
    let log = network.log();
    assert_eq!(log[1].0 - log[0].0, 30);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_joins_in() {
    let network = Network::new(&[("2a00::1", 10, Ok(()))]);
    let names = Names {
        v6: Script(400, ips(&["2a00::1"])),
        v4: Script(0, ips(&["1.0.0.1", "1.0.0.2", "1.0.0.3"])),
    };
    assert_eq!(race(names, &network).await.as_deref(), Ok("2a00::1"));
    let expected = [(50, "1.0.0.1"), (300, "1.0.0.2"), (550, "2a00::1")];
    assert_eq!(network.log(), at(&expected));
}

#[tokio::test(start_paused = true)]
async fn failures_say_the_most_telling_thing() {
    let none = Err(ResetCode::NameNotFound);
    let refused = Err(io::ErrorKind::ConnectionRefused);
    let cases = [
        (none.clone(), none.clone(), ResetCode::NameNotFound),
        (ips(&["::1"]), none.clone(), ResetCode::Forbidden),
        (ips(&["::1"]), ips(&["127.0.0.1"]), ResetCode::Forbidden),
        (none.clone(), ips(&["1.0.0.9"]), ResetCode::Refused),
        (none.clone(), Err(ResetCode::Timeout), ResetCode::Timeout),
        (none, ips(&["1.0.0.1"]), ResetCode::Timeout),
    ];
    for (v6, v4, expected) in cases {
        let network = Network::new(&[("1.0.0.9", 10, refused)]);
        let names = Names { v6: Script(1, v6), v4: Script(1, v4) };
        assert_eq!(race(names, &network).await, Err(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_and_time_are_bounded() {
    let many: Vec<String> = (1..=60).map(|n| format!("1.0.0.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let network = Network::new(&[]);
    let names = Names { v6: Script(0, ips(&[])), v4: Script(0, ips(&many)) };
    let began = Instant::now();
    assert_eq!(race(names, &network).await, Err(ResetCode::Timeout));
    assert_eq!(network.log().len(), MAX_ATTEMPTS);
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

/// A network without slots for attempts during another attempt.
struct WithoutSlots(Network);

impl Connect for WithoutSlots {
    type Stream = String;
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<String>> {
        self.0.connect(address)
    }
    fn slot(&self) -> Option<Slot> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn without_slots_each_attempt_waits_for_the_one_before() {
    let refused = Err(io::ErrorKind::ConnectionRefused);
    let network = Network::new(&[("2a00::1", 1_000, refused), ("1.0.0.1", 10, Ok(()))]);
    let network = WithoutSlots(network);
    let names = Names { v6: Script(0, ips(&["2a00::1"])), v4: Script(0, ips(&["1.0.0.1"])) };
    let permit = |ip: IpAddr| Some(ip);
    let dialled = dial(&names, &network, &permit, ("x.test", 80), Duration::from_secs(10)).await;
    assert_eq!(dialled.as_deref(), Ok("1.0.0.1"));
    let log = network.0.log();
    assert_eq!((log.len(), log[1].0 - log[0].0), (2, 1_000));
}
