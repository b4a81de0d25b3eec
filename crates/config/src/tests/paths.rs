//! Radios of a session.

use super::*;

fn air_with(bench: &Bench, paths: &str) -> Result<AirConfig, ConfigError> {
    AirConfig::parse(&bench.0.path().join("air.toml"), &format!("{AIR}{paths}"))
}

#[test]
fn radios_have_the_defaults_of_the_link() {
    let bench = Bench::new();
    let text = "[[path]]\nname = \"satellite\"\ninterface = \"eth1\"\n\
                [[path]]\nname = \"LTE\"\ninterface = \"wwan0\"\nmetered = true\nmtu = 1400\n\
                daily-limit = \"5 MB\"\n\
                [[path]]\nname = \"tower\"\nlocal-address = \"192.0.2.7\"\n\
                peer = \"198.51.100.1:4500\"\nrate = \"468 kbit/s\"\n";
    let air = air_with(&bench, text).unwrap();
    let [satellite, lte, tower] = &air.paths[..] else { panic!("{:?}", air.paths) };
    assert_eq!((satellite.rate, satellite.lease), (air.link.rate, LeaseSource::Static));
    assert_eq!((satellite.mtu, satellite.metered), (1500, false));
    assert_eq!((lte.lease, lte.mtu, lte.metered), (LeaseSource::Learned, 1400, true));
    assert_eq!(lte.daily_limit, Some(bentpipe_units::ByteSize::from_bytes(5_000_000)));
    assert_eq!(satellite.daily_limit, None);
    assert_eq!((tower.rate.bps(), tower.lease), (468_000, LeaseSource::Static));
    assert_eq!(tower.peer, Some("198.51.100.1:4500".parse().unwrap()));
    assert_eq!(tower.interface, None);
    assert!(air_with(&bench, "").unwrap().paths.is_empty());
}

#[test]
fn radios_that_cannot_work_are_told() {
    let bench = Bench::new();
    let why = |paths: &str| bench.message(air_with(&bench, paths));
    let nowhere = why("[[path]]\nname = \"LTE\"\n");
    assert!(nowhere.contains("nothing says which radio \"LTE\" is"), "{nowhere}");
    assert!(nowhere.contains("interface = \"wwan0\""), "{nowhere}");
    let radio = "[[path]]\nname = \"LTE\"\ninterface = \"wwan0\"\n";
    let twice = why(&format!("{radio}{radio}"));
    assert!(twice.contains("two radios are called \"LTE\""), "{twice}");
    let bad = why("[[path]]\nname = \"LTE\"\ninterface = \"no such one\"\n");
    assert!(bad.contains("is not the name of a network interface"), "{bad}");
    let slow = why(&format!("{radio}rate = \"1 kbit/s\"\n"));
    assert!(slow.contains("the link works from 8 kbit/s on"), "{slow}");
    let little = why(&format!("{radio}daily-limit = \"10 kB\"\n"));
    assert!(little.contains(" a day are soon used up"), "{little}");
    let nobody = why(&format!("{radio}peer = \"0.0.0.0:4500\"\n"));
    assert!(nobody.contains("nothing can be sent to 0.0.0.0:4500"), "{nobody}");
    let radios = |count: usize| {
        let radio = |at| format!("[[path]]\nname = \"radio {at}\"\ninterface = \"eth{at}\"\n");
        (0..count).map(radio).collect::<String>()
    };
    assert!(air_with(&bench, &radios(8)).is_ok());
    let many = why(&radios(9));
    assert!(many.contains("more than 8 radios"), "{many}");
    let path = bench.0.path().join("air.toml");
    let masque = AIR.replace("rate =", "transport = \"masque\"\nrate =");
    let idle = bench.message(AirConfig::parse(&path, &format!("{masque}{radio}")));
    assert!(idle.contains("\"path\" does nothing"), "{idle}");
}

#[test]
fn each_radio_may_have_a_modem() {
    let bench = Bench::new();
    let modem = |file: &str| format!("protocol = \"file\"\nfile = \"{file}\"\n");
    let radio = |name: &str| format!("[[path]]\nname = \"{name}\"\ninterface = \"{name}\"\n");
    let (satellite, lte) = (radio("sat0"), radio("wwan0"));
    let of_path = |file: &str| format!("[path.modem]\n{}", modem(file));
    let of_link = format!("[link.modem]\n{}", modem("link"));
    let files = |paths: &str| {
        let file = |(number, modem): (u8, &ModemConfig)| match &modem.source {
            ModemSource::File(file) => (number, file.file_name().unwrap().to_owned()),
            ModemSource::Dlep(_) => panic!("{modem:?}"),
        };
        air_with(&bench, paths).unwrap().modems().map(file).collect::<Vec<_>>()
    };
    assert_eq!(files(""), []);
    assert_eq!(files(&of_link), [(0, "link".into())]);
    assert_eq!(files(&format!("{of_link}{satellite}{lte}")), [(0, "link".into())]);
    let both = format!("{satellite}{}{lte}{}", of_path("one"), of_path("two"));
    assert_eq!(files(&both), [(0, "one".into()), (1, "two".into())]);
    let further = format!("{satellite}{lte}{}", of_path("two"));
    assert_eq!(files(&format!("{of_link}{further}")), [(0, "link".into()), (1, "two".into())]);
    let twice = bench.message(air_with(&bench, &format!("{of_link}{both}")));
    assert!(twice.contains("\"sat0\" has a modem, and so has [link]"), "{twice}");
    let nowhere = format!("{satellite}[path.modem]\nprotocol = \"dlep\"\n");
    let nowhere = bench.message(air_with(&bench, &nowhere));
    assert!(nowhere.contains("nothing says where the modem is"), "{nowhere}");
}
