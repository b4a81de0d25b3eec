//! Rows for the sheets of both gateways.

use std::path::Path;

use bentpipe_gateway::config::{
    AeroTcp, ClassConfig, Classes, Detail, Memory, StatusConfig, WindowKind,
};
use bentpipe_units::BitRate;

use crate::sheet::Sheet;

/// MTU of most paths.
const ETHERNET_MTU: usize = 1500;

/// Describes the status file: its path and its contents.
pub fn status(sheet: &mut Sheet, config: Option<&StatusConfig>) {
    let Some(config) = config else { return };
    let (file, interval) = (config.file.display(), config.interval);
    let told = match config.detail {
        Detail::Classes => "of classes alone",
        Detail::Passengers => "of classes and passengers, which is personal data",
        Detail::Flows => "of classes, passengers and flows, which is personal data",
    };
    sheet.row("status", format!("written to {file} every {interval}: {told}"));
    let directory = config.file.parent().filter(|it| *it != Path::new(""));
    if let Some(directory) = directory.filter(|it| !it.is_dir()) {
        let directory = directory.display();
        sheet.row("note", format!("there is no directory {directory} now: the gateway makes none"));
    }
}

pub fn packets(sheet: &mut Sheet, mtu: usize) {
    sheet
        .row("packets", format!("up to {mtu} bytes, IP header included, if the path carries them"));
    if mtu > ETHERNET_MTU {
        let text = format!(
            "an mtu of {mtu} is more than Ethernet's {ETHERNET_MTU}: write what the path is \
             provisioned for"
        );
        sheet.row("note", text);
    }
}

pub fn memory(memory: &Memory) -> String {
    let Memory { receive, send, code } = memory;
    format!("{receive} received, {send} to send, {code} for repairs")
}

pub fn aerotcp_windows(table: Option<&AeroTcp>) -> String {
    let Some(table) = table else { return "not told of the satellite".to_owned() };
    let window = match (table.window, table.connections) {
        (WindowKind::Static, Some(n)) => format!("static windows for {n} connections"),
        (WindowKind::Static, None) => "static windows".to_owned(),
        (WindowKind::Adaptive, _) => "windows by the connections that are open".to_owned(),
        (WindowKind::Table, _) => format!("windows from a table of {}", table.table.len()),
    };
    format!("{window}, round trip {}", table.rtt)
}

/// Adds the guaranteed rate and ceiling of each class, and warnings about them.
pub fn classes(sheet: &mut Sheet, classes: &Classes, rate: BitRate, does: &str) {
    for (class, config) in classes.iter() {
        sheet.row("class", format!("{class} {does} {}", shares(config)));
    }
    for remark in classes.remarks(rate) {
        sheet.row("note", remark);
    }
}

/// Describes the guarantee and ceiling of a class.
pub fn shares(config: &ClassConfig) -> String {
    match (config.rate(), config.ceil()) {
        (Some(rate), Some(ceil)) if rate.bps() == 0 => format!("what is left, {ceil} at most"),
        (Some(rate), None) if rate.bps() == 0 => "what is left".to_owned(),
        (Some(rate), Some(ceil)) => format!("{rate} whenever it asks, {ceil} at most"),
        (Some(rate), None) => format!("{rate} whenever it asks, all of an idle link"),
        (None, Some(ceil)) => format!("its share, {ceil} at most"),
        (None, None) => "its share, all of an idle link".to_owned(),
    }
}
