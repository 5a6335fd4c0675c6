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

/// Runs `landfall scsi …` with `--json`, and gives what it says.
fn told(arguments: &[&str]) -> serde_json::Value {
    let output = landfall(&[&["scsi"], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn units_are_listed_copied_and_measured_over_stp() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["scsi", "serve", "--target", TARGET, "--listen", "stp://127.0.0.1:3260/udp/0"]);
    let server = Server::of(command.args(["--lun", "0=mem:3M", "--lun", "7=mem:1M"]));
    let address = server.ready["listening"][0].as_str().unwrap();
    let listed = told(&["list", address]);
    let units = listed["units"].as_array().unwrap();
    let seen: Vec<_> =
        units.iter().map(|unit| (unit["lun"].as_u64(), unit["bytes"].as_u64())).collect();
    assert_eq!(seen, [(Some(0), Some(3 << 20)), (Some(7), Some(1 << 20))]);
    let unit = told(&["inquiry", address, "--lun", "7"]);
    assert_eq!((&unit["bytes"], &unit["block_bytes"]), (&(1 << 20).into(), &512.into()));
    assert_eq!(unit["vendor"], units[1]["vendor"]);

    // There and back; the last block of the unit keeps what the file has not.
    let folder = Folder::new("scsi-copy");
    let (there, back) = (folder.path("there"), folder.path("back"));
    let bytes: Vec<u8> = (0..2_000_123_u32).map(|at| (at * 7 + at / 4099) as u8).collect();
    std::fs::write(&there, &bytes).unwrap();
    assert_eq!(told(&["copy", &there, address])["bytes"], 2_000_123);
    assert_eq!(told(&["copy", address, &back])["bytes"], 3 << 20);
    let copied = std::fs::read(&back).unwrap();
    assert!(copied[..bytes.len()] == bytes && copied[bytes.len()..].iter().all(|byte| *byte == 0));

    let measured = told(&["bench", address, "--seconds", "0.2", "--depth", "4"]);
    assert!(measured["commands"].as_u64() > Some(0) && measured["depth"] == 4, "{measured}");
    let writes = ["bench", address, "--lun", "7", "--write", "--sequential", "--seconds", "0.2"];
    assert!(told(&writes)["bytes_per_second"].as_f64() > Some(0.0));
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn a_signal_ends_a_target_among_commands() {
    let folder = Folder::new("among-commands");
    let disk = folder.path("disk");
    std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["scsi", "serve", "--target", TARGET, "--listen", "stp://127.0.0.1:3262/udp/0"]);
    let server = Server::of(command.args(["--lun", &format!("0=file:{disk}")]));
    let at = server.ready["listening"][0].as_str().unwrap().to_owned();
    super::ends_among_requests(server, &["scsi", "bench", &at, "--write"], &disk);
}

#[test]
fn what_an_initiator_cannot_do_is_said() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(["scsi", "serve", "--target", TARGET, "--listen", "stp://127.0.0.1:3260/udp/0"]);
    let server = Server::of(command.args(["--lun", "0=mem:1M"]));
    let address = server.ready["listening"][0].as_str().unwrap();
    let folder = Folder::new("scsi-wrong");
    let large = folder.path("large");
    std::fs::File::create(&large).unwrap().set_len(2 << 20).unwrap();
    for (arguments, words) in [
        (&["inquiry", address, "--lun", "5"][..], "status"),
        (&["copy", &large, address], "too small"),
        (&["copy", &large, &large], "one of both is a target"),
        (&["copy", &folder.path("none"), address], "none"),
        (&["list", "qp://127.0.0.1:3260"], "stp://ADDRESS:PORT"),
        (&["bench", address, "--block", "1000000", "--lun", "9"], "status"),
    ] {
        let output = landfall(&[&["scsi"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{arguments:?}: {said}");
    }
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn a_target_with_chap_lets_nobody_in_without_the_secret() {
    use std::os::unix::fs::PermissionsExt;
    let test = "a_target_with_chap_lets_nobody_in_without_the_secret";
    let folder = Folder::new("scsi-chap");
    let file = folder.path("account");
    std::fs::write(&file, "user secretsecretsecret\n").unwrap();
    let readable = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    readable(0o644);
    let arguments = ["scsi", "serve", "--target", TARGET, "--lun", "0=mem:1M", "--chap", &file];
    let refused = landfall(&arguments);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chmod 600"));
    readable(0o600);
    let over_stp = landfall(&[&arguments[..], &["--listen", "stp://127.0.0.1:0"]].concat());
    assert!(String::from_utf8_lossy(&over_stp.stderr).contains("CHAP is of iSCSI"));
    let server = serve(&["--lun", "0=mem:1M", "--chap", &file]);
    let address = server.ready["listening"][0].as_str().unwrap().to_owned();
    if is_here("iscsi-ls") {
        let told = |user: &str| {
            let portal = address.replace("iscsi://", &format!("iscsi://{user}"));
            let told = Command::new("iscsi-ls").args(["-s", portal.trim_end_matches('/')]).output();
            String::from_utf8_lossy(&told.unwrap().stdout).contains("Lun:0")
        };
        assert!(told("user%secretsecretsecret@"));
        assert!(!told("user%secretsecretsecreT@") && !told(""));
    } else {
        skip(test, "needs iscsi-ls: apt-get install libiscsi-bin");
    }
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
