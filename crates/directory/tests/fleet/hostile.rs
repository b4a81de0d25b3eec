//! A hostile ground of the fleet, which other grounds have in their files.

use std::time::Duration;

use bentpipe_directory::entry::{Claimed, Entry, MAX_LIFETIME, MAX_VERSION};
use bentpipe_directory::frame::put_entry;
use bentpipe_directory::{MAX_INTRODUCED, Statement};

use super::fleet;
use super::world::{Shape, World, keys};

/// Ground 0, the egress of all in a star, is hostile.
const HOSTILE: usize = 0;

fn framed(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_entry(entry, &mut bytes);
    bytes
}

/// Lets the hostile ground write `bytes`, and runs for 2 minutes. Asserts that the
/// others know of each other exactly what they know without it.
fn assert_harmless(what: &str, bytes: &[u8], is_over: bool) {
    for shape in [Shape::Mesh, Shape::Star] {
        let mut world = fleet(shape, 6);
        let mut calm = fleet(shape, 6);
        world.write(HOSTILE, bytes);
        let end = world.now() + Duration::from_secs(120);
        world.run_until(end);
        calm.run_until(end);
        assert_same(&world, &calm, &format!("{what}, {shape:?}"));
        let neighbour = 49;
        let has_stream = world.is_connected(neighbour, HOSTILE);
        let had_stream = calm.is_connected(neighbour, HOSTILE);
        assert_eq!(has_stream, had_stream && !is_over, "{what}, {shape:?}");
    }
}

fn assert_same(world: &World, calm: &World, what: &str) {
    let without = |world: &World, at| {
        let mut known = world.known_at(at);
        known.remove(&HOSTILE);
        known
    };
    for at in 1..50 {
        let (known, expected) = (without(world, at), without(calm, at));
        // The hostile ground may withhold what it alone passes on.
        for (ground, statement) in &expected {
            if world.has_other_way(at, *ground, HOSTILE) {
                assert_eq!(known.get(ground), Some(statement), "{what}: {ground} at {at}");
            }
        }
        assert!(world.invented_at(at) <= MAX_INTRODUCED, "{what}");
    }
}

/// Asserts that nobody else knows `forged`, and that everybody still knows `victim`.
fn assert_unknown(world: &World, victim: usize, forged: &Statement, what: &str) {
    for at in (1..50).filter(|at| *at != victim) {
        let known = world.known_at(at);
        assert!(known.values().all(|it| it != forged), "{what}, at {at}");
        assert!(known.contains_key(&victim), "{what}, at {at}");
        assert!(world.is_connected(at, HOSTILE), "{what}, at {at}");
    }
}

#[test]
fn ten_thousand_invented_grounds_are_harmless() {
    let mut bytes = Vec::new();
    for number in 0..10_000 {
        let (secret, key) = keys(1_000_000 + number);
        let statement = Statement { load: 255, is_leaving: true, ..Statement::default() };
        let entry = Entry::sign((&secret, key), MAX_VERSION, MAX_LIFETIME, &statement, [1; 64]);
        bytes.extend(framed(&entry));
    }
    assert_harmless("invented grounds", &bytes, false);
}

#[test]
fn a_megabyte_is_harmless() {
    assert_harmless("a frame of 64 kB", &[2, 0xff, 0xff], true);
    let skipped = [&[77, 0x10, 0x00][..], &[0xaa; 4096]].concat().repeat(256);
    assert_harmless("a megabyte that is skipped", &skipped, false);
    assert_harmless("a megabyte of noise", &[0xff; 1 << 20], true);
}

#[test]
fn lies_about_others_are_harmless() {
    // Forged by the hostile key's owner, with the highest version.
    let (secret, _) = keys(HOSTILE as u32);
    let statement = Statement { load: 255, is_leaving: true, ..Statement::default() };
    for victim in [1, 30] {
        let of_victim = keys(victim as u32).1;
        let forged =
            Entry::sign((&secret, of_victim), MAX_VERSION, MAX_LIFETIME, &statement, [1; 64]);
        assert!(Claimed::decode(forged.bytes()).unwrap().verify().is_err());
        // In a mesh its neighbours have the victim in their files. In a star they know it by the hostile
        // ground alone.
        for shape in [Shape::Mesh, Shape::Star] {
            let what = format!("lies about {victim}, {shape:?}");
            let mut world = fleet(shape, 6);
            let mut calm = fleet(shape, 6);
            world.write(HOSTILE, &framed(&forged));
            for _ in 0..12 {
                let end = world.now() + Duration::from_secs(10);
                world.run_until(end);
                assert_unknown(&world, victim, &statement, &what);
            }
            calm.run_until(world.now());
            assert_same(&world, &calm, &what);
        }
    }
}
