//! Unmodified clients of others, over the kernel's TCP.

use std::net::SocketAddr;
use std::path::Path;

use landfall_storage::Extent;
use landfall_storage::device::{FileDevice, MemoryDevice};
use landfall_storage::server::{Offer, Server};
use landfall_testkit::skip::skip;

use crate::support::{Folder, connect, has, hash, pattern, run, serve, succeed};

const SIZE: u64 = 16 << 20;

/// A file with data in the first half, and a hole behind it.
fn image(folder: &Folder) -> std::path::PathBuf {
    let path = folder.disk("source.img", SIZE);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let half = pattern(1, (SIZE / 2) as usize);
    std::os::unix::fs::FileExt::write_all_at(&file, &half, 0).unwrap();
    path
}

fn file_server(path: &Path) -> (Server, SocketAddr, String) {
    let (server, address) = serve(Offer::new("disk", FileDevice::open(path, false).unwrap()));
    (server, address, format!("nbd://{address}/disk"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// True where the program is here; else the test is skipped.
fn is_here(test: &str, program: &str, package: &str) -> bool {
    if !has(program) {
        skip(test, &format!("needs {program}: apt-get install {package}"));
    }
    has(program)
}

#[test]
fn nbdcopy_copies_both_ways() {
    if !is_here("nbdcopy_copies_both_ways", "nbdcopy", "libnbd-bin") {
        return;
    }
    let folder = Folder::new();
    let (source, disk, back) =
        (image(&folder), folder.disk("disk.img", SIZE), folder.file("back.img"));
    let (_server, _, uri) = file_server(&disk);
    succeed("nbdcopy", &["--flush", "--connections=4", text(&source), &uri]);
    assert_eq!(hash(&disk), hash(&source));
    succeed("nbdcopy", &["--connections=4", &uri, text(&back)]);
    assert_eq!(hash(&back), hash(&source));
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !is_here("nbdinfo_sees_what_is_offered", "nbdinfo", "libnbd-bin") {
        return;
    }
    let folder = Folder::new();
    let (_server, _, uri) = file_server(&image(&folder));
    let told = succeed("nbdinfo", &["--json", &uri]);
    let can = [
        "is_read_only\": false",
        "can_fua\": true",
        "can_multi_conn\": true",
        "can_trim\": true",
        "can_zero\": true",
        "can_fast_zero\": true",
        "can_cache\": true",
        "can_df\": true",
        "\"export-size\": 16777216",
    ];
    for what in can {
        assert!(told.contains(what), "{what} in {told}");
    }
    let map = succeed("nbdinfo", &["--map", &uri]);
    let lines: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["0", "8388608", "0", "data"], ["8388608", "8388608", "3", "hole,zero"]]);
    let read_only = Offer::new("disk", MemoryDevice::new(SIZE)).read_only(true);
    let (_server, address) = serve(read_only);
    let told = succeed("nbdinfo", &["--json", &format!("nbd://{address}/disk")]);
    assert!(told.contains("is_read_only\": true"), "{told}");
    let none = run("nbdinfo", &[&format!("nbd://{address}/other")]);
    assert!(!none.status.success());
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !is_here("qemu_io_reads_what_it_wrote", "qemu-io", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let (server, address, uri) = file_server(&folder.disk("disk.img", SIZE));
    let commands = [
        "write -P 7 0 1M",
        "write -z -u 4096 64k",
        "write -f -P 9 1M 4k",
        "flush",
        "read -P 0 4096 64k",
        "read -P 7 0 4k",
        "read -P 7 68k 64k",
        "read -P 9 1M 4k",
        "write -z 2M 1M",
        "discard 3M 1M",
        "aio_write -P 5 5M 1M",
        "aio_write -P 6 6M 1M",
        "aio_flush",
        "read -P 5 5M 1M",
        "read -P 6 6M 1M",
        "map",
    ];
    let mut arguments = vec!["-f", "raw", &uri];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    let told = succeed("qemu-io", &arguments);
    assert!(!told.contains("failed"), "{told}");
    assert_eq!(connect(address).read(1 << 20, vec![0; 4096]).wait().unwrap(), [9; 4096]);
    drop(server);
}

#[test]
fn qemu_img_converts_and_finds_no_difference() {
    if !is_here("qemu_img_converts_and_finds_no_difference", "qemu-img", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let (source, disk) = (image(&folder), folder.disk("disk.img", SIZE));
    let (_server, _, uri) = file_server(&disk);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&source), &uri]);
    assert_eq!(hash(&disk), hash(&source));
    let compared = succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&source), &uri]);
    assert!(compared.contains("identical"), "{compared}");
}

