//! Logical units for initiators of iSCSI: unmodified ones, and one that does what these do not.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use landfall::qpip::{Adapter, ChannelConfig};
use landfall_storage::device::{BlockDevice, Fault, FileDevice, MemoryDevice, Volatile};
use landfall_storage::scsi::{Code, Key, Server};
use landfall_storage::sockets_compat::{QpHost, QpOptions};
use landfall_testkit::skip::skip;

use crate::initiator::{Initiator, TARGET, cdb};
use crate::support::{Folder, has, hash, pattern, run, succeed, until};

const SIZE: u64 = 64 << 20;

fn serve(device: impl BlockDevice + 'static) -> (Server, SocketAddr) {
    let server = Server::builder(TARGET).unit(0, device).start().unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    (server, address)
}

fn connect(address: SocketAddr, name: &str) -> Initiator {
    Initiator::log_in(Arc::new(TcpStream::connect(address).unwrap()), name)
}

fn uri(address: SocketAddr) -> String {
    format!("iscsi://{address}/{TARGET}/0")
}

fn is_here(test: &str, program: &str, package: &str) -> bool {
    if !has(program) {
        skip(test, &format!("needs {program}: apt-get install {package}"));
    }
    has(program)
}

/// Runs tests of libiscsi, which may write, and gives the names of those that failed.
fn judged(tests: &str, addresses: &[&str]) -> Vec<String> {
    let family = format!("--test={tests}");
    // It fails as soon as one test does, and says which ones.
    let output = run("iscsi-test-cu", &[&["-d", "-n", &family], addresses].concat());
    let told = String::from_utf8_lossy(&output.stdout);
    let numbers = told.lines().find_map(|line| line.trim().strip_prefix("tests"));
    let numbers: Vec<usize> = numbers
        .unwrap_or_else(|| panic!("{told}"))
        .split_whitespace()
        .flat_map(str::parse)
        .collect();
    let failures = told.lines().filter_map(|line| {
        let (suite, test) = line.strip_prefix("Suite ")?.split_once(", Test ")?;
        Some(format!("{suite}.{}", test.strip_suffix(" had failures:")?))
    });
    let failures: Vec<String> = failures.collect();
    assert!(numbers[1] > 0 && numbers[3] == failures.len(), "{told}");
    failures
}

