//! `landfall scsi serve`: the same devices for initiators of iSCSI.

use std::process::Command;

use landfall_testkit::skip::skip;

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
fn what_is_wrong_with_a_target_is_said() {
    let said = |arguments: &[&str]| {
        let output = landfall(&[&["scsi", "serve"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["--target", "disk", "--lun", "0=mem:1M"]).contains("no name of a target"));
    assert!(said(&["--target", TARGET, "--lun", "x=mem:1M"]).contains("`x` is no number"));
    assert!(said(&["--target", TARGET, "--lun", "0=disk"]).contains("NAME=file:PATH"));
    assert!(said(&["--target", TARGET, "--lun", "0=file:none.img"]).contains("none.img"));
}