#[test]
fn fio_verifies_random_writes() {
    if !is_here("fio_verifies_random_writes", "fio", "fio") {
        return;
    }
    let (_server, address) = serve(Offer::new("disk", MemoryDevice::new(SIZE)));
    let uri = format!("--uri=nbd://{address}/disk");
    let job = [
        "--name=job",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=512-64k",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--size=16M",
    ];
    let folder = Folder::new();
    // It leaves a file of state where it runs.
    let state = format!("--aux-path={}", text(&folder.file("")));
    let told = succeed("fio", &[&job[..], &[&state]].concat());
    // Some builds have no such engine.
    assert!(told.contains("err= 0"), "{told}");
}

#[test]
fn nbdfuse_is_a_file_with_the_bytes_of_the_device() {
    let test = "nbdfuse_is_a_file_with_the_bytes_of_the_device";
    if !is_here(test, "nbdfuse", "libnbd-bin") || !is_here(test, "fusermount3", "fuse3") {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "needs /dev/fuse");
    }
    let folder = Folder::new();
    let (_server, address, uri) = file_server(&folder.disk("disk.img", SIZE));
    let (mount, file) = (folder.file("mount"), folder.file("mount/disk"));
    std::fs::create_dir(&mount).unwrap();
    let child = std::process::Command::new("nbdfuse").args([text(&file), &uri]).spawn();
    let mut child = child.unwrap();
    crate::support::until("the file is there", || {
        file.exists() || child.try_wait().unwrap().is_some()
    });
    if child.try_wait().unwrap().is_some() {
        return skip(test, "nbdfuse cannot mount here");
    }
    let written = std::fs::OpenOptions::new().write(true).open(&file).and_then(|file| {
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern(3, 100_000), 4096)?;
        file.sync_all()
    });
    let seen = connect(address).read(4096, vec![0; 100_000]).wait();
    let _ = run("fusermount3", &["-u", text(&mount)]);
    crate::support::wait(&mut child).unwrap();
    written.unwrap();
    assert_eq!(seen.unwrap(), pattern(3, 100_000));
}

/// A server of others, and our client of it.
struct Nbdkit {
    child: std::process::Child,
    client: landfall_storage::client::Client,
}

impl Nbdkit {
    fn start(folder: &Folder, plugin: &[&str]) -> Self {
        let socket = folder.file("socket");
        let arguments = ["-f", "--exit-with-parent", "-U", text(&socket)];
        let mut program = std::process::Command::new("nbdkit");
        let child = program.args(arguments).args(plugin).spawn().unwrap();
        let options = landfall_storage::client::Options::export("");
        let mut client = None;
        // Its socket has a name before it listens.
        crate::support::until("it listens", || {
            client = landfall_storage::client::Client::connect_unix(&socket, &options).ok();
            client.is_some()
        });
        Self { child, client: client.expect("it listens") }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn our_client_uses_nbdkit() {
    if !is_here("our_client_uses_nbdkit", "nbdkit", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let server = Nbdkit::start(&folder, &["file", text(&folder.disk("disk.img", SIZE))]);
    let client = &server.client;
    client.write(12_345, pattern(4, 200_000)).wait().unwrap();
    client.flush().wait().unwrap();
    assert_eq!(client.read(12_345, vec![0; 200_000]).wait().unwrap(), pattern(4, 200_000));
    let extents = client.status(0, SIZE).wait().unwrap();
    assert!(extents.iter().any(|extent| extent.is_hole), "{extents:?}");
}

/// A status of 480,000 bytes in one chunk, which is more than our client has room for at a time.
#[test]
fn our_client_takes_a_long_status_of_nbdkit() {
    const EXTENTS: u64 = 60_000;
    let test = "our_client_takes_a_long_status_of_nbdkit";
    if !is_here(test, "nbdkit", "nbdkit") || !run("nbdkit", &["eval", "--version"]).status.success()
    {
        return skip(test, "needs nbdkit with its plugin eval");
    }
    let (folder, size) = (Folder::new(), EXTENTS * 4096);
    let loops = format!("for (nth = 0; nth < {EXTENTS}; nth++)");
    let plugin = [
        "eval",
        &format!("get_size=echo {size}"),
        "pread=head -c $3 /dev/zero",
        &format!(r#"extents=awk 'BEGIN {{ {loops} print nth * 4096, 4096, 3 * (nth % 2) }}'"#),
    ];
    let server = Nbdkit::start(&folder, &plugin);
    let extents = server.client.status(0, size).wait().unwrap();
    assert_eq!(extents.len() as u64, EXTENTS);
    let alternate = |(nth, extent): (usize, &Extent)| {
        extent.len == 4096 && extent.is_hole == (nth % 2 == 1) && extent.is_zero == extent.is_hole
    };
    assert!(extents.iter().enumerate().all(alternate));
    assert_eq!(server.client.read(0, vec![1; 4096]).wait().unwrap(), [0; 4096], "it goes on");
}
