//! Checks of written links.

use super::*;

fn direction(text: &str) -> Result<DirectionSpec, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
}

fn why(text: &str) -> String {
    direction(text).unwrap_err()
}

#[test]
fn queues_are_bytes_time_or_bandwidth_delay_products() {
    let bytes = |queue: &str| {
        let text = format!("rate = '8 Mbit/s'\ndelay = '325 ms'\n{queue}");
        direction(&text).unwrap().queue().unwrap().bytes()
    };
    assert_eq!(bytes(""), 650_000);
    assert_eq!(bytes("queue = '0.5 BDP'"), 325_000);
    assert_eq!(bytes("queue = '100 ms'"), 100_000);
    assert_eq!(bytes("queue = '64 KiB'"), 65_536);
    let short = direction("rate = '1 Mbit/s'\ndelay = '1 ms'").unwrap();
    assert_eq!(short.queue().unwrap().bytes(), 15_000);
    assert_eq!(direction("delay = '1 s'").unwrap().queue(), None);
}

#[test]
fn an_ecn_threshold_is_written_like_a_queue_and_lies_below_it() {
    let rate = "rate = '8 Mbit/s'\ndelay = '325 ms'\n";
    let marks = direction(&format!("{rate}ecn-threshold = '0.5 BDP'")).unwrap();
    assert_eq!(marks.ecn_threshold(), Some(ByteSize::from_bytes(325_000)));
    assert_eq!(direction(rate).unwrap().ecn_threshold(), None);
    assert!(why(&format!("{rate}ecn-threshold = '1 BDP'")).contains("not below the `queue`"));
    assert!(why("ecn-threshold = '10 ms'").contains("`rate`"));
}

#[test]
fn a_link_computes_its_bandwidth_delay_product_from_both_directions() {
    let link: LinkSpec = toml::from_str(
        "forward = { rate = '8 Mbit/s', delay = '300 ms' }\n\
         return = { rate = '4 Mbit/s', delay = '350 ms', queue = '2 BDP' }",
    )
    .unwrap();
    assert_eq!(link.rtt(), Duration::from_millis(650));
    assert_eq!(link.forward.queue(), Some(ByteSize::from_bytes(650_000)));
    assert_eq!(link.return_.queue(), Some(ByteSize::from_bytes(650_000)));
}

#[test]
fn means_include_every_part() {
    let spec = direction(
        "rate = { series = { steps = [['0 s', '2 Mbit/s'], ['1 s', '4 Mbit/s']], repeat = '2 s' } }\n\
         delay = '100 ms'\njitter = { shape = 'exponential', mean = '20 ms' }\n\
         loss = '10 %'\nber = 1e-5",
    )
    .unwrap();
    assert_eq!(spec.rate(), Some(BitRate::from_bps(3_000_000)));
    assert_eq!(spec.mean_delay(), Duration::from_millis(120));
    let expected = 1.0 - 0.9 * (1.0 - 1e-5f64).powi(8000);
    assert!((spec.mean_loss(1000) - expected).abs() < 1e-9);
}

#[test]
fn a_sweep_replaces_every_loss_of_a_direction() {
    let spec = direction("rate = '1 Mbit/s'\nloss = '3 %'\nber = 1e-5").unwrap();
    let six = Ratio::new(0.06).unwrap();
    let random = spec.clone().with_loss(six, 1.0).unwrap();
    assert_eq!(random, direction("rate = '1 Mbit/s'\nloss = '6 %'").unwrap());
    let bursts = spec.clone().with_loss(six, 4.0).unwrap();
    let raw = "rate = '1 Mbit/s'\nloss = { gilbert-elliott = { mean = '6 %', burst = 4 } }";
    assert_eq!(bursts, direction(raw).unwrap());
    let ninety = Ratio::new(0.9).unwrap();
    let error = spec.clone().with_loss(ninety, 4.0).unwrap_err().to_string();
    assert!(error.contains("lengthen the bursts"), "{error}");
    assert!(spec.with_loss(six, 0.5).is_err());
    assert!(direction("").unwrap().with_loss(six, 4.0).is_err());
}

