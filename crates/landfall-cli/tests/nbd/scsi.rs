//! `landfall scsi serve`: the same devices for initiators of iSCSI.

use std::net::SocketAddr;
use std::process::Command;

use landfall::stp::blocking::Endpoint;
use landfall::stp::{Memory, Transport};
use landfall_storage::scsi::Lun;
use landfall_storage::scsi::sst::Initiator;
use landfall_testkit::skip::skip;
use sockets_compat::{Address, Carrier};

use super::{Folder, Server};
use crate::common::landfall;

const TARGET: &str = "iqn.2026-01.example:disks";

fn serve(units: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["scsi", "serve", "--target", TARGET, "--listen", "127.0.0.1:0"]);
    Server::of(command.args(units))
}

fn is_here(program: &str) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}

#[test]
fn units_are_listed_and_written_by_initiators_of_others() {
    let test = "units_are_listed_and_written_by_initiators_of_others";
    let folder = Folder::new("scsi");
    let disk = folder.path("disk");
    std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let server = serve(&["--lun", &format!("0=file:{disk}"), "--lun", "7=mem:64M"]);
    assert_eq!(server.ready["exports"][1]["size"], 64 << 20);
    let address = server.ready["listening"][0].as_str().unwrap().to_owned();
    if is_here("iscsi-ls") && is_here("iscsi-test-cu") {
        let told = Command::new("iscsi-ls").args(["-s", &address]).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(TARGET) && told.contains("Lun:7 "), "{told}");
        let unit = format!("{address}{TARGET}/0");
        let judged = Command::new("iscsi-test-cu")
            .args(["-d", "-n", "--fail", "--test=SCSI.Write16", &unit])
            .output()
            .unwrap();
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
        assert!(std::fs::read(&disk).unwrap().iter().any(|byte| *byte != 0));
    } else {
        skip(test, "needs iscsi-ls and iscsi-test-cu: apt-get install libiscsi-bin");
    }
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn over_stp_data_are_transfers() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["scsi", "serve", "--target", TARGET, "--listen", "stp://127.0.0.1:3260/udp/0"]);
    let server = Server::of(command.args(["--lun", "0=mem:1M"]));
    let address = server.ready["listening"][0].as_str().unwrap();
    let Ok(Address::Stp { host, port, carrier: Carrier::Udp(udp) }) = address.parse() else {
        panic!("{address} is no address of STP")
    };
    let own = Endpoint::bind(Transport::udp("127.0.0.1:0".parse().unwrap())).unwrap();
    let connection = own.connect(SocketAddr::new(host, udp), port).unwrap();
    let initiator = Initiator::new(connection.as_async().clone(), "iqn.x:y").unwrap();
    let unit = Lun::new(0).unwrap();
    assert!(initiator.ready(unit).wait().is_err(), "it is told that the unit is new");
    initiator.write(unit, 8, Memory::from_bytes(&[7; 4096])).wait().unwrap();
    let read = initiator.read(unit, 8, Memory::zeroed(4096)).wait().unwrap();
    assert_eq!(*read.memory, [7; 4096]);
    drop(initiator);
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn what_is_wrong_with_a_target_is_said() {
    let said = |arguments: &[&str]| {
        let output = landfall(&[&["scsi", "serve"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["--target", "disk", "--lun", "0=mem:1M"]).contains("no name of a target"));
    assert!(said(&["--target", TARGET, "--lun", "x=mem:1M"]).contains("`x` is no number"));
    assert!(said(&["--target", TARGET, "--lun", "0=disk"]).contains("unit 0: `disk` is no device"));
    assert!(said(&["--target", TARGET, "--lun", "0=file:none.img"]).contains("none.img"));
}

#[test]
fn a_unit_that_makes_no_sense_is_told_what_would() {
    for (unit, told) in [
        ("mem:1G", "`mem:1G` has no number in front: 0=mem:1G would have"),
        ("disk=mem:1G", "`disk` is no number of a unit: 0 to 16383 are, as in 0=mem:1G"),
        ("70000=mem:1G", "`70000` is no number of a unit: 0 to 16383 are, as in 0=mem:1G"),
        ("0=disk.img", "unit 0: `disk.img` is no device: file:PATH or mem:SIZE would be"),
        ("0=mem:lots", "unit 0: \"lots\" is no number of bytes: 500K, 20M or 1G would be"),
    ] {
        let output = landfall(&["scsi", "serve", "--target", TARGET, "--lun", unit]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(told), "{unit}: {said}");
    }
}