#[test]
fn libiscsi_finds_nothing_wrong() {
    if !is_here("libiscsi_finds_nothing_wrong", "iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let folder = Folder::new();
    let file = FileDevice::open(&folder.disk("disk.img", SIZE), false).unwrap();
    let (_server, address) = serve(file);
    // It takes a physical block for the smallest that can be asked about: `docs/spec/sst.md`.
    assert_eq!(judged("ALL", &[&uri(address)]), ["GetLBAStatus.UnmapSingle"]);
}

#[test]
fn libiscsi_finds_nothing_wrong_over_two_paths() {
    let test = "libiscsi_finds_nothing_wrong_over_two_paths";
    if !is_here(test, "iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let (server, one) = serve(MemoryDevice::new(SIZE));
    let two = server.listen("127.0.0.1:0").unwrap();
    assert_eq!(judged("SCSI.MultipathIO", &[&uri(one), &uri(two)]), Vec::<String>::new());
}

#[test]
fn libiscsi_finds_a_read_only_unit_that_is_one() {
    let test = "libiscsi_finds_a_read_only_unit_that_is_one";
    if !is_here(test, "iscsi-test-cu", "libiscsi-bin") {
        return;
    }
    let server =
        Server::builder(TARGET).unit(0, MemoryDevice::new(SIZE)).read_only(true).start().unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    assert_eq!(judged("SCSI.ReadOnly", &[&uri(address)]), Vec::<String>::new());
}

#[test]
fn iscsi_ls_lists_targets_and_units() {
    if !is_here("iscsi_ls_lists_targets_and_units", "iscsi-ls", "libiscsi-bin") {
        return;
    }
    let server = Server::builder(TARGET)
        .unit(0, MemoryDevice::new(SIZE))
        .unit(7, MemoryDevice::new(SIZE))
        .start()
        .unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    let told = succeed("iscsi-ls", &["-s", &format!("iscsi://{address}")]);
    assert!(told.contains(&format!("Target:{TARGET} Portal:{address},1")), "{told}");
    assert!(told.contains("Lun:0 ") && told.contains("Lun:7 "), "{told}");
    let told = succeed("iscsi-inq", &[&uri(address)]);
    assert!(told.contains("Vendor:LANDFALL"), "{told}");
}

/// True where qemu can use iSCSI; else the test is skipped.
fn has_driver(test: &str) -> bool {
    let here = has("qemu-img")
        && succeed("qemu-img", &["--help"])
            .lines()
            .any(|line| line.starts_with("Supported formats:") && line.contains(" iscsi"));
    if !here {
        skip(test, "needs qemu's driver for iSCSI: apt-get install qemu-utils qemu-block-extra");
    }
    here
}

#[test]
fn qemu_io_reads_what_it_wrote_by_iscsi() {
    if !has_driver("qemu_io_reads_what_it_wrote_by_iscsi") {
        return;
    }
    let folder = Folder::new();
    let disk = folder.disk("disk.img", SIZE);
    let (_server, address) = serve(FileDevice::open(&disk, false).unwrap());
    let uri = uri(address);
    let commands = [
        "write -P 7 0 1M",
        "write -z -u 4096 64k",
        "write -f -P 9 1M 4k",
        "flush",
        "read -P 0 4096 64k",
        "read -P 7 0 4k",
        "read -P 9 1M 4k",
        "write -z 2M 20M",
        "discard 3M 1M",
        "aio_write -P 5 5M 9M",
        "aio_write -P 6 16M 9M",
        "aio_flush",
        "read -P 5 5M 9M",
        "read -P 6 16M 9M",
    ];
    let mut arguments = vec!["-f", "raw", &uri];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    let told = succeed("qemu-io", &arguments);
    assert!(!told.contains("failed"), "{told}");
    let bytes = std::fs::read(&disk).unwrap();
    assert!(bytes[1 << 20..][..4096] == [9; 4096] && bytes[24 << 20..][..512] == [6; 512]);
}

#[test]
fn qemu_img_converts_by_iscsi_both_ways_and_finds_no_difference() {
    if !has_driver("qemu_img_converts_by_iscsi_both_ways_and_finds_no_difference") {
        return;
    }
    let folder = Folder::new();
    let (source, disk, back) =
        (folder.disk("source.img", SIZE), folder.disk("disk.img", SIZE), folder.file("back.img"));
    let half = pattern(1, (SIZE / 2) as usize);
    std::fs::OpenOptions::new().write(true).open(&source).unwrap().write_all(&half).unwrap();
    let (_server, address) = serve(FileDevice::open(&disk, false).unwrap());
    let uri = uri(address);
    let [from, to] = [&source, &back].map(|path| path.to_str().unwrap());
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", from, &uri]);
    assert_eq!(hash(&disk), hash(&source));
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, to]);
    assert_eq!(hash(&back), hash(&source));
    let compared = succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, &uri]);
    assert!(compared.contains("identical"), "{compared}");
}

#[test]
fn errors_of_the_device_are_sense_data_and_are_no_end() {
    let device = Arc::new(Volatile::new(1 << 20));
    device.fail(Fault::Read, 4096..8192);
    device.fail(Fault::Write, 8192..12_288);
    device.fail(Fault::NoSpace, 12_288..16_384);
    let device: Arc<dyn BlockDevice> = device;
    let server = Server::builder(TARGET).shared_unit(0, device).start().unwrap();
    let mut initiator = connect(server.listen("127.0.0.1:0").unwrap(), "one");
    let sense = initiator.read(0, 0, 8192).sense.unwrap();
    assert_eq!((sense.key, sense.code), (Key::MediumError, Code::READ_ERROR));
    let sense = initiator.write(0, 15, &[1; 4096]).sense.unwrap();
    assert_eq!((sense.key, sense.code), (Key::MediumError, Code::WRITE_ERROR));
    let sense = initiator.write(0, 24, &[1; 512]).sense.unwrap();
    assert_eq!((sense.key, sense.code), (Key::DataProtect, Code::NO_SPACE));
    assert_eq!(initiator.write(0, 0, &pattern(1, 4096)).status, 0);
    assert_eq!(initiator.read(0, 0, 4096).data, pattern(1, 4096));
    assert_eq!(server.stats().errors, 3);
}