#[test]
fn errors_name_the_key_and_a_remedy() {
    assert!(why("rat = '1 Mbit/s'").contains("unknown field `rat`"));
    assert!(why("rate = '0 bit/s'").contains("outage"));
    assert!(why("rate = '2 MB/s'").contains("multiply by 8"));
    assert!(why("rate = { trace = 'x' }").contains("mahimahi"));
    assert!(why("rate = { mahimahi = 'x' }").contains("loaded from a file"));
    assert!(why("delay = 380").contains("delay = 380"));
    assert!(why("queue = '1 BDP'").contains("`rate`"));
    assert!(
        why("loss = { gilbert-elliott = { mean = '6 %', burst = 4 } }").contains("packet-time")
    );
    assert!(why("outages = { packets = 'held', scheduled = [['1 s', '1 s']] }").contains("lost"));
    let demand =
        "demand = { frame = '45 ms', slots = 16, free-slots = 1, request-delay = '520 ms' }";
    assert!(why(demand).contains("constant `rate`"));
    assert!(why(&format!("rate = '1 kbit/s'\n{demand}")).contains("fewer slots"));
    assert!(why("mtu = 576").contains("`mtu` is too small"));
    assert!(why("mtu = '1400'").contains("expected u32"));
    assert!(why("order = 'any'").contains("expected `kept` or `free`"));
}

#[test]
fn an_error_in_a_link_names_the_direction() {
    let error = toml::from_str::<LinkSpec>("[return]\nqueue = '1 BDP'").unwrap_err();
    assert!(error.to_string().contains("`return.queue`"), "{error}");
}

#[test]
fn a_trace_is_read_by_its_file_name() {
    let raw: RawLink = toml::from_str("forward.rate.mahimahi = 'a.trace'").unwrap();
    let read = |name: &str| match name {
        "a.trace" => Ok("1\n2\n".to_owned()),
        other => Err(format!("names {other}, which is not there")),
    };
    let link = raw.check(read).unwrap();
    assert_eq!(link.forward.rate(), Some(BitRate::from_bps(12_000_000)));
}

#[test]
fn a_policer_and_a_shaper_lower_the_sustained_rate() {
    let sustained = |text: &str| direction(text).unwrap().sustained_rate_at(Duration::ZERO);
    let mbit = |rate: u64| Some(BitRate::from_bps(rate * 1_000_000));
    let policer = "policer = { rate = '2 Mbit/s', bucket = '20 kB' }\n";
    let shaper = "shaper = { rate = '4 Mbit/s', bucket = '20 kB', queue = '100 ms' }\n";
    assert_eq!(sustained("rate = '20 Mbit/s'"), mbit(20));
    assert_eq!(sustained(&format!("{policer}rate = '20 Mbit/s'")), mbit(2));
    assert_eq!(sustained(&format!("{shaper}rate = '20 Mbit/s'")), mbit(4));
    assert_eq!(sustained(&format!("{shaper}{policer}")), mbit(2));
    assert_eq!(sustained(""), None);
    let spec = direction(&format!("{shaper}delay = '300 ms'")).unwrap();
    assert_eq!(spec.shaper.unwrap().queue_bytes, 50_000);
}

#[test]
fn impossible_buckets_and_queue_management_are_refused() {
    let policer = |rest: &str| why(&format!("policer = {{ {rest} }}"));
    assert!(policer("rate = '0 bit/s', bucket = '20 kB'").contains("`policer` has a rate of 0"));
    assert!(policer("rate = '1 Mbit/s', bucket = '1 kB'").contains("never passes a full packet"));
    assert!(policer("rate = '1 Mbit/s'").contains("bucket"));
    assert!(
        why("shaper = { rate = '1 Mbit/s', bucket = '1 B' }").contains("`shaper` has a bucket")
    );
    let codel = "aqm = { kind = 'codel' }\n";
    assert!(why(codel).contains("give a rate"));
    let rate = "rate = '1 Mbit/s'\n";
    assert!(direction(&format!("{codel}{rate}")).is_ok());
    assert!(why(&format!("{codel}{rate}ecn-threshold = '10 ms'")).contains("ecn = true"));
    let shaper = "shaper = { rate = '1 Mbit/s', bucket = '20 kB' }";
    assert!(why(&format!("{codel}{rate}{shaper}")).contains("drop-tail"));
    let demand =
        "demand = { frame = '45 ms', slots = 16, free-slots = 1, request-delay = '520 ms' }";
    assert!(why(&format!("{codel}{rate}{demand}")).contains("granted slots"));
}
