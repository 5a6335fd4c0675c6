//! Initiators of others that prove themselves by CHAP, and those that do not.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use landfall_storage::device::MemoryDevice;
use landfall_storage::scsi::{Account, Builder, Server, read_account};
use landfall_testkit::skip::skip;

use crate::initiator::TARGET;
use crate::support::{Folder, has, run, succeed};

const SECRET: &str = "secretsecretsecret";
const OTHER: &str = "anothersecret";

fn account(name: &str, secret: &str) -> Account {
    Account::new(name, secret).unwrap()
}

fn builder() -> Builder {
    Server::builder(TARGET).unit(0, MemoryDevice::new(32 << 20)).chap(account("user", SECRET))
}

fn serve(builder: Builder) -> (Server, SocketAddr) {
    let server = builder.start().unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    (server, address)
}

fn is_here(test: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    if let Some(program) = missing {
        skip(test, &format!("needs {program}: apt-get install libiscsi-bin qemu-utils"));
    }
    missing.is_none()
}

#[test]
fn iscsi_ls_comes_in_with_the_right_password_alone() {
    let test = "iscsi_ls_comes_in_with_the_right_password_alone";
    if !is_here(test, &["iscsi-ls"]) {
        return;
    }
    let (_server, address) = serve(builder());
    let told = succeed("iscsi-ls", &["-s", &format!("iscsi://user%{SECRET}@{address}")]);
    assert!(told.contains(TARGET) && told.contains("Lun:0"), "{told}");
    for wrong in ["user%secretsecretsecreT@", "other%secretsecretsecret@", ""] {
        let output = run("iscsi-ls", &["-s", &format!("iscsi://{wrong}{address}")]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(!told.contains(TARGET), "{wrong} came in: {told}");
    }
}

#[test]
fn libiscsi_is_judged_by_its_password() {
    let test = "libiscsi_is_judged_by_its_password";
    if !is_here(test, &["iscsi-test-cu"]) {
        return;
    }
    let (server, address) = serve(builder());
    let judge = |user: &str| {
        let uri = format!("iscsi://{user}{address}/{TARGET}/0");
        run("iscsi-test-cu", &["-d", "-n", "--test=SCSI.Read10", &uri])
    };
    let output = judge(&format!("user%{SECRET}@"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let served = server.stats().reads;
    assert!(served > 0);
    for wrong in [format!("user%{OTHER}@"), String::new()] {
        assert!(!judge(&wrong).status.success(), "{wrong}");
    }
    assert_eq!(server.stats().reads, served, "nobody else has read");
}

#[test]
fn qemu_comes_in_with_the_right_password_and_a_target_that_proves_itself() {
    let test = "qemu_comes_in_with_the_right_password_and_a_target_that_proves_itself";
    if !is_here(test, &["iscsi-ls", "qemu-img"]) {
        return;
    }
    let (_server, address) = serve(builder().chap_target(account("disks", OTHER)));
    let info = |user: &str| {
        run("qemu-img", &["info", "-f", "raw", &format!("iscsi://{user}{address}/{TARGET}/0")])
    };
    let output = info(&format!("user%{SECRET}@"));
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Unknown protocol") {
        return skip(test, "needs qemu with iSCSI: apt-get install qemu-block-extra");
    }
    assert!(output.status.success(), "{said}");
    assert!(!info(&format!("user%{OTHER}@")).status.success());
    // libiscsi asks the target, too, where it is told whom to expect.
    let portal = format!("iscsi://user%{SECRET}@{address}");
    let asks = |name: &str, secret: &str| {
        let variables = [
            format!("LIBISCSI_CHAP_TARGET_USERNAME={name}"),
            format!("LIBISCSI_CHAP_TARGET_PASSWORD={secret}"),
        ];
        let [name, secret] = &variables;
        let output = run("env", &[name, secret, "iscsi-ls", "-s", &portal]);
        String::from_utf8_lossy(&output.stdout).contains("Lun:0")
    };
    assert!(asks("disks", OTHER));
    assert!(!asks("disks", SECRET) && !asks("others", OTHER), "it is another target");
}

#[test]
fn secrets_come_from_files_that_are_nobody_elses() {
    let folder = Folder::new();
    let path = folder.file("secret");
    let read = |text: &str, mode| {
        // One that may be read only is not written again.
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read_account(&path).map_err(|error| error.to_string())
    };
    assert_eq!(read("user secretsecretsecret\n", 0o600), Ok(account("user", SECRET)));
    assert_eq!(read("user with several words\n", 0o400), Ok(account("user", "with several words")));
    for (text, mode, why) in [
        ("user secretsecretsecret\n", 0o644, "chmod 600"),
        ("user short\n", 0o600, "12 to 255"),
        ("secretsecretsecret\n", 0o600, "NAME SECRET"),
        ("user secretsecretsecret\nother secretsecretsecret\n", 0o600, "NAME SECRET"),
        ("", 0o600, "NAME SECRET"),
    ] {
        let error = read(text, mode).unwrap_err();
        assert!(error.contains(why) && error.contains("secret"), "{error}");
    }
}

#[test]
fn what_cannot_be_proved_is_refused_at_the_start() {
    let same = builder().chap_target(account("disks", SECRET)).start();
    assert!(same.unwrap_err().to_string().contains("a secret of their own"));
    let alone = Server::builder(TARGET).chap_target(account("disks", SECRET)).start();
    assert!(alone.unwrap_err().to_string().contains("prove themselves"));
}