#[test]
fn what_was_synchronized_survives_a_crash_and_what_was_not_need_not() {
    let device = Arc::new(Volatile::new(1 << 20));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let server = Server::builder(TARGET).shared_unit(0, shared).start().unwrap();
    let mut initiator = connect(server.listen("127.0.0.1:0").unwrap(), "one");
    assert_eq!(initiator.write(0, 0, &[1; 512]).status, 0);
    assert_eq!(initiator.command(0, &cdb(0x35, 0, 0), &[], 0).status, 0);
    // FUA.
    let mut fua = cdb(0x2a, 1, 512);
    fua[1] = 0x08;
    assert_eq!(initiator.command(0, &fua, &[2; 512], 0).status, 0);
    assert_eq!(initiator.write(0, 2, &[3; 512]).status, 0);
    device.crash(|_| false);
    let read = initiator.read(0, 0, 1536).data;
    assert_eq!((read[0], read[512], read[1024]), (1, 2, 0));
    device.fail_flushes(true);
    let failed = initiator.command(0, &cdb(0x35, 0, 0), &[], 0).sense.unwrap();
    assert_eq!(failed.key, Key::MediumError);
}

#[test]
fn initiators_that_vanish_and_strangers_disturb_nobody() {
    let (server, address) = serve(MemoryDevice::new(SIZE));
    let mut honest = connect(address, "honest");
    for nth in 0..4 {
        let mut other = connect(address, &format!("other{nth}"));
        // A write whose data do not come, and a reservation.
        other.begin(0, &cdb(0x2a, 0, 65_536), 65_536, 0);
        if nth == 3 {
            assert_eq!(honest.read(0, 0, 512).status, 0);
        }
        drop(other);
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger
            .write_all(b"GET / HTTP/1.1\r\nHost: somebody who has lost his way here\r\n")
            .unwrap();
    }
    until("they are gone", || server.streams().clients() == 1);
    assert_eq!(honest.write(0, 0, &pattern(2, 65_536)).status, 0);
    assert_eq!(honest.read(0, 0, 65_536).data, pattern(2, 65_536));
    // A reservation goes with the one that had it.
    let mut other = connect(address, "reserves");
    assert_eq!(other.command(0, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, 0);
    assert_eq!(honest.read(0, 0, 512).status, 0x18);
    drop(other);
    until("it is gone", || server.streams().clients() == 1);
    assert_eq!(honest.read(0, 0, 512).status, 0);
}

#[test]
fn overlapping_writes_leave_whole_blocks_of_one_of_them() {
    let (_server, address) = serve(MemoryDevice::new(SIZE));
    let writers: Vec<_> = (1..5u8)
        .map(|nth| {
            std::thread::spawn(move || {
                let mut initiator = connect(address, &format!("writer{nth}"));
                for _ in 0..20 {
                    assert_eq!(initiator.write(0, u32::from(nth), &[nth; 32_768]).status, 0);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let read = connect(address, "reader").read(0, 1, 32_768 + 3 * 512).data;
    for block in read.chunks(512) {
        assert!((1..5).contains(&block[0]) && block.iter().all(|byte| *byte == block[0]));
    }
}

#[test]
fn a_comparison_and_its_write_are_one_step_for_all() {
    let (_server, address) = serve(MemoryDevice::new(SIZE));
    // Each counts up a number in the first block, by COMPARE AND WRITE.
    let counters: Vec<_> = (0..4)
        .map(|nth| {
            std::thread::spawn(move || {
                let mut initiator = connect(address, &format!("counter{nth}"));
                let mut done = 0;
                while done < 25 {
                    let old = initiator.read(0, 0, 512).data;
                    let mut new = old.clone();
                    new[0] += 1;
                    let mut cdb = [0; 16];
                    (cdb[0], cdb[13]) = (0x89, 1);
                    let ended = initiator.command(0, &cdb, &[old, new].concat(), 0);
                    done += u32::from(ended.status == 0);
                    let is_known = ended.sense.is_none_or(|sense| sense.key == Key::Miscompare);
                    assert!(is_known, "{ended:?}");
                }
            })
        })
        .collect();
    for counter in counters {
        counter.join().unwrap();
    }
    assert_eq!(connect(address, "reader").read(0, 0, 512).data[0], 100);
}

#[test]
fn iscsi_over_queue_pairs() {
    let server = Server::builder(TARGET).unit(0, MemoryDevice::new(4 << 20)).start().unwrap();
    let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default()).unwrap();
    let open = |adapter| QpHost::new(adapter, QpOptions::default()).unwrap();
    let near = open(one.address("10.0.0.1/24").open().unwrap());
    let far = open(two.address("10.0.0.2/24").open().unwrap());
    server.streams().listen_qp(&far, "qp://10.0.0.2:3260").unwrap();
    let stream = Arc::new(near.connect("qp://10.0.0.2:3260").unwrap());
    let mut initiator = Initiator::log_in(stream, "one");
    let data = pattern(3, 1 << 20);
    assert_eq!(initiator.write(0, 8, &data).status, 0);
    assert_eq!(initiator.read(0, 8, 1 << 20).data, data);
}

#[test]
fn a_target_has_a_name_and_units_that_can_be() {
    let refused = |builder: landfall_storage::scsi::Builder| {
        builder.start().map(drop).unwrap_err().to_string()
    };
    let named = |name: &str| Server::builder(name).unit(0, MemoryDevice::new(SIZE));
    assert!(refused(named("disk")).contains("no name of a target"));
    assert!(refused(named("iqn.2026-01.example:a b")).contains("no name of a target"));
    assert!(refused(named(TARGET).unit(0, MemoryDevice::new(SIZE))).contains("two units"));
    assert!(refused(named(TARGET).unit(16_384, MemoryDevice::new(SIZE))).contains("16384"));
    assert!(refused(named(TARGET).unit(1, MemoryDevice::new(511))).contains("smaller"));
}

/// An initiator that has lost its connection comes again while the target still has the old one.
#[test]
fn an_initiator_that_comes_again_takes_its_own_place() {
    let (server, address) = serve(MemoryDevice::new(SIZE));
    let mut first = connect(address, "again");
    assert_eq!(first.command(0, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, 0, "it reserves");
    // A write whose data do not come any more.
    first.begin(0, &cdb(0x2a, 0, 65_536), 65_536, 0);
    let mut other = connect(address, "other");
    assert_eq!(other.read(0, 0, 512).status, 0x18, "it is reserved");

    let mut again = connect(address, "again");
    let mut rest = [0; 512];
    while first.stream.read(&mut rest).is_ok_and(|count| count > 0) {}
    assert_eq!(other.read(0, 0, 512).status, 0, "the reservation went with the session");
    assert_eq!(again.write(0, 0, &pattern(3, 65_536)).status, 0);
    assert_eq!(other.read(0, 0, 65_536).data, pattern(3, 65_536));
    // The end of the first one takes nothing from the second.
    assert_eq!(again.command(0, &[0x16, 0, 0, 0, 0, 0], &[], 0).status, 0);
    drop(first);
    until("the first is gone", || server.streams().clients() == 2);
    assert_eq!(other.read(0, 0, 512).status, 0x18);
}

/// Each comes again and again under one name: one of them is there at the end, and none hangs.
#[test]
fn sessions_that_take_each_other_s_place_end_all_but_one() {
    let (server, address) = serve(MemoryDevice::new(SIZE));
    let comers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..10 {
                    let stream = Arc::new(TcpStream::connect(address).unwrap());
                    // Whether it is answered depends on who comes next.
                    let _ = Initiator::try_log_in(stream, "comer");
                }
            })
        })
        .collect();
    for comer in comers {
        comer.join().unwrap();
    }
    let mut last = connect(address, "comer");
    assert_eq!(last.write(0, 0, &pattern(4, 4096)).status, 0);
    until("the others are gone", || server.streams().clients() == 1);
    assert_eq!(last.read(0, 0, 4096).data, pattern(4, 4096));
}
