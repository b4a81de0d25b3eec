use super::*;
use bentpipe_flow::ResetCode;
use bentpipe_transport::DatagramError;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::collections::HashSet;
use std::time::Duration;

/// A flow without data, for tests of opening and closing.
struct Nothing;

impl FlowDatagrams for Nothing {
    fn send(&self, _: &[u8]) -> Result<(), DatagramError> {
        Ok(())
    }
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(std::future::pending())
    }
    fn max_bytes(&self) -> usize {
        1200
    }
    fn reset(&self, _: ResetCode) {}
}

fn port(binding: &NatBinding) -> u16 {
    binding.mapping.socket.local_addr().unwrap().port()
}

const OWNER: MappingKey = MappingKey {
    aircraft: [1; 32],
    passenger: 1,
    protocol: ip::UDP,
    source: 4000,
    is_gateway: true,
};

fn mappings(own: usize, shared: usize) -> Arc<Mappings> {
    Mappings::new(
        Arc::default(),
        Default::default(),
        Budget { own, shared },
        Arc::new(|_| String::new()),
    )
}

fn owner(aircraft: u8, source: u16) -> MappingKey {
    MappingKey { aircraft: [aircraft; 32], source, ..OWNER }
}

#[tokio::test]
async fn one_port_for_all_destinations_of_one_source() {
    let mappings = mappings(100, 1);
    let binding =
        |owner, to: &str| mappings.binding(owner, to.parse().unwrap(), Arc::new(Nothing)).unwrap();
    let first = binding(OWNER, "127.0.0.1:1");
    let second = binding(OWNER, "127.0.0.1:2");
    assert_eq!(port(&first), port(&second));
    for other in [
        MappingKey { passenger: 2, ..OWNER },
        MappingKey { source: 4001, ..OWNER },
        MappingKey { aircraft: [2; 32], ..OWNER },
    ] {
        assert_ne!(port(&binding(other, "127.0.0.1:1")), port(&first));
    }
    // The same destination twice: the answers would be ambiguous.
    let twice = binding(OWNER, "127.0.0.1:1");
    assert_ne!(port(&twice), port(&first));
    drop(twice);
    assert_eq!(port(&binding(OWNER, "127.0.0.1:3")), port(&first));
    let nameless = MappingKey { source: 0, ..OWNER };
    let (a, b) = (binding(nameless, "127.0.0.1:1"), binding(nameless, "127.0.0.1:2"));
    assert_ne!(port(&a), port(&b));
    let kept_and_own = || {
        let table = mappings.table.lock();
        (table.kept.len(), table.own[0].total().0)
    };
    assert_eq!(kept_and_own(), (1, 3));
    drop((first, second, a, b));
    assert_eq!(kept_and_own(), (0, 0));
}

#[tokio::test]
async fn shared_ports_have_one_flow_for_each_destination() {
    let mappings = mappings(100, 4);
    let share = |source, to: &str| {
        let (owner, to) = (owner(1, source), to.parse().unwrap());
        mappings.share(owner, to, Arc::new(Nothing)).unwrap()
    };
    let shared = || mappings.table.lock().shared.values().map(Vec::len).sum::<usize>();
    let own = || mappings.table.lock().own[0].total().0;
    let ports = |bindings: &[NatBinding]| bindings.iter().map(port).collect::<HashSet<_>>().len();
    let mut bindings: Vec<_> = (1..=100).map(|n| share(n, &format!("127.0.0.1:{n}"))).collect();
    assert_eq!((shared(), own(), ports(&bindings)), (4, 0, 4));
    // More flows to one destination than there are shared ports.
    bindings.extend((101..=112).map(|n| share(n, "127.0.0.1:1000")));
    assert_eq!(shared(), 4);
    assert!((8..=11).contains(&own()), "{}", own());
    assert_eq!(ports(&bindings), 4 + own());
    let mut pairs: Vec<_> = bindings.iter().map(|it| (port(it), it.address)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), bindings.len(), "no destination sees two flows from one port");
    drop(bindings);
    assert_eq!((shared(), own()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_ends_for_another_tells_its_flows() {
    let mappings = mappings(2, 1);
    let binding =
        |owner| mappings.binding(owner, "127.0.0.1:1".parse().unwrap(), Arc::new(Nothing));
    let idlest = binding(owner(1, 1)).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let other = binding(owner(1, 2)).unwrap();
    let newcomer = binding(owner(2, 1)).unwrap();
    idlest.ended().await;
    assert_eq!(mappings.counters.refusals.count_evicted(Limit::UdpPorts), 1);
    newcomer.peer.lock().moved.lock().is_answered = true;
    let refused = binding(owner(2, 2)).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(mappings.counters.refusals.count_refused(Limit::UdpPorts), 1);
    // The same port again gets a new mapping, and dropping the old one does not end it.
    drop(other);
    let again = binding(owner(1, 1)).unwrap();
    drop(idlest);
    assert!(mappings.table.lock().kept.values().any(|known| Arc::ptr_eq(known, &again.mapping)));
    assert_eq!(mappings.table.lock().kept.len(), 2);
}

#[tokio::test]
async fn refusals_by_the_kernel_and_for_a_taken_destination_are_counted() {
    let mappings = mappings(100, 1);
    let count = |limit| mappings.counters.refusals.count_refused(limit);
    let to = "127.0.0.1:1".parse().unwrap();
    mappings.count_kernel(&io::ErrorKind::AddrInUse.into(), OWNER, to);
    mappings.count_kernel(&io::ErrorKind::PermissionDenied.into(), OWNER, to);
    mappings.count_kernel(&io::Error::from_raw_os_error(libc::EMFILE), OWNER, to);
    assert_eq!((count(Limit::KernelPorts), count(Limit::Descriptors)), (1, 1));
    let esp = MappingKey { protocol: 50, source: 0, ..OWNER };
    let first = mappings.taken.take(50, to.ip()).unwrap();
    let refused = mappings.binding(esp, to, Arc::new(Nothing)).err().unwrap();
    assert_eq!((refused.kind(), count(Limit::RawDestinations)), (io::ErrorKind::AddrInUse, 1));
    drop(first);
    assert_eq!(count(Limit::UdpPorts), 0);
}
